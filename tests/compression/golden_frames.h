#pragma once

// The inputs of the golden vectors: integers only, so that they are the same whatever the mathematics library does.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/assert.h"
#include "compression/chunk_sum.h"
#include "compression/grid_codec.h"

namespace sluice::compression {

// Sums of four bytes of a linear congruence, minus their mean: a bell of standard deviation 147.8 / 128, times `scale`.
inline std::vector<float> golden_values(std::size_t count, std::uint32_t seed, float scale) {
  std::vector<float> values(count);
  std::uint64_t state = seed;
  for (float& value : values) {
    std::int32_t sum = -510;
    for (int term = 0; term < 4; ++term) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      sum += static_cast<std::int32_t>((state >> 33) & 255U);
    }
    value = static_cast<float>(sum) / 128.0F * scale;
  }
  return values;
}

inline constexpr std::string_view kGoldenNames[] = {"empty",   "one-value",   "zeros", "sparse", "dense", "dense-tail", "dense-low-bits",
                                                    "outlier", "plain-value", "raw32", "bf16",   "sum",   "chunk",      "sparse-chunk"};

// The frame of this name as the encoder makes it today.
inline ByteVector make_golden_frame(std::string_view name) {
  ByteVector frame;
  const auto grid = [&frame](std::vector<float> values, float step) {
    std::vector<float> residual(values.size(), 0.125F);
    const auto stats = encode_grid_frame(values, 0.75F, residual, step, ChunkId(11), frame);
    SLUICE_ASSERT(stats.has_value());
  };
  std::vector<float> residual(40, 0.25F);
  if (name == "empty") grid({}, 0.5F);
  if (name == "one-value") grid({3.0F}, 0.5F);
  if (name == "zeros") grid(std::vector<float>(5000, 0.0F), 1.0F);
  if (name == "sparse") grid(golden_values(1000, 1, 1.0F), 3.0F);
  if (name == "dense") grid(golden_values(3072, 2, 1.0F), 0.5F);
  if (name == "dense-tail") grid(golden_values(1501, 3, 1.0F), 0.25F);
  if (name == "dense-low-bits") grid(golden_values(1600, 4, 1.0F), 0.0078125F);
  if (name == "outlier") {
    auto values = golden_values(3000, 5, 1.0F);
    values[700] = 1000.0F;
    values[701] = -1e20F;
    grid(values, 0.5F);
  }
  if (name == "plain-value") grid({1e9F}, 0.015625F);
  if (name == "raw32") SLUICE_ASSERT(encode_raw_frame(golden_values(40, 6, 1.0F), 0.5F, residual, ChunkId(12), frame).has_value());
  if (name == "bf16") SLUICE_ASSERT(encode_bf16_frame(golden_values(40, 7, 1.01F), 0.5F, residual, ChunkId(12), frame).has_value());
  if (name == "sum") {
    std::vector<ByteVector> frames(3);
    ChunkSum sum;
    for (std::uint32_t site = 0; site < 3; ++site) {
      grid(golden_values(1536, 20 + site, 1.0F), 0.5F);
      frames[site] = frame;
      SLUICE_ASSERT(sum.add(*parse_frame(frames[site])).has_value());
    }
    SLUICE_ASSERT(sum.encode(frame).has_value());
  }
  if (name == "chunk") grid(golden_values(kChunkValues, 8, 1.0F), 0.5F);
  if (name == "sparse-chunk") grid(golden_values(kChunkValues, 9, 1.0F), 4.25F);
  return frame;
}

}  // namespace sluice::compression
