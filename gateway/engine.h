#pragma once

// Engine: the gateway's heart. Translates between the outside (peer links, agents, disk) and the pure round machine, and owns everything
// that changes: one object, one thread (the one that runs `loop`), no locks. CPU work (sums) goes to a pool by value and comes back by
// post.
//
//   agents --frames--> spool --> owner's gateway (links)          machine: on(event, now) -> actions
//   peers  --frames--> spool --> combiner pool --> peers, agents
//
// Frames are kept in the spool until their round is decided, so that they can be summed or sent again for another set of sites or another
// owner. Nothing here trusts a frame or message: each is checked against the record of the round, and refused ones are counted by reason.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "base/clock.h"
#include "base/result.h"
#include "gateway/agent_group.h"
#include "gateway/agent_server.h"
#include "gateway/catch_up.h"
#include "gateway/chunk_combiner.h"
#include "gateway/config.h"
#include "gateway/coordination.h"
#include "gateway/frame_spool.h"
#include "gateway/journal.h"
#include "gateway/metrics.h"
#include "gateway/peer_links.h"
#include "gateway/peer_routes.h"
#include "gateway/round_history.h"
#include "gateway/site_topology.h"
#include "gateway/status.h"
#include "gateway/tls_context.h"
#include "gateway/wan_prober.h"
#include "sync/round_machine.h"
#include "topology/wan_probe_schedule.h"

namespace sluice::gateway {

// What the engine uses and does not own; all outlive it.
struct EngineParts {
  const GatewayConfig& config;
  asio::io_context& loop;
  Journal& journal;
  FrameSpool& spool;
  SiteTopology& topology;
  Metrics& metrics;
  StatusBoard& board;
  std::shared_ptr<const TlsContext> tls;
  std::string version;
};

class Engine {
 public:
  explicit Engine(EngineParts parts);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Opens the listeners and begins. Errors: kListen and those of the journal.
  Status start();
  // Says goodbye to peers and agents and closes everything. No callback runs afterwards.
  void stop();
  [[nodiscard]] std::uint16_t wan_port() const { return links_->listening_port(); }
  // From any thread: an active probe of the link to this site, when one may run now. Its outcome is in the status.
  void post_probe(const std::string& peer);

 private:
  // ---- from the links (engine_peers.cc) ----
  void on_peer_up(SiteId peer, bool is_new_process);
  void on_peer_down(SiteId peer, const std::string& reason);
  void on_peer_control(SiteId from, const wire::PeerMessage& message);
  Status handle_peer_control(SiteId from, const wire::PeerMessage& message);
  void on_peer_frame(SiteId by, FrameRecord frame);
  Status take_contribution(SiteId from, const FrameRecord& frame);
  Status take_update(SiteId from, const FrameRecord& frame);
  void on_refused(std::string_view reason, const std::string& detail);

  // ---- from the agents (engine_agents.cc) ----
  void on_agent_control(AgentSessionId session, const wire::AgentMessage& message);
  Status handle_agent_control(AgentSessionId session, const wire::AgentMessage& message);
  Status admit_agent(AgentSessionId session, const wire::AgentHello& hello);
  void on_group_complete();
  Status take_ready(AgentSessionId session, const wire::AgentReady& ready);
  Status take_site_probe(AgentSessionId session, const wire::SiteProbe& probe);
  Status take_applied(AgentSessionId session, const wire::RoundApplied& applied);
  void on_agent_frame(AgentSessionId session, FrameRecord frame);
  Status take_own_contribution(AgentSessionId session, const FrameRecord& frame);
  void on_agent_gone(AgentSessionId session, const std::string& reason);
  // A process of this site was lost: the other ranks (not `newcomer`, which takes its place) hear so, and what all had made is void. The
  // caller tells the machine.
  void break_group(const std::string& reason, std::optional<AgentSessionId> newcomer);
  // The model that the run trains, from the register; nothing before its first round.
  struct Model {
    std::uint64_t manifest_hash = 0;
    std::uint32_t chunks = 0;
    bool operator==(const Model&) const = default;
  };
  std::optional<Model> run_model() const;
  // Sends this site's agents away when they train another model than `whose`: nothing of theirs would fit.
  void refuse_other_model(const Model& expected, const std::string& whose);
  static Error other_model(const Model& own, const Model& expected, const std::string& whose);
  void send_away(AgentSessionId session, const Error& why);
  wire::AgentMessage welcome() const;
  void send_agents(const wire::AgentMessage& message);
  void send_agent_frame(ChunkId chunk, FrameRecord frame);

