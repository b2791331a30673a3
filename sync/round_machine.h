#pragma once

// RoundMachine: the life of a round at one site, as a pure state machine. The gateway's loop owns one and feeds it; tests/sim runs N of
// them in virtual time. Not thread-safe. Same events and times in, same actions out, byte for byte; it draws no randomness and reads no
// clock.
//
// Every gateway runs the same machine. Decisions go through the coordination register (round_record.h). Who proposes a transition is only a
// matter of politeness: the leader acts first (the site that holds the `local` store, or the lowest live site), the others after a delay
// that grows with their index; compare-and-set settles ties.
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
#include "sync/ratio_controller.h"
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
  RatePolicy rate;             // codec, bits, and how they follow the links
};

// What a site brings to a round. `epoch`, `round` and `site` of the own one are filled in by the machine.
struct Proposal {
  EpochId epoch;
  RoundId round;
  SiteId site;
  std::uint64_t tokens = 0;
  std::shared_ptr<const compression::Sketch> sketch;  // merged over the ranks; null: none (then the others' decide the step)
  double sketch_weight = 0.0;                         // the weight that the sketch was made with
  std::uint64_t manifest_hash = 0;
  std::uint32_t chunks = 0;
  std::uint64_t values = 0;                           // of the model
  Digest base_digest;
  SiteReport report;
};

// ---- events ----
// All ranks of this site are ready with a delta from the state of the last LocalState (base_digest says which; another one is ignored).
struct LocalReady { Proposal proposal; };
// A process of this site's agents is lost: withdraw. Also when another takes its place at once: comes before that one's LocalState.
struct LocalGone { std::string reason; };
// All ranks of this site now hold this state: at attaching (each time), after FinishRound, after CatchUpState. Comes before LocalReady.
struct LocalState { RoundId round; Digest digest; };
// Control link usable in both directions; everything sent before it came up may be lost.
struct PeerUp { SiteId site; };
struct PeerDown { SiteId site; std::string reason; };
struct ProposalReceived { Proposal proposal; };
struct WithdrawReceived { SiteId site; EpochId epoch; RoundId round; };
struct StateReportReceived { SiteId from; RoundId round; Digest digest; };
struct RecordSeen { RoundRecord record; };            // from the store: watch, or the answer to a compare-and-set
struct StoreLost { std::string reason; };
struct StoreFound {};
// A contribution frame of `site` is checked and kept by this gateway (the own frames of chunks that it owns too). May come before the
// record.
struct ContributionStored { EpochId epoch; RoundId round; SiteId site; ChunkId chunk; };
// An update chunk for the set `counted` is here and outlives this process (written to the spool, synced or not): received, made here (after
// CombineChunk), or fetched (then with the key of FetchUpdate's record). A committed update must not die with the processes that
// confirmed it.
// The first frame of a (key, set, chunk) stays: another one is dropped, unless FetchUpdate asked anew.
struct UpdateStored { EpochId epoch; RoundId round; SiteSet counted; ChunkId chunk; Digest frame_digest; };
struct OwnerStatusReceived { SiteId from; EpochId epoch; RoundId round; std::uint32_t attempt = 0; SiteSet complete; };
struct ConfirmReceived { SiteId from; EpochId epoch; RoundId round; std::uint32_t attempt = 0; SiteSet counted; Digest update_digest; };
struct UpdateLost { RoundId round; std::string reason; };   // FetchUpdate failed at all sites that it named
struct Tick {};                                       // next_deadline() has come

using Event =
    std::variant<LocalReady, LocalGone, LocalState, PeerUp, PeerDown, ProposalReceived, WithdrawReceived, StateReportReceived, RecordSeen,
                 StoreLost, StoreFound, ContributionStored, UpdateStored, OwnerStatusReceived, ConfirmReceived, UpdateLost, Tick>;

// ---- actions ----
// "To every peer" means every peer whose link is up; what must be repeated when a link comes up, the machine repeats by itself.
struct SendProposal { Proposal proposal; };                       // to every peer
struct SendWithdraw { EpochId epoch; RoundId round; std::string reason; };  // to every peer
struct SendStateReport { RoundId round; Digest digest; };         // to every peer: agents are here and hold this state
struct CompareAndSet { std::uint64_t expected_version = 0; RoundRecord next; };  // answered with RecordSeen in any case
// Tell the agents. Member: encode with this record's step and weight. Other: updates of this round may come.
struct StartContribution { RoundRecord record; bool is_member = false; };
// Kept frames of the chunks that `to` own by this record (in a direct round: all) go there (again); what the same boot of a peer has
// acknowledged may be left out. When `to` names this site: report the own frames of these chunks with ContributionStored.
struct SendContributions { RoundRecord record; std::vector<SiteId> to; };
// Sum the kept frames of `counted`, in the order of the sites, send the result to all sites when it is shared (not in a direct round:
// every owner sums it), answer with UpdateStored. May come again for the same set: then send again.
struct CombineChunk { EpochId epoch; RoundId round; ChunkId chunk; SiteSet counted; bool is_shared = true; };
struct SendOwnerStatus { EpochId epoch; RoundId round; std::uint32_t attempt = 0; SiteSet complete; };  // to every peer
struct SendConfirm { EpochId epoch; RoundId round; std::uint32_t attempt = 0; SiteSet counted; Digest update_digest; };  // to every peer
// Committed and the update is here: journal it, tell the agents to apply. A contribution in record.counted is accounted for, another
// discarded.
// `frames`: the key that the update's frames came with (UpdateStored); its epoch is an earlier one when the store started since.
struct FinishRound { RoundRecord record; RoundKey frames; };
// Void: the agents take their contribution back (residual and delta as before) and go on. Also said when it may concern a contribution made
// before this process started; agents without one ignore it. Covers every key up to this one.
struct SkipRound { EpochId epoch; RoundId round; std::string reason; };
// Committed, but not (wholly) known here: from the own spool (a process that died may have left it there), else from one of these sites, in
// this order. What is kept for that key and set and does not have the record's digest is thrown away first. Answer with UpdateStored for
// every chunk, or with UpdateLost.
struct FetchUpdate { RoundRecord record; std::vector<SiteId> from; };
// This site's agents are behind or differ: replay the updates (own spool, then others) or take the state, at least of `round`. `from`:
// sites known to hold it, best first; empty: unknown, try all. The shell goes on until it can say LocalState or LocalGone; a later
// CatchUpState replaces an earlier one.
struct CatchUpState { RoundId round; std::vector<SiteId> from; std::string reason; };
// For log, status page and agents; only on change. Sites appear as "site N": the shell may put names.
struct Announce { std::string text; bool is_solo = false; };

using Action = std::variant<SendProposal, SendWithdraw, SendStateReport, CompareAndSet, StartContribution, SendContributions, CombineChunk,
                            SendOwnerStatus, SendConfirm, FinishRound, SkipRound, FetchUpdate, CatchUpState, Announce>;

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
