#pragma once

// The fixed bytes of frame format version 1, for encoders and parser.

#include <cstdint>

#include "compression/frame.h"

namespace sluice::compression {

inline constexpr std::uint32_t kFrameMagic = 0x31464C53;  // the bytes "SLF1"
inline constexpr std::uint8_t kFrameVersion = 1;

// Writes kFrameHeaderBytes.
void write_frame_header(const FrameHeader& header, std::uint8_t* to);

}  // namespace sluice::compression
