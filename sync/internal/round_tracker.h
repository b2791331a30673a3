#pragma once

// What this gateway holds of one round: whose contribution frames of the chunks that it owns, and which update chunks for which set.
// Bookkeeping only; the frames themselves lie in the shell. Owned by one RoundMachine; not thread-safe.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "sync/round_record.h"

namespace sluice::sync {

// The chunks of one update that are here, for one counted set.
class UpdateProgress {
 public:
  UpdateProgress(SiteSet counted, std::uint32_t chunks) : counted_(counted), digests_(chunks), is_here_(chunks, 0) {}

  // A chunk that comes again changes nothing: what was confirmed stays. False when `chunk` is out of range.
  bool add(ChunkId chunk, Digest frame_digest);
  [[nodiscard]] bool is_complete() const { return here_ == digests_.size(); }
  [[nodiscard]] bool has(ChunkId chunk) const { return chunk.value < is_here_.size() && is_here_[chunk.value] != 0; }
  [[nodiscard]] std::uint32_t missing() const { return static_cast<std::uint32_t>(digests_.size()) - here_; }
  [[nodiscard]] SiteSet counted() const { return counted_; }
  // xxh3_128 over the frame digests in the order of the chunks. REQUIRES: is_complete().
  [[nodiscard]] Digest digest() const;

 private:
  SiteSet counted_;
  std::vector<Digest> digests_;
  std::vector<std::uint8_t> is_here_;
  std::uint32_t here_ = 0;
};

class RoundTracker {
 public:
  // Follows the round of `record` at site `self`; owns what the record says.
  RoundTracker(SiteId self, const RoundRecord& record);

  // The record of the same round moved on: other owners, a new attempt.
  void follow(const RoundRecord& record);

  // False when the event cannot belong to this round (site no member, chunk out of range, set not within the members).
  bool add_contribution(SiteId site, ChunkId chunk);
  bool add_update(SiteSet counted, ChunkId chunk, Digest frame_digest);

  // Whether `chunk` is owned here, all of `wanted` are here, and it was not yet taken for this set and attempt. Marks it as taken.
  bool take_combination(ChunkId chunk, SiteSet wanted);
  // Whether every chunk is owned here and taken for this set: its whole update comes from here.
  [[nodiscard]] bool has_taken_all(SiteSet wanted) const;
  // Chunks that this site owns by the record last followed.
  [[nodiscard]] std::vector<ChunkId> owned_chunks() const;
  [[nodiscard]] bool owns_any() const { return owned_ > 0; }
  // Members of whom every owned chunk is here.
  [[nodiscard]] SiteSet complete_sites() const;

  // Nothing when no chunk for this set is here.
  [[nodiscard]] const UpdateProgress* progress(SiteSet counted) const;
  // Moves the progress for `counted` out (an empty one when there is none).
  UpdateProgress take_progress(SiteSet counted);

 private:
  void recount();
  [[nodiscard]] bool is_owned(ChunkId chunk) const;

  SiteId self_;
  RoundKey key_;
  std::uint32_t attempt_ = 0;
  SiteSet members_;
  SiteSet counted_;
  std::uint32_t chunks_;
  topology::PlanKind kind_ = topology::PlanKind::kSharded;
  std::vector<SiteId> owners_;
  std::vector<std::uint32_t> contributors_;  // by chunk: bits of the sites whose frame is here
  std::vector<std::uint32_t> combined_for_;  // by chunk: bits of the set last taken; 0 = none
  std::vector<std::uint32_t> here_by_site_;  // owned chunks that are here, by site
  std::uint32_t owned_ = 0;
  std::vector<UpdateProgress> updates_;  // a few: the members' and the closed sets
};

}  // namespace sluice::sync
