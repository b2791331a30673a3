#pragma once

// Manifest: the tensors of a model in registration order, seen as one flattened vector that is cut into chunks of kChunkValues values.
// Chunks may straddle tensors. All ranks and sites of a run must have the same manifest; hash() is what they compare.
// Immutable value after create(); safe from many threads.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "compression/frame.h"
#include "compression/limits.h"

namespace sluice::sync {

// A manifest must fit one control record (4 MiB) with its names and shapes.
inline constexpr std::size_t kManifestTensorsMax = 60'000;
inline constexpr std::size_t kManifestNamesBytesMax = 2U * 1024 * 1024;
inline constexpr std::size_t kTensorNameBytesMax = 512;
inline constexpr std::size_t kTensorDimensionsMax = 16;
// 2^38 values = 1 TiB of fp32 = 2^20 chunks: the chunk digests of a shard of eight ranks still fit one control record.
inline constexpr std::uint64_t kManifestValuesMax = std::uint64_t{1} << 38;

struct TensorSpec {
  std::string name;
  compression::ElementType type = compression::ElementType::kFloat32;
  std::vector<std::uint64_t> shape;  // empty for a scalar

  bool operator==(const TensorSpec&) const = default;
};

// Half-open ranges: chunks [begin, end) and values [begin, end) of the flattened vector.
struct ChunkRange {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  [[nodiscard]] std::uint32_t count() const { return end - begin; }
  bool operator==(const ChunkRange&) const = default;
};
struct ValueRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  [[nodiscard]] std::uint64_t count() const { return end - begin; }
  bool operator==(const ValueRange&) const = default;
};

// A piece of one tensor: `count` values from `tensor_offset` on.
struct TensorSlice {
  std::uint32_t tensor = 0;
  std::uint64_t tensor_offset = 0;
  std::uint64_t count = 0;
  bool operator==(const TensorSlice&) const = default;
};

class Manifest {
 public:
  // An empty manifest: no tensors, no chunks.
  Manifest() = default;
  // Errors: kInvalidArgument (no tensor, empty or repeated name, too many dimensions, type not supported), kLimitExceeded.
  static Result<Manifest> create(std::vector<TensorSpec> tensors);

  [[nodiscard]] std::span<const TensorSpec> tensors() const { return tensors_; }
  [[nodiscard]] std::uint64_t value_count() const { return starts_.empty() ? 0 : starts_.back(); }
  [[nodiscard]] std::uint32_t chunk_count() const;
  // XXH3-64 over names, types and shapes in order; independent of the machine.
  [[nodiscard]] std::uint64_t hash() const { return hash_; }

  [[nodiscard]] std::uint64_t tensor_values(std::uint32_t tensor) const { return starts_[tensor + 1] - starts_[tensor]; }
  // REQUIRES: chunk < chunk_count().
  [[nodiscard]] ValueRange chunk_values(ChunkId chunk) const;
  // Chunks [rank * C / ranks, (rank + 1) * C / ranks); empty when there are fewer chunks than ranks. REQUIRES: rank < ranks.
  [[nodiscard]] ChunkRange shard(RankId rank, std::uint32_t ranks) const;
  // Values of these chunks. REQUIRES: end <= chunk_count().
  [[nodiscard]] ValueRange values_of(ChunkRange chunks) const;
  // The tensor pieces that make up these values, in order. REQUIRES: end <= value_count().
  [[nodiscard]] std::vector<TensorSlice> slices(ValueRange values) const;
  // "layer.0.weight[17]": the tensor and flat index that a value of the flattened vector belongs to.
  [[nodiscard]] std::string locate(std::uint64_t value) const;
  // What differs first between two manifests ("tensor 3: b[2] here, c[2] there"), or empty.
  [[nodiscard]] std::string difference(const Manifest& other) const;

 private:
  [[nodiscard]] std::uint32_t tensor_at(std::uint64_t value) const;

  std::vector<TensorSpec> tensors_;
  std::vector<std::uint64_t> starts_;  // of each tensor in the flattened vector, and the end
  std::uint64_t hash_ = 0;
};

}  // namespace sluice::sync
