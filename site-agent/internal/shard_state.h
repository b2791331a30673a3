#pragma once

// ShardState: what this rank holds of the run's state, for the chunks of its shard: global parameters, outer momentum, residual, and the
// update being received. Pure; owned by one thread at a time. Chunks are named by their id in the whole vector; memory is 20 bytes a value
// (parameters, momentum, residual, residual before the undecided contribution, staged update).
//
// Each chunk has its own round: normally all have the same; while the state is being taken from other sites they differ.
// A contribution changes the residual when it is coded; settle() makes the change final, undo() takes it back exactly.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/aligned_vector.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/result.h"
#include "compression/frame.h"
#include "sync/manifest.h"
#include "sync/outer_optimizer.h"

namespace sluice::site_agent {

class ShardState {
 public:
  ShardState() = default;
  // Everything zero, round 0. REQUIRES: the manifest outlives the state.
  ShardState(const sync::Manifest& manifest, sync::ChunkRange chunks);

  [[nodiscard]] sync::ChunkRange chunks() const { return chunks_; }
  [[nodiscard]] bool contains(ChunkId chunk) const { return chunk.value >= chunks_.begin && chunk.value < chunks_.end; }
  // Lowest and highest round of the chunks; an empty shard has the round that it was last told.
  [[nodiscard]] std::uint64_t round_min() const;
  [[nodiscard]] std::uint64_t round_max() const;
  [[nodiscard]] std::uint64_t chunk_round(ChunkId chunk) const { return round_[slot(chunk)]; }
  [[nodiscard]] std::span<const Digest> digests() const { return digests_; }
  [[nodiscard]] std::span<const float> parameters(ChunkId chunk) const { return section(parameters_, chunk); }
  [[nodiscard]] std::span<const float> momentum(ChunkId chunk) const { return section(momentum_, chunk); }
  [[nodiscard]] std::span<const float> residual(ChunkId chunk) const { return section(residual_, chunk); }

  // Replaces a chunk of a state that is made from the caller's tensors or a file.
  void set_chunk(ChunkId chunk, std::uint64_t round, std::span<const float> parameters, std::span<const float> momentum,
                 std::span<const float> residual);

  // Codes the chunk's contribution; `out` is replaced by the frame. `residual_share`, 0 to 1: of what coding leaves out, kept for the next
  // one. Errors: kNonFinite, kInvalidArgument (codec, step).
  Status encode(ChunkId chunk, std::span<const float> delta, float weight, float step, std::uint8_t codec, float residual_share,
                ByteVector& out);
  void settle();
  void undo();

  // Keeps a decoded update for the round; a later one for the same chunk replaces it. Errors: those of the decoder, kFrameUnexpected.
  Status stage(ChunkId chunk, std::uint64_t epoch, std::uint64_t round, SiteSet counted, bool is_replay,
               const compression::FrameView& frame);
  // Makes the outer step of a staged chunk ready, in the place of the staged update, for a commit with this scale. Does nothing for a rule
  // with momentum, whose two results would need a place each. Returns whether prepared() has the result.
  bool prepare(ChunkId chunk, float scale, const sync::OuterConfig& outer);
  // REQUIRES: prepare() returned true for the chunk's staged update.
  [[nodiscard]] std::span<const float> prepared(ChunkId chunk) const { return section(staged_values_, chunk); }
  // Whether each chunk that is at round - 1 has an update staged for this commit (and, where prepared, for this scale).
  [[nodiscard]] bool is_staged(std::uint64_t round, SiteSet counted, float scale) const;
  // Applies the staged update to the chunks that are at round - 1; `written` (may be empty) sees each of them right afterwards.
  // REQUIRES: is_staged(round, counted, scale).
  using Written = std::function<void(ChunkId, std::span<const float> parameters, bool was_prepared)>;
  void commit(std::uint64_t round, float scale, const sync::OuterConfig& outer, const Written& written);

  // Part of another site's state. The chunk takes the round once both parts (parameters; momentum too when the rule has one) are there.
  // Returns whether the chunk is complete. Errors: those of the decoder, kFrameUnexpected.
  enum class Part : std::uint8_t { kParameters, kMomentum };
  Result<bool> install(ChunkId chunk, std::uint64_t round, Part part, bool needs_momentum, const compression::FrameView& frame);
  // One part of the chunk as a RAW32 frame with the very same bits. Errors: kNonFinite.
  Status export_part(ChunkId chunk, Part part, ByteVector& out) const;

  // For an empty shard: it has nothing to apply but follows the rounds.
  void note_round(std::uint64_t round) { round_of_empty_ = round; }

 private:
  [[nodiscard]] std::size_t slot(ChunkId chunk) const;
  [[nodiscard]] std::size_t offset(ChunkId chunk) const;
  [[nodiscard]] std::span<float> section(AlignedVector<float>& values, ChunkId chunk) const;
  [[nodiscard]] std::span<const float> section(const AlignedVector<float>& values, ChunkId chunk) const;
  void refresh_digest(ChunkId chunk);

  struct Staged {
    std::uint64_t epoch = 0;
    std::uint64_t round = 0;  // 0: nothing
    SiteSet counted;
    bool is_replay = false;
    bool is_prepared = false;  // staged_values_ holds the next parameters, next_digest is theirs
    float scale = 0.0F;        // that they were prepared with
    Digest next_digest;
  };
  // The first part of a chunk's state waits in the place of its staged update, so that a chunk never holds halves of two states.
  struct Installing {
    bool has_part = false;
    Part part = Part::kParameters;
    std::uint64_t round = 0;
  };

  const sync::Manifest* manifest_ = nullptr;
  sync::ChunkRange chunks_;
  sync::ValueRange values_;
  AlignedVector<float> parameters_;
  AlignedVector<float> momentum_;
  AlignedVector<float> residual_;
  AlignedVector<float> residual_before_;
  AlignedVector<float> staged_values_;
  std::vector<std::uint64_t> round_;
  std::vector<Digest> digests_;
  std::vector<Staged> staged_;
  std::vector<Installing> installing_;
  std::vector<std::uint8_t> has_contributed_;  // residual_before_ is valid
  std::uint64_t round_of_empty_ = 0;
};

}  // namespace sluice::site_agent