  // ---- the machine and its actions (engine.cc) ----
  void feed(sync::Event event);
  void on_record(const sync::RoundRecord& record);
  void on_store_trouble(const std::string& why);
  void act(sync::SendProposal& action);
  void act(sync::SendWithdraw& action);
  void act(sync::SendStateReport& action);
  void act(sync::CompareAndSet& action);
  void act(sync::StartContribution& action);
  void act(sync::SendContributions& action);
  void act(sync::CombineChunk& action);
  void act(sync::SendOwnerStatus& action);
  void act(sync::SendConfirm& action);
  void act(sync::FinishRound& action);
  void act(sync::SkipRound& action);
  void act(sync::FetchUpdate& action);
  void act(sync::CatchUpState& action);
  void act(sync::Announce& action);
  void broadcast(const wire::PeerMessage& message);
  Status keep_update(const FrameKey& key, const SharedBytes& frame, EpochId epoch);
  Status promote_update(RoundId round, SiteSet counted, std::uint32_t chunks);
  bool feed_from_replay_file(const sync::RoundRecord& record);
  void deliver_update(const FrameKey& key, SharedBytes frame, EpochId epoch, bool is_shared);
  void send_contribution(SiteId owner, ChunkId chunk);
  Status write_journal(const sync::RoundRecord& record);
  void keep_record(const sync::RoundRecord& record);
  void arm_timer();
  void on_timer();

  // ---- frames (engine_peers.cc) ----
  // Whether a frame of this epoch and round may concern the current or the next round.
  Status check_envelope(const wire::FrameEnvelope& envelope);
  wire::FrameEnvelope update_envelope(const FrameKey& key, EpochId epoch) const;
  void send_peer_frame(SiteId to, FrameRecord frame);
  void queue_peer_frame(SiteId hop, FrameRecord frame);
  void on_drained(SiteId peer);
  std::vector<SiteId> live_peers() const;

  // ---- over a third site (engine_relay.cc) ----
  void apply_routes(const std::vector<RouteChange>& changes, const std::string& reason);
  void announce_links();
  std::optional<SiteId> detour_of(SiteId to, const wire::FrameEnvelope& envelope);
  void leave_lost_detours();
  void send_updates_again(SiteId to);
  bool send_control(SiteId to, const wire::PeerMessage& message);
  Status take_relayed(SiteId by, const wire::PeerMessage& wrapped);
  Result<std::optional<SiteId>> sort_frame(SiteId by, FrameRecord& frame);
  [[nodiscard]] topology::LinkEstimate path_estimate(SiteId peer) const;

  // ---- what is known of the WAN (engine_wan.cc) ----
  [[nodiscard]] sync::SiteReport site_report(TimePoint now) const;
  void note_ready(TimePoint now);
  void note_opened(const sync::RoundRecord& record, TimePoint now);
  void note_own_frame(TimePoint now);
  void note_finished(const sync::RoundRecord& record, double contribution_bits, TimePoint now);
  void set_link_plan_metrics();
  [[nodiscard]] std::uint64_t link_sent_bytes(SiteId peer) const;
  void fill_link_wan(SiteId peer, LinkStatus& link) const;
  [[nodiscard]] std::vector<WanPathStatus> wan_paths() const;
  void publish_wan(StatusSnapshot& snapshot) const;
  void take_wan_report(const sync::Proposal& proposal);
  WanProberHooks prober_hooks();
  void probe(const std::string& peer);
  void arm_probe_timer();
  void probe_by_schedule(TimePoint now);
  [[nodiscard]] std::uint64_t own_probe_bytes_max(SiteId peer) const;

