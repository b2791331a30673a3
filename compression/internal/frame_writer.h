#pragma once

// Header and hash around a payload that already lies in its place. Pure.

#include <cstdint>
#include <span>
#include <vector>

#include "compression/frame.h"
#include "compression/internal/dense_coder.h"

namespace sluice::compression {

// Writes the header into the kFrameHeaderBytes before `payload` and the hash behind its header.payload_bytes; the whole frame.
ByteSpan write_frame(const FrameHeader& header, std::uint8_t* payload);

// `header` with what the coder found out.
FrameHeader coded_header(FrameHeader header, Codec codec, const CodedPayload& coded);

// A GRID plain frame, built in `buffer`.
ByteSpan write_plain_integers(FrameHeader header, std::span<const std::int32_t> integers, std::vector<std::uint8_t>& buffer);

}  // namespace sluice::compression
