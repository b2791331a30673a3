#pragma once

// The registered tensors as one flattened vector: copies values between it and the caller's memory, chunk by chunk, through slices that are
// computed once. Owns no tensor memory. Training thread only.

#include <span>
#include <vector>

#include "sync/manifest.h"

namespace sluice::site_agent {

class TensorTable {
 public:
  TensorTable() = default;
  // `data[i]` is the memory of manifest tensor i. REQUIRES: one pointer for each tensor; the manifest outlives the table.
  TensorTable(const sync::Manifest& manifest, std::vector<float*> data);

  // out = the chunk's local values. REQUIRES: sizes fit the chunk, here and below.
  void read(ChunkId chunk, std::span<float> out) const;
  // The chunk's local values = values.
  void write(ChunkId chunk, std::span<const float> values);
  // out = global - local over the chunk's values [offset, offset + out.size()).
  void subtract_from(ChunkId chunk, std::uint64_t offset, std::span<const float> global, std::span<float> out) const;
  // First value of the chunk, as an index into the flattened vector, that is NaN or Inf; value_count() when all are finite.
  [[nodiscard]] std::uint64_t find_non_finite(ChunkId chunk) const;

 private:
  struct Slice {
    float* data = nullptr;
    std::size_t count = 0;
  };
  [[nodiscard]] std::span<const Slice> slices(ChunkId chunk) const;

  const sync::Manifest* manifest_ = nullptr;
  std::vector<Slice> slices_;
  std::vector<std::uint32_t> first_slice_;  // of each chunk, and the end
};

// Index of the first NaN or Inf, or the size.
std::size_t find_non_finite(std::span<const float> values);

}  // namespace sluice::site_agent
