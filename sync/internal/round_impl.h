#pragma once

// The parts of RoundMachine. Level-triggered: each event changes what is known, then settle() compares what is known with what was already
// said and says the rest. A lost or repeated event is therefore harmless as long as what it told becomes known again.
// round_machine.cc: events. internal/round_site.cc: what every site does. internal/round_leader.cc: what the leader does.

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sync/internal/round_closing.h"
#include "sync/internal/round_tracker.h"
#include "sync/round_machine.h"

namespace sluice::sync {

struct RoundMachine::Impl {
  Impl(RoundConfig config_in, RoundRecord recovered);

  void on(const Event& event, TimePoint now);
  [[nodiscard]] std::string describe() const;

  // What is known of a site, the own one included.
  struct Site {
    bool is_up = false;
    TimePoint up_since{};
    bool has_agents = false;
    std::optional<TimePoint> agents_lost_at;  // while agents that were there are not
    std::optional<Proposal> proposal;
    std::optional<OwnerStatusReceived> status;
    std::optional<ConfirmReceived> confirm;
    std::optional<StateReportReceived> state;
    RoundKey withdrawn;  // from this round; its frames cannot be sent again
  };
  struct AgentState {
    RoundId round;
    Digest digest;
  };
  // Committed, but the agents do not hold it yet.
  struct Pending {
    RoundRecord record;
    UpdateProgress progress;
    RoundKey frames;              // what the frames in `progress` came with
    TimePoint fetch_at;           // when waiting for frames under way ends
    bool is_summed_here = false;  // a direct round, and its last sums are being made
    bool is_fetching = false;
  };
  // A frame event of a round whose record has not come yet.
  struct EarlyFrame {
    RoundKey key;
    ChunkId chunk;
    SiteSet counted;  // of an update; empty for a contribution
    SiteId site;
    Digest digest;
  };

  // ---- round_machine.cc: events ----
  void handle(const LocalReady& event);
  void handle(const LocalGone& event);
  void handle(const LocalState& event);
  void handle(const PeerUp& event);
  void handle(const PeerDown& event);
  void handle(const ProposalReceived& event);
  void handle(const WithdrawReceived& event);
  void handle(const StateReportReceived& event);
  void handle(const RecordSeen& event);
  void handle(const StoreLost& event);
  void handle(const StoreFound& event);
  void handle(const ContributionStored& event);
  void handle(const UpdateStored& event);
  void handle(const OwnerStatusReceived& event);
  void handle(const ConfirmReceived& event);
  void handle(const UpdateLost& event);
  void handle(const Tick&) {}
  void settle();
  // A site number from the network can be anything.
  [[nodiscard]] bool is_peer(SiteId site) const { return site.value < kSitesMax && site != config.self && config.sites.contains(site); }

  // ---- round_site.cc: every site ----
  void adopt(const RoundRecord& next);
  void leave_round(const RoundRecord& next);
  [[nodiscard]] bool may_be_under_way(const RoundRecord& committed) const;
  void enter_round(const RoundRecord& previous);
  [[nodiscard]] std::vector<SiteId> heirs_after(const RoundRecord& previous) const;
  void learn_rate();
  void replay_early_frames();
  void combine_owned();
  void combine(ChunkId chunk);
  [[nodiscard]] SiteSet wanted() const;  // whose frames a chunk sums now
  // Of the round that runs here.
  [[nodiscard]] bool is_current(const RoundKey& key) const { return tracker && key == record.key(); }
  void keep_early(const EarlyFrame& frame);
  void settle_agents();        // pending contributions of a former life
  void settle_contribution();  // StartContribution, or Withdraw when it cannot be made
  void settle_status();
  void settle_confirm();
  void settle_state();  // apply, fetch, catch up
  void settle_pending();
  void forget_frames();  // of the pending update
  void settle_divergence();
  void settle_report();
  void settle_proposal();
  void settle_solo();
  void catch_up(std::string reason);
  void withdraw(const std::string& reason);
  void repeat_to_new_peer(SiteId site);
  [[nodiscard]] SiteSet live() const;
  // Live sites, without those whose agents have been gone for open_grace: what a quorum can be hoped from.
  SiteSet company();
  void set_has_agents(Site& site, bool has_agents);
  [[nodiscard]] std::vector<SiteId> holders_of(RoundId round) const;

  // ---- round_leader.cc: the leader ----
  void lead();
  std::optional<RoundRecord> decide();
  std::optional<RoundRecord> decide_open();
  std::optional<RoundRecord> decide_close();
  std::optional<RoundRecord> decide_commit();
  [[nodiscard]] RoundRecord closed(const Closing& closing, std::string reason) const;
  [[nodiscard]] RoundRecord aborted(std::string reason) const;
  [[nodiscard]] CloseView close_view() const;
  [[nodiscard]] bool is_valid(const Proposal& proposal) const;
  void announce_left_out(const std::string& what, const std::vector<SiteId>& sites);

  void say(std::string text) { actions.push_back(Announce{std::move(text), is_solo}); }
  void wake_at(TimePoint time) {
    if (!timer || time < *timer) timer = time;
  }
  Site& self() { return sites[config.self.value]; }

  RoundConfig config;
  RatioController controller;
  RoundRecord record;
  bool has_seen_store = false;  // a record came since the start: `record` is more than the journal's memory
  std::vector<Action> actions;
  std::optional<TimePoint> timer;
  TimePoint now{};
  std::array<Site, kSitesMax> sites{};

  // Agents of this site.
  std::optional<AgentState> agents;
  bool are_agents_new = true;  // attached, but not yet told whether former contributions are void
  bool is_catching_up = false;
  std::optional<RoundId> applying;  // FinishRound said, LocalState awaited
  std::optional<Proposal> ready;    // stands until consumed, replaced or void
  RoundKey proposed;                // key of the proposal last sent in this life; 0 = none that counts
  std::optional<AgentState> reported;

  // The running round.
  std::optional<RoundTracker> tracker;
  TimePoint opened_at{};
  bool is_followed_from_open = false;  // else frames may have been sent before this site was there
  TimePoint closed_at{};
  std::uint32_t owners_since = 0;  // attempt from which on the present owners own: older statuses speak of other chunks
  RoundKey started;                // StartContribution was said for it
  RoundKey contributing;           // as a member: the shell holds, or will hold, kept frames
  std::optional<OwnerStatusReceived> status_sent;
  std::optional<ConfirmReceived> confirm_sent;
  std::vector<EarlyFrame> early;
  std::optional<Pending> pending;

  // Leader.
  std::optional<std::uint64_t> cas_version;  // in flight: expected version
  std::optional<TimePoint> quorum_since;
  std::optional<TimePoint> decidable_since;
  std::string left_out_said;

  // Store and company.
  std::optional<std::string> store_lost;
  bool is_solo = false;
  SiteSet company_said;  // empty: nothing yet
  std::string problem_said;
};

}  // namespace sluice::sync
