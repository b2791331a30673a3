#pragma once

// CatchUp: brings what this site missed. Two jobs, one at a time each:
//   * fetch: the committed update of one round from a peer's replay files, into the spool (the machine asked with FetchUpdate, or a replay
//   needs it);
//   * bring the site's agents to the last committed round: by replaying updates when the spool or a peer has them all, otherwise by taking
//   the
//     state chunk by chunk from a peer's agents and replaying what was committed meanwhile.
// Also serves the same to peers. Not thread-safe; owned by the gateway's loop; time is passed in; sends through hooks.
//
// Failure: a peer that says no, goes down or makes no progress for kFetchSilenceMax is left and the next live one asked; when none is left,
// the job starts over after kFetchRetryDelay, for as long as the gateway runs. What has arrived is kept: a state transfer resumes at the
// chunk.

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "gateway/agent_group.h"
#include "gateway/frame_record.h"
#include "gateway/frame_spool.h"
#include "proto/agent.pb.h"
#include "proto/peer.pb.h"
#include "sync/round_record.h"

namespace sluice::gateway {

inline constexpr std::chrono::seconds kFetchSilenceMax{10};
inline constexpr std::chrono::seconds kFetchRetryDelay{1};
inline constexpr std::uint32_t kStateWindowChunks = 16;  // chunks asked for at once: 32 MiB of parameters and momentum in flight
inline constexpr std::uint64_t kReplayBatchRounds = 8;   // rounds handed to the agents before they must have applied them

struct CatchUpHooks {
  std::function<void(SiteId, const wire::PeerMessage&)> send_peer;
  std::function<void(SiteId, FrameRecord)> send_peer_frame;
  std::function<void(const wire::AgentMessage&)> send_agents;  // to every rank
  std::function<void(ChunkId, FrameRecord)> send_agent_frame;  // to the rank whose shard holds the chunk
  std::function<std::vector<SiteId>()> live_peers;             // best first
  std::function<std::optional<sync::RoundRecord>(RoundId)> commit_record;
  std::function<void(const sync::RoundRecord&)> keep_commit_record;                       // learnt from a peer
  std::function<void(const sync::RoundRecord&, ChunkId, const Digest&)> on_update_chunk;  // a fetched chunk is in the spool
  std::function<void(std::string)> say;                                                   // for log and status page
};

class CatchUp {
 public:
  // `has_momentum`: the outer rule keeps momentum, so a chunk's state is two frames.
  CatchUp(std::uint16_t sites, bool has_momentum, FrameSpool& spool, const AgentGroup& agents, CatchUpHooks hooks)
      : sites_(sites), has_momentum_(has_momentum), spool_(spool), agents_(agents), hooks_(std::move(hooks)) {}

  // ---- this site is behind ----
  // The agents are to hold the state of `committed`. `take_state`: their state differs or is fresh, replay would not help.
  // `from`: sites known to hold it, best first; empty: unknown.
  void need_agents(RoundId committed, bool take_state, std::vector<SiteId> from, const std::string& reason, TimePoint now);
  // The agents reported their state, or the group changed.
  void on_agents_changed(RoundId committed, TimePoint now);
  // Fetches one committed update; the chunks arrive through on_update_chunk.
  void need_update(const sync::RoundRecord& record, std::vector<SiteId> from, TimePoint now);

  // ---- from peers; errors are for the log, the peer is not trusted ----
  Status on_frame(SiteId from, const FrameRecord& frame, TimePoint now);
  Status on_fetch_round_reply(SiteId from, const wire::FetchRoundReply& reply, TimePoint now);
  Status on_fetch_state_reply(SiteId from, const wire::FetchStateReply& reply, TimePoint now);
  void on_peer_down(SiteId peer, TimePoint now);

  // ---- serving peers ----
  void serve_round(SiteId to, RoundId round);
  void serve_state(SiteId to, const wire::FetchState& request, bool is_in_sync);
  // A state frame of this site's own agents, on its way to the peers that asked for the chunk.
  void on_agent_state_frame(const FrameRecord& frame);

  void on_time(RoundId committed, TimePoint now);
  [[nodiscard]] std::optional<TimePoint> next_deadline() const;
  // True while the agents are being brought up to date: live commits are not passed on to them then.
  [[nodiscard]] bool is_bringing_agents() const { return is_bringing_; }

 private:
  struct Fetch {
    RoundId round;
    std::optional<SiteSet> counted;  // known from the record
    std::uint32_t chunks = 0;
    std::set<ChunkId> missing;
    std::deque<SiteId> left;  // peers still to be asked
    std::optional<SiteId> asked;
    TimePoint progress_at{};
    std::optional<TimePoint> retry_at;
  };
  struct StateTransfer {
    std::map<ChunkId, std::uint32_t> roles_missing;  // bit 0 parameters, bit 1 momentum
    std::set<ChunkId> requested;
    std::deque<SiteId> left;
    std::optional<SiteId> asked;
    RoundId round_min;  // lowest round among the chunks that came
    TimePoint progress_at{};
    std::optional<TimePoint> retry_at;
  };

  void advance(RoundId committed, TimePoint now);
  bool replay_batch(RoundId from, RoundId committed, TimePoint now);
  void replay_round(const sync::RoundRecord& record);
  void ask_next_for_round(TimePoint now);
  void begin_state_transfer(TimePoint now);
  void ask_next_for_state(TimePoint now);
  std::vector<SiteId> state_sources() const;
  void request_state_window(TimePoint now);
  Status finish_fetch(TimePoint now);
  Status take_update_frame(SiteId from, const FrameRecord& frame, TimePoint now);
  Status take_state_frame(SiteId from, const FrameRecord& frame, TimePoint now);

  std::uint16_t sites_;
  bool has_momentum_;
  FrameSpool& spool_;
  const AgentGroup& agents_;
  CatchUpHooks hooks_;

  bool is_bringing_ = false;
  bool take_state_ = false;
  std::vector<SiteId> holders_;  // sites said to hold the state; empty: unknown
  RoundId batch_end_;            // the agents have been sent updates up to here and must report this round
  std::optional<Fetch> fetch_;
  std::optional<StateTransfer> state_;
  std::map<ChunkId, std::set<SiteId>> waiting_for_state_;  // peers, by chunk
  std::uint64_t next_request_id_ = 1;
};

}  // namespace sluice::gateway
