#pragma once

// RoundRecord: the value of the run's one coordination register, and the pure store that holds it.
//
// The whole run is coordinated through a single register that changes only by compare-and-set: first writer wins, everybody else learns the
// current value. Its history is linear, so "is round r committed, and with which sites" has one answer for ever:
//
//     idle(0) -> open(1) -> closed(1, attempt 1) [-> closed(1, attempt 2) ...] -> committed(1) -> open(2) -> ...
//                   \-> aborted(1) -> open(1) in the next epoch
//
// Committed rounds are numbered without gaps: an aborted round is opened again under the same number in a higher epoch, so "the state of
// round n" is always the one that committed update n made out of the state of round n - 1. Frames and messages carry the epoch; those of
// another are dropped.
//
// A record is superseded only by what transition_problem() lets pass; the store refuses everything else, whoever asks.
// Value types; RegisterStore is not thread-safe and is owned by the loop of the gateway that holds the store.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "sync/rate_plan.h"
#include "topology/wan_planner.h"

namespace sluice::sync {

enum class Phase : std::uint8_t { kIdle = 0, kOpen = 1, kClosed = 2, kCommitted = 3, kAborted = 4 };

// What names a round on the wire. Ordered: a later key never precedes an earlier one in the register.
struct RoundKey {
  EpochId epoch;
  RoundId round;
  auto operator<=>(const RoundKey&) const = default;
};

struct SiteTokens {
  SiteId site;
  std::uint64_t tokens = 0;
  bool operator==(const SiteTokens&) const = default;
};

struct RoundRecord {
  std::uint64_t version = 0;  // counts the changes of the register; 0 = never written
  EpochId epoch;
  RoundId round;  // the round that `phase` speaks of
  Phase phase = Phase::kIdle;
  std::uint32_t attempt = 0;        // grows with each close of the same round
  SiteSet members;                  // whose contributions the round waits for
  SiteSet counted;                  // from kClosed on: exactly whose contributions the update sums
  std::vector<SiteTokens> weights;  // of the members; a site's weight is its tokens over the sum of the members' tokens
  float step = 0.0F;                // common quantiser step; 0 for RAW32 and BF16
  std::uint8_t codec = 0;           // compression::Codec of the contributions
  topology::PlanKind plan_kind = topology::PlanKind::kSharded;
  // Chunk c is combined by owners[c % owners.size()]. In a direct round each of them combines every chunk, for itself.
  std::vector<SiteId> owners;
  Digest update_digest;     // kCommitted: of the update's frames
  Digest base_digest;       // state digest that the members' deltas were made from
  RoundId committed_round;  // last committed round, this one included when kCommitted
  std::uint64_t manifest_hash = 0;
  std::uint32_t chunks = 0;
  std::string reason;  // why this transition, for people
  RatePlan plan;       // while the round runs: what its opener expects: for people, the next opener and, as for detours, the senders

  bool operator==(const RoundRecord&) const = default;
  [[nodiscard]] RoundKey key() const { return {epoch, round}; }
  // Between open and the decision.
  [[nodiscard]] bool is_running() const { return phase == Phase::kOpen || phase == Phase::kClosed; }
  // Whether `other` is what the register held after this one.
  [[nodiscard]] bool is_older_than(const RoundRecord& other) const {
    return epoch < other.epoch || (epoch == other.epoch && version < other.version);
  }
};

// Key of the round that may be opened after `record` is decided (or, while it runs, would be after it committed).
RoundKey next_key(const RoundRecord& record);
// Owners that own at least one chunk.
SiteSet owners_with_chunks(const RoundRecord& record);
// Who combines the chunk: one site, in a direct round all owners. REQUIRES: record.owners is not empty.
SiteSet owners_of(const RoundRecord& record, ChunkId chunk);
// How the round's frames travel, ways over third sites counted.
inline topology::PlanKind way_of(const RoundRecord& record) {
  return record.plan.detours.empty() ? record.plan_kind : topology::PlanKind::kRelay;
}
inline bool is_direct(const RoundRecord& record) { return record.plan_kind == topology::PlanKind::kDirect; }
// Tokens of `site` over the sum of the members' tokens, as the fp32 number that every site computes alike. 0 for a non-member.
float weight_of(const RoundRecord& record, SiteId site);
// 1 / sum of the counted sites' weights: what the decoded sum is multiplied with. Same fp32 number at every site.
float scale_of(const RoundRecord& record);

// What is wrong with a record by itself (sizes, sets, numbers), whoever sent it; nothing when it can be used.
std::optional<std::string> record_problem(const RoundRecord& record);
// Why `next` may not replace `current` (epochs and rounds never go back, phases in order, counted within members, ...); nothing when it
// may.
std::optional<std::string> transition_problem(const RoundRecord& current, const RoundRecord& next);

// Each start of a store moves the epoch to the next multiple of this, each abort by one: epochs that an earlier start used without having
// made them durable are never used again. A million aborts in a row, each of at least a second, without one commit: not reached.
inline constexpr std::uint64_t kEpochsPerStart = 1'000'000;
// Largest model of a run: 2^42 values in chunks of 2^18. Bounds what a record can make a machine allocate.
inline constexpr std::uint32_t kChunksMax = 1U << 24;

// The register itself. Used by the gateway that holds the `local` store and by the simulator.
//
// Durability is the owner's duty: current() after construction, and every accepted record of phase kCommitted, is written and synced before
// anybody else (the own machine included) sees it. The others may be lost in a crash.
class RegisterStore {
 public:
  // `recovered` is what the journal knew; a store that starts begins a new epoch, so that a half-done round of the old one is void: it
  // reads as aborted. The last commit stays.
  explicit RegisterStore(RoundRecord recovered);

  struct Outcome {
    bool accepted = false;
    std::string problem;  // why not
  };
  // On success the register holds `next` with version expected_version + 1.
  Outcome compare_and_set(std::uint64_t expected_version, RoundRecord next);
  const RoundRecord& current() const { return current_; }

 private:
  RoundRecord current_;
};

}  // namespace sluice::sync
