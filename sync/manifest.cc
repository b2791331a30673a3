#include "sync/manifest.h"

#include <algorithm>
#include <unordered_set>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"

namespace sluice::sync {
namespace {

constexpr const char* kOperation = "create manifest";

Result<std::uint64_t> count_values(const TensorSpec& tensor) {
  std::uint64_t count = 1;
  for (const std::uint64_t size : tensor.shape) {
    if (size != 0 && count > kManifestValuesMax / size) {
      return fail(ErrorCode::kLimitExceeded, kOperation, fmt::format("tensor {} has more than 2^38 values", tensor.name));
    }
    count *= size;
  }
  return count;
}

Status check_tensor(const TensorSpec& tensor) {
  if (tensor.name.empty()) return fail(ErrorCode::kInvalidArgument, kOperation, "a tensor has no name");
  if (tensor.name.size() > kTensorNameBytesMax) {
    return fail(ErrorCode::kLimitExceeded, kOperation, fmt::format("the name {}... is too long", tensor.name.substr(0, 40)));
  }
  if (tensor.shape.size() > kTensorDimensionsMax) {
    return fail(ErrorCode::kInvalidArgument, kOperation, fmt::format("tensor {} has {} dimensions", tensor.name, tensor.shape.size()));
  }
  if (tensor.type > compression::ElementType::kBfloat16) {
    return fail(ErrorCode::kInvalidArgument, kOperation, fmt::format("tensor {} has an unknown element type", tensor.name));
  }
  return {};
}

std::uint64_t hash_of(std::span<const TensorSpec> tensors) {
  ByteVector bytes;
  ByteWriter writer(bytes);
  writer.write(static_cast<std::uint64_t>(tensors.size()));
  for (const TensorSpec& tensor : tensors) {
    writer.write(static_cast<std::uint32_t>(tensor.name.size()));
    bytes.insert(bytes.end(), tensor.name.begin(), tensor.name.end());
    writer.write(static_cast<std::uint8_t>(tensor.type));
    writer.write(static_cast<std::uint32_t>(tensor.shape.size()));
    for (const std::uint64_t size : tensor.shape) writer.write(size);
  }
  return xxh3_64(bytes);
}

std::string describe(const TensorSpec& tensor) {
  std::string text = tensor.name + "[";
  for (std::size_t index = 0; index < tensor.shape.size(); ++index) {
    text += (index == 0 ? "" : ",") + std::to_string(tensor.shape[index]);
  }
  return text + "]";
}

}  // namespace

Result<Manifest> Manifest::create(std::vector<TensorSpec> tensors) {
  if (tensors.empty()) return fail(ErrorCode::kInvalidArgument, kOperation, "no tensor is registered");
  if (tensors.size() > kManifestTensorsMax) {
    return fail(ErrorCode::kLimitExceeded, kOperation, fmt::format("{} tensors, at most {}", tensors.size(), kManifestTensorsMax));
  }
  Manifest manifest;
  std::unordered_set<std::string_view> names;
  std::size_t name_bytes = 0;
  std::uint64_t position = 0;
  manifest.starts_.push_back(0);
  for (const TensorSpec& tensor : tensors) {
    SLUICE_CHECK_OK(check_tensor(tensor));
    if (!names.insert(tensor.name).second) {
      return fail(ErrorCode::kInvalidArgument, kOperation, fmt::format("two tensors are named {}", tensor.name));
    }
    name_bytes += tensor.name.size();
    SLUICE_TRY(const std::uint64_t values, count_values(tensor));
    position += values;
    if (position > kManifestValuesMax || name_bytes > kManifestNamesBytesMax) {
      return fail(ErrorCode::kLimitExceeded, kOperation, "more than 2^38 values or 2 MiB of names");
    }
    manifest.starts_.push_back(position);
  }
  if (position == 0) return fail(ErrorCode::kInvalidArgument, kOperation, "all tensors are empty");
  manifest.hash_ = hash_of(tensors);
  manifest.tensors_ = std::move(tensors);
  return manifest;
}

std::uint32_t Manifest::chunk_count() const {
  return static_cast<std::uint32_t>((value_count() + compression::kChunkValues - 1) / compression::kChunkValues);
}

ValueRange Manifest::chunk_values(ChunkId chunk) const { return values_of(ChunkRange{chunk.value, chunk.value + 1}); }

ChunkRange Manifest::shard(RankId rank, std::uint32_t ranks) const {
  SLUICE_ASSERT(rank.value < ranks, "rank {} of {}", rank.value, ranks);
  const std::uint64_t chunks = chunk_count();
  return ChunkRange{static_cast<std::uint32_t>(rank.value * chunks / ranks),
                    static_cast<std::uint32_t>((std::uint64_t{rank.value} + 1) * chunks / ranks)};
}

ValueRange Manifest::values_of(ChunkRange chunks) const {
  SLUICE_ASSERT(chunks.begin <= chunks.end && chunks.end <= chunk_count(), "chunks {}..{} of {}", chunks.begin, chunks.end, chunk_count());
  const std::uint64_t size = compression::kChunkValues;
  return ValueRange{std::min(chunks.begin * size, value_count()), std::min(chunks.end * size, value_count())};
}

std::uint32_t Manifest::tensor_at(std::uint64_t value) const {
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), value);
  return static_cast<std::uint32_t>(after - starts_.begin() - 1);
}

std::vector<TensorSlice> Manifest::slices(ValueRange values) const {
  SLUICE_ASSERT(values.begin <= values.end && values.end <= value_count(), "values {}..{}", values.begin, values.end);
  std::vector<TensorSlice> result;
  std::uint64_t position = values.begin;
  while (position < values.end) {
    const std::uint32_t tensor = tensor_at(position);
    const std::uint64_t end = std::min(values.end, starts_[tensor + 1]);
    result.push_back(TensorSlice{tensor, position - starts_[tensor], end - position});
    position = end;
  }
  return result;
}

std::string Manifest::locate(std::uint64_t value) const {
  if (value >= value_count()) return fmt::format("value {} of {}", value, value_count());
  const std::uint32_t tensor = tensor_at(value);
  return fmt::format("{}[{}]", tensors_[tensor].name, value - starts_[tensor]);
}

std::string Manifest::difference(const Manifest& other) const {
  const std::size_t common = std::min(tensors_.size(), other.tensors_.size());
  for (std::size_t index = 0; index < common; ++index) {
    if (tensors_[index] == other.tensors_[index]) continue;
    return fmt::format("tensor {}: {} here, {} there", index, describe(tensors_[index]), describe(other.tensors_[index]));
  }
  if (tensors_.size() != other.tensors_.size()) {
    return fmt::format("{} tensors here, {} there", tensors_.size(), other.tensors_.size());
  }
  return {};
}

}  // namespace sluice::sync