  // ---- for people (engine_status.cc) ----
  void mark_changed();
  void publish();
  void update_link_figures();
  [[nodiscard]] LinkStatus link_status(SiteId peer, const LinkStats& stats) const;
  std::string with_names(const std::string& text) const;
  std::string name(SiteId site) const;

  EngineParts parts_;
  SiteId self_;
  std::uint16_t sites_;
  std::unique_ptr<PeerLinks> links_;
  PeerRoutes routes_;
  std::unique_ptr<AgentServer> agents_;
  std::unique_ptr<ChunkCombiner> combiner_;
  std::unique_ptr<Coordination> coordination_;
  std::unique_ptr<sync::RoundMachine> machine_;
  std::unique_ptr<CatchUp> catch_up_;
  AgentGroup group_;
  RoundHistory history_;
  std::unique_ptr<WanProber> prober_;
  topology::WanProbeSchedule probe_schedule_{self_};
  std::uint64_t rounds_measured_ = 0;  // that this site took part in

  std::deque<sync::Event> events_;
  bool is_feeding_ = false;
  asio::steady_timer timer_;
  asio::steady_timer publish_timer_;
  asio::steady_timer probe_timer_{parts_.loop};
  bool is_publish_armed_ = false;
  bool is_stopped_ = false;

  std::map<RoundId, sync::RoundRecord> commits_;  // records of the last committed rounds
  EpochId newest_epoch_;                          // of any frame accepted
  // The round that the agents are working on: set by StartContribution, ended by FinishRound and SkipRound.
  struct Contribution {
    EpochId epoch;
    RoundId round;
    bool is_member = false;
    std::uint64_t generation = 0;  // of the agent group that was told
  };
  std::optional<Contribution> contribution_;
  std::set<ChunkId> own_chunks_;  // coded for that epoch and in the spool
  // Update chunks of the round in progress that are in the spool, with the epoch they came in: the first one of an epoch stays.
  std::map<FrameKey, EpochId> update_epochs_;
  std::optional<RoundId> fetched_round_;    // its update came by fetch: the agents have not seen its frames
  std::optional<FrameKey> promoted_;        // round and set of the replay file written last (chunk 0)
  std::vector<FrameRecord> early_updates_;  // arrived before the agents knew of the round
  std::uint64_t inner_steps_ = 0;           // of the round in progress, from the agents
  // For the site's report to whoever opens the next round.
  struct RoundTimes {
    std::optional<TimePoint> finished;  // the last round's
    std::optional<TimePoint> ready;
    std::optional<TimePoint> opened;
    std::optional<TimePoint> encoded;  // all own frames of the round are here
  };
  RoundTimes times_;
  sync::SiteReport measured_;                                // of the last round
  std::map<std::uint32_t, std::uint64_t> update_bytes_;      // frames of the update in progress, by counted set
  sync::RatePlan plan_;                                      // of the last round opened
  std::map<SiteId, std::uint64_t> sent_before_;              // on each link when that round opened
  std::map<SiteId, std::uint64_t> sent_in_round_;            // on each link in the last finished round
  std::set<std::pair<SiteId, SiteId>> detours_used_;         // in the round in progress: to whom, over whom
  std::map<SiteId, std::vector<sync::LinkReport>> reports_;  // what the other sites said of their links
  std::map<SiteId, std::deque<FrameRecord>>
      waiting_frames_;  // by the link they go on: its queue was full; shared bytes, bounded by the round's frames
  std::string last_announcement_;
  std::map<SiteId, WallTime> last_seen_;  // peers whose link was up
  bool is_store_behind_ = false;          // it speaks of epochs long past: said once
  bool is_solo_ = false;                  // as last announced
  bool is_store_stuck_ = false;           // here: its journal cannot be written
  WallTime started_at_;
};

}  // namespace sluice::gateway
