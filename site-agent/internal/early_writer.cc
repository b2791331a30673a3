#include "site-agent/internal/early_writer.h"

#include "base/assert.h"

namespace sluice::site_agent {

EarlyWriter::EarlyWriter(TensorTable& tensors, const sync::Manifest& manifest, sync::ChunkRange chunks)
    : tensors_(&tensors), manifest_(&manifest), chunks_(chunks), written_(chunks.count()) {}

std::span<float> EarlyWriter::kept(ChunkId chunk) {
  const sync::ValueRange shard = manifest_->values_of(chunks_);
  if (kept_.empty()) kept_.resize(shard.count());
  const sync::ValueRange values = manifest_->chunk_values(chunk);
  return std::span(kept_).subspan(values.begin - shard.begin, values.count());
}

void EarlyWriter::write(ChunkId chunk, std::span<const float> expected) {
  SLUICE_ASSERT(chunk.value >= chunks_.begin && chunk.value < chunks_.end, "chunk {}", chunk);
  std::uint8_t& is_written = written_[chunk.value - chunks_.begin];
  if (is_written == 0) tensors_->read(chunk, kept(chunk));
  is_written = 1;
  tensors_->write(chunk, expected);
}

void EarlyWriter::commit(ChunkId chunk, std::span<const float> values, bool is_expected) {
  std::uint8_t& is_written = written_[chunk.value - chunks_.begin];
  if (is_written == 0 || !is_expected) tensors_->write(chunk, values);
  is_written = 0;
}

void EarlyWriter::take_back() {
  for (std::uint32_t chunk = chunks_.begin; chunk < chunks_.end; ++chunk) {
    std::uint8_t& is_written = written_[chunk - chunks_.begin];
    if (is_written != 0) tensors_->write(ChunkId(chunk), kept(ChunkId(chunk)));
    is_written = 0;
  }
}

}  // namespace sluice::site_agent
