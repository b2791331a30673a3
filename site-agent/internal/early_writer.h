#pragma once

// EarlyWriter: puts the update of a round into the caller's tensors while the rest of it is still on its way, and takes it back if the
// round comes to nothing. After the commit almost nothing is left to copy. For a rank that is alone in its site; keeps a copy of the
// caller's values, 4 bytes a value, from the first use on. Owned by the thread that owns the session.

#include <cstdint>
#include <span>
#include <vector>

#include "site-agent/internal/tensor_table.h"
#include "sync/manifest.h"

namespace sluice::site_agent {

class EarlyWriter {
 public:
  // REQUIRES: tensors and manifest outlive the object.
  EarlyWriter(TensorTable& tensors, const sync::Manifest& manifest, sync::ChunkRange chunks);

  // What the chunk will be if the round is committed as expected. May come again for the same chunk.
  void write(ChunkId chunk, std::span<const float> expected);
  // The round is committed. `is_expected`: the values are those of the last write().
  void commit(ChunkId chunk, std::span<const float> values, bool is_expected);
  // Gives every chunk that is not committed the caller's values back.
  void take_back();

 private:
  [[nodiscard]] std::span<float> kept(ChunkId chunk);

  TensorTable* tensors_;
  const sync::Manifest* manifest_;
  sync::ChunkRange chunks_;
  std::vector<float> kept_;            // the caller's values of the chunks that are written
  std::vector<std::uint8_t> written_;  // by chunk of the shard
};

}  // namespace sluice::site_agent
