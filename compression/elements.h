#pragma once

// Tensors of fp32, fp16 and bf16 to the fp32 that the codec works on, and back; and where the chunks of a long vector lie.
// Conversions are exact upward and round to nearest even downward. Pure, any thread.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/ids.h"
#include "compression/frame.h"
#include "compression/limits.h"

namespace sluice::compression {

// Bytes of one element.
constexpr std::size_t element_size(ElementType type) { return type == ElementType::kFloat32 ? 4 : 2; }

// REQUIRES: bytes.size() == values.size() * element_size(type).
void load_elements(ByteSpan bytes, ElementType type, std::span<float> values);
// Values beyond the largest fp16 become Inf. REQUIRES: as above.
void store_elements(std::span<const float> values, ElementType type, std::span<std::uint8_t> bytes);

// Index of the first NaN or Inf, by bits; values.size() when there is none.
std::size_t find_non_finite(std::span<const float> values);

// Chunks of a vector of `count` values; 64-bit, so that vectors beyond 2^31 values are no special case.
constexpr std::uint64_t chunk_count(std::uint64_t count) { return (count + kChunkValues - 1) / kChunkValues; }

struct ChunkRange {
  std::uint64_t begin = 0;
  std::uint32_t size = 0;
};

// REQUIRES: chunk.value < chunk_count(count).
constexpr ChunkRange chunk_range(ChunkId chunk, std::uint64_t count) {
  const std::uint64_t begin = std::uint64_t{chunk.value} * kChunkValues;
  return ChunkRange{begin, static_cast<std::uint32_t>(std::min<std::uint64_t>(kChunkValues, count - begin))};
}

}  // namespace sluice::compression
