#include "site-agent/internal/tensor_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/assert.h"

namespace sluice::site_agent {
namespace {

constexpr std::uint32_t kExponentMask = 0x7f80'0000U;

bool is_non_finite(float value) { return (std::bit_cast<std::uint32_t>(value) & kExponentMask) == kExponentMask; }

}  // namespace

std::size_t find_non_finite(std::span<const float> values) {
  constexpr std::size_t kBlock = 4096;  // the inner loop has no exit, so that it is vectorised
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, values.size());
    std::uint32_t found = 0;
    for (std::size_t index = begin; index < end; ++index) found |= is_non_finite(values[index]) ? 1U : 0U;
    if (found == 0) continue;
    for (std::size_t index = begin; index < end; ++index) {
      if (is_non_finite(values[index])) return index;
    }
  }
  return values.size();
}

TensorTable::TensorTable(const sync::Manifest& manifest, std::vector<float*> data) : manifest_(&manifest) {
  SLUICE_ASSERT(data.size() == manifest.tensors().size(), "{} pointers for {} tensors", data.size(), manifest.tensors().size());
  for (std::uint32_t chunk = 0; chunk < manifest.chunk_count(); ++chunk) {
    first_slice_.push_back(static_cast<std::uint32_t>(slices_.size()));
    for (const sync::TensorSlice& slice : manifest.slices(manifest.chunk_values(ChunkId(chunk)))) {
      slices_.push_back(Slice{data[slice.tensor] + slice.tensor_offset, slice.count});
    }
  }
  first_slice_.push_back(static_cast<std::uint32_t>(slices_.size()));
}

std::span<const TensorTable::Slice> TensorTable::slices(ChunkId chunk) const {
  return std::span(slices_).subspan(first_slice_[chunk.value], first_slice_[chunk.value + 1] - first_slice_[chunk.value]);
}

void TensorTable::read(ChunkId chunk, std::span<float> out) const {
  float* to = out.data();
  for (const Slice& slice : slices(chunk)) {
    std::memcpy(to, slice.data, slice.count * sizeof(float));
    to += slice.count;
  }
}

void TensorTable::write(ChunkId chunk, std::span<const float> values) {
  const float* from = values.data();
  for (const Slice& slice : slices(chunk)) {
    std::memcpy(slice.data, from, slice.count * sizeof(float));
    from += slice.count;
  }
}

void TensorTable::subtract_from(ChunkId chunk, std::uint64_t offset, std::span<const float> global, std::span<float> out) const {
  std::size_t done = 0;
  for (const Slice& slice : slices(chunk)) {
    if (offset >= slice.count) {
      offset -= slice.count;
      continue;
    }
    const std::size_t count = std::min(slice.count - offset, out.size() - done);
    const float* local = slice.data + offset;
    const float* from = global.data() + done;
    float* to = out.data() + done;
    for (std::size_t index = 0; index < count; ++index) to[index] = from[index] - local[index];
    done += count;
    offset = 0;
    if (done == out.size()) return;
  }
}

std::uint64_t TensorTable::find_non_finite(ChunkId chunk) const {
  std::uint64_t position = manifest_->chunk_values(chunk).begin;
  for (const Slice& slice : slices(chunk)) {
    const std::size_t index = site_agent::find_non_finite(std::span<const float>(slice.data, slice.count));
    if (index < slice.count) return position + index;
    position += slice.count;
  }
  return manifest_->value_count();
}

}  // namespace sluice::site_agent
