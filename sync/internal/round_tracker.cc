#include "sync/internal/round_tracker.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/bytes.h"

namespace sluice::sync {
namespace {

// Sets for which update chunks are kept at a time: the members', and those of the last closes. More come only from a confused peer.
constexpr std::size_t kUpdateSetsMax = 4;

}  // namespace

bool UpdateProgress::add(ChunkId chunk, Digest frame_digest) {
  if (chunk.value >= digests_.size()) return false;
  if (is_here_[chunk.value] != 0) return true;
  is_here_[chunk.value] = 1;
  digests_[chunk.value] = frame_digest;
  ++here_;
  return true;
}

Digest UpdateProgress::digest() const {
  SLUICE_ASSERT(is_complete());
  ByteVector bytes;
  bytes.reserve(digests_.size() * 2 * sizeof(std::uint64_t));
  ByteWriter writer(bytes);
  for (const Digest& digest : digests_) {
    writer.write(digest.low);
    writer.write(digest.high);
  }
  return xxh3_128(bytes);
}

RoundTracker::RoundTracker(SiteId self, const RoundRecord& record)
    : self_(self),
      key_(record.key()),
      members_(record.members),
      chunks_(record.chunks),
      contributors_(record.chunks, 0),
      combined_for_(record.chunks, 0),
      here_by_site_(kSitesMax, 0) {
  follow(record);
}

void RoundTracker::follow(const RoundRecord& record) {
  SLUICE_ASSERT(record.key() == key_ && record.chunks == chunks_);
  // From the second attempt on something was lost on the way: every owned chunk is summed and sent again. What was summed in a direct
  // round was never sent.
  const bool is_sent_again = (record.attempt > attempt_ && record.attempt > 1) || kind_ != record.plan_kind;
  if (is_sent_again) std::fill(combined_for_.begin(), combined_for_.end(), 0);
  attempt_ = record.attempt;
  counted_ = record.counted;
  if (owners_ == record.owners && kind_ == record.plan_kind) return;
  owners_ = record.owners;
  kind_ = record.plan_kind;
  recount();
}

void RoundTracker::recount() {
  owned_ = 0;
  std::fill(here_by_site_.begin(), here_by_site_.end(), 0);
  for (const ChunkId chunk : owned_chunks()) {
    ++owned_;
    SiteSet{contributors_[chunk.value]}.for_each([&](SiteId site) { ++here_by_site_[site.value]; });
  }
}

bool RoundTracker::is_owned(ChunkId chunk) const {
  if (kind_ == topology::PlanKind::kDirect) return std::find(owners_.begin(), owners_.end(), self_) != owners_.end();
  return owners_[chunk.value % owners_.size()] == self_;
}

std::vector<ChunkId> RoundTracker::owned_chunks() const {
  std::vector<ChunkId> owned;
  for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
    if (is_owned(ChunkId(chunk))) owned.emplace_back(chunk);
  }
  return owned;
}

bool RoundTracker::add_contribution(SiteId site, ChunkId chunk) {
  if (site.value >= kSitesMax || !members_.contains(site) || chunk.value >= chunks_) return false;
  SiteSet here{contributors_[chunk.value]};
  if (here.contains(site)) return true;
  here.insert(site);
  contributors_[chunk.value] = here.bits;
  if (is_owned(chunk)) ++here_by_site_[site.value];
  return true;
}

bool RoundTracker::add_update(SiteSet counted, ChunkId chunk, Digest frame_digest) {
  if (counted.empty() || !members_.contains_all(counted) || chunk.value >= chunks_) return false;
  auto found = std::find_if(updates_.begin(), updates_.end(), [&](const UpdateProgress& update) { return update.counted() == counted; });
  if (found == updates_.end()) {
    if (updates_.size() == kUpdateSetsMax) {
      const auto stale = std::find_if(updates_.begin(), updates_.end(), [&](const UpdateProgress& update) {
        return update.counted() != members_ && update.counted() != counted_;
      });
      updates_.erase(stale);
    }
    found = updates_.emplace(updates_.end(), counted, chunks_);
  }
  return found->add(chunk, frame_digest);
}

bool RoundTracker::take_combination(ChunkId chunk, SiteSet wanted) {
  if (chunk.value >= chunks_ || !is_owned(chunk) || combined_for_[chunk.value] == wanted.bits) return false;
  if (!SiteSet{contributors_[chunk.value]}.contains_all(wanted)) return false;
  combined_for_[chunk.value] = wanted.bits;
  return true;
}

bool RoundTracker::has_taken_all(SiteSet wanted) const {
  return owned_ == chunks_ &&
         std::all_of(combined_for_.begin(), combined_for_.end(), [&](std::uint32_t set) { return set == wanted.bits; });
}

SiteSet RoundTracker::complete_sites() const {
  SiteSet complete;
  members_.for_each([&](SiteId site) {
    if (here_by_site_[site.value] == owned_) complete.insert(site);
  });
  return complete;
}

const UpdateProgress* RoundTracker::progress(SiteSet counted) const {
  for (const UpdateProgress& update : updates_) {
    if (update.counted() == counted) return &update;
  }
  return nullptr;
}

UpdateProgress RoundTracker::take_progress(SiteSet counted) {
  for (UpdateProgress& update : updates_) {
    if (update.counted() == counted) return std::exchange(update, UpdateProgress(counted, chunks_));
  }
  return {counted, chunks_};
}

}  // namespace sluice::sync
