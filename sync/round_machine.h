#pragma once

// RoundMachine: the life of a round at one site, as a pure state machine. The gateway's loop owns one and feeds it; tests/sim runs N of them in
// virtual time. Not thread-safe. Same events and times in, same actions out, byte for byte; it draws no randomness and reads no clock.
//
// Every gateway runs the same machine. Decisions go through the coordination register (round_record.h). Who proposes a transition is only a
// matter of politeness: the leader acts first (the site that holds the `local` store, or the lowest live site), the others after a delay that
// grows with their index; compare-and-set settles ties.
//
// docs/ARCHITECTURE.md, "Life of a round", has the picture and the rules in prose.

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/ids.h"
#include "compression/sketch.h"
#include "sync/round_record.h"

namespace sluice::sync {

struct RoundConfig {
  SiteId self;
  SiteSet sites;               // all configured sites
  std::uint16_t quorum = 2;    // fewest counted sites of a commit; > half of the sites unless the operator overrode it
  std::optional<SiteId> store_site;  // `local` store: only this site leads
  Duration open_grace{};       // how long the leader waits for live sites that have not proposed, once a quorum has
  Duration deadline{};         // from open to close
  Duration commit_deadline{};  // from close to commit, before the next attempt with those that answered
  std::uint8_t codec = 0;      // compression::Codec of contributions
  double bits_per_value = 2.0; // target mean over the members, GRID
  std::uint32_t warmup_rounds = 0;  // first rounds, at kWarmupBits
};

// What a site brings to a round.
struct Proposal {
  EpochId epoch;
  RoundId round;
  SiteId site;
  std::uint64_t tokens = 0;
  compression::Sketch sketch;
  double sketch_weight = 0.0;
  std::uint64_t manifest_hash = 0;
  std::uint32_t chunks = 0;
  Digest base_digest;
};

// ---- events ----
struct LocalReady { Proposal proposal; };             // all ranks of this site are ready; epoch is filled in by the machine
struct LocalGone { std::string reason; };             // this site's agents are lost: withdraw
struct LocalState { RoundId round; Digest digest; };  // this site's agents now hold this state (start, apply, catch-up)
struct PeerUp { SiteId site; };
struct PeerDown { SiteId site; std::string reason; };
struct ProposalReceived { Proposal proposal; };
struct WithdrawReceived { SiteId site; EpochId epoch; RoundId round; };
struct RecordSeen { RoundRecord record; };            // from the store: watch, or the answer to a compare-and-set
struct StoreLost { std::string reason; };
struct StoreFound {};
struct ContributionStored { SiteId site; ChunkId chunk; };  // checked and kept by this gateway, for the round of the current record
struct UpdateStored { SiteSet counted; ChunkId chunk; Digest frame_digest; };  // an update chunk is here (received or made)
struct OwnerStatusReceived { SiteId from; EpochId epoch; RoundId round; SiteSet complete; };
struct ConfirmReceived { SiteId from; EpochId epoch; RoundId round; std::uint32_t attempt = 0; SiteSet counted; Digest update_digest; };
struct UpdateLost { RoundId round; std::string reason; };   // FetchUpdate failed everywhere
struct Tick {};                                       // next_deadline() has come

using Event = std::variant<LocalReady, LocalGone, LocalState, PeerUp, PeerDown, ProposalReceived, WithdrawReceived, RecordSeen, StoreLost,
                           StoreFound, ContributionStored, UpdateStored, OwnerStatusReceived, ConfirmReceived, UpdateLost, Tick>;

// ---- actions ----
struct SendProposal { Proposal proposal; };                       // to every peer
struct SendWithdraw { EpochId epoch; RoundId round; std::string reason; };
struct CompareAndSet { std::uint64_t expected_version = 0; RoundRecord next; };
struct StartContribution { RoundRecord record; bool is_member = false; };  // tell the agents: encode with this step and weight
struct SendContributions { RoundRecord record; std::vector<SiteId> to; };  // kept frames go (again) to these new owners
struct CombineChunk { EpochId epoch; RoundId round; ChunkId chunk; SiteSet counted; };  // sum, send to all sites, answer with UpdateStored
struct SendOwnerStatus { EpochId epoch; RoundId round; SiteSet complete; };
struct SendConfirm { EpochId epoch; RoundId round; std::uint32_t attempt = 0; SiteSet counted; Digest update_digest; };
struct FinishRound { RoundRecord record; };                       // committed and the update is here: journal it, tell the agents to apply
struct SkipRound { RoundId round; std::string reason; };          // aborted: the agents keep their delta and go on
struct FetchUpdate { RoundRecord record; std::vector<SiteId> from; };   // committed but not (wholly) here: get it from one of these
struct CatchUpState { RoundId round; std::string reason; };       // this site's agents are behind or differ: replay or take the state
struct Announce { std::string text; bool is_solo = false; };      // for log, status page and agents; only on change

using Action = std::variant<SendProposal, SendWithdraw, CompareAndSet, StartContribution, SendContributions, CombineChunk, SendOwnerStatus,
                            SendConfirm, FinishRound, SkipRound, FetchUpdate, CatchUpState, Announce>;

class RoundMachine {
 public:
  // `recovered` is the last record of the journal (phase kIdle or kCommitted).
  RoundMachine(RoundConfig config, RoundRecord recovered);
  RoundMachine(RoundMachine&&) noexcept;
  RoundMachine& operator=(RoundMachine&&) noexcept;
  ~RoundMachine();

  void on(const Event& event, TimePoint now);            // the only way in
  std::vector<Action> take_actions();                    // the only way out, in order
  std::optional<TimePoint> next_deadline() const;        // when to send Tick

  const RoundRecord& record() const;                     // what this site last saw of the register
  std::string describe() const;                          // one line: phase, who is waited for

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::sync
