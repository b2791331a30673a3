#pragma once

// Bounds of the codec, with unit and reason. Decoders check them before they touch a byte of payload.

#include <cstddef>
#include <cstdint>

namespace sluice::compression {

// Values of one full chunk; the last chunk of a vector may be shorter. 1 MiB of fp32: delta and codes fit a 2 MiB L2 cache.
inline constexpr std::uint32_t kChunkValues = 262144;

// A frame is header + payload + trailing XXH3-64.
inline constexpr std::size_t kFrameHeaderBytes = 48;
inline constexpr std::size_t kFrameTrailerBytes = 8;
// No codec may need more than 4 bytes per value: the encoder falls back to plain integers before it does.
inline constexpr std::size_t kFramePayloadBytesMax = std::size_t{4} * kChunkValues;
inline constexpr std::size_t kFrameBytesMax = kFrameHeaderBytes + kFramePayloadBytesMax + kFrameTrailerBytes;

// Contributions in one sum: one per site of a run (kSitesMax).
inline constexpr std::uint32_t kContributionsMax = 16;

// Largest |q| of one contribution. fp32 holds every such integer exactly; a value beyond it stays in the residual. Sums of
// kContributionsMax contributions stay below 2^29 and so fit an int32.
inline constexpr std::int32_t kGridIntegerMax = 1 << 24;

// Bits of the largest |q| of a sum of kContributionsMax contributions.
inline constexpr int kGridMagnitudeBitsMax = 29;

// Bounds of the quantiser step: 16384 squared errors of (step / 2)^2 summed in fp32 neither overflow nor lose their exponent.
inline constexpr float kGridStepMin = 0x1p-56F;
inline constexpr float kGridStepMax = 0x1p+56F;
// A contribution may use 2^j times the step of the sum, 0 <= j <= kGridStepShiftMax.
inline constexpr int kGridStepShiftMax = 8;

// Symbols -K .. K and an escape fit 32 entries of a 256-slot model.
inline constexpr int kGridHalfWidthMax = 15;
// Low bits of an integer that are sent as raw planes.
inline constexpr int kGridLowBitsMax = 16;

// Serialised sketch: header and at most kSketchBins counts of 4 bytes.
inline constexpr std::size_t kSketchBins = 960;
inline constexpr std::size_t kSketchBytesMax = 32 + 4 * kSketchBins;

}  // namespace sluice::compression
