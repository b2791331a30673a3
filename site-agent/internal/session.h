#pragma once

// Session: the agent's side of the conversation with the gateway and its effects on the shard state. It is told each event in order
// (handle) by whoever owns it at the moment (inbox.h) and never waits. Commits are final: they are applied to the shard as soon as they
// are known, whoever owns the session; the caller's tensors follow at the next boundary, when all ranks of the site stand at the same
// round (tensors_stale()). Not thread-safe.

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "site-agent/internal/agent_status.h"
#include "site-agent/internal/early_writer.h"
#include "site-agent/internal/gateway_event.h"
#include "site-agent/internal/gateway_link.h"
#include "site-agent/internal/shard_state.h"

namespace sluice::site_agent {

class Session {
 public:
  // REQUIRES: link and status outlive the session.
  Session(ShardState state, GatewayLink& link, AgentStatus& status);

  void handle(GatewayEvent&& event);
  // Called for a group that all ranks may form now.
  void on_group_formed(std::function<void(std::uint64_t generation)> callback) { group_formed_ = std::move(callback); }

  // ---- what the boundary logic needs; only while it owns the session ----
  [[nodiscard]] ShardState& state() { return state_; }
  [[nodiscard]] std::uint64_t connection() const { return connection_; }
  [[nodiscard]] bool is_connected() const { return connection_ != 0; }
  // What the gateway last said of the run; kept while it is away.
  [[nodiscard]] const std::optional<Welcome>& welcome() const { return welcome_; }
  [[nodiscard]] bool is_solo_announced() const { return is_connected() && is_solo_announced_; }
  [[nodiscard]] bool is_catching_up() const { return catch_up_.has_value(); }
  [[nodiscard]] bool is_group_complete() const { return is_group_complete_; }
  [[nodiscard]] const std::string& lost_reason() const { return lost_reason_; }

  // The open round that this rank should contribute to, until it has; and the last one opened that is undecided.
  [[nodiscard]] const std::optional<RoundOpened>& opened() const { return opened_; }
  [[nodiscard]] bool wants_contribution() const { return opened_ && opened_->is_member && contributed_round_ != opened_->round; }
  void note_contribution() { contributed_round_ = opened_->round; }
  void withhold_contribution();

  [[nodiscard]] std::uint64_t skips() const { return skips_; }
  [[nodiscard]] const std::string& skip_reason() const { return skip_reason_; }
  [[nodiscard]] const RoundCommitted& last_commit() const { return last_commit_; }

  // The shard has moved on and the tensors have not.
  [[nodiscard]] bool tensors_stale() const { return tensors_stale_; }
  void set_tensors_stale(bool is_stale) { tensors_stale_ = is_stale; }
  // While set, updates go to the tensors as soon as they are worked out, and the tensors do not become stale (one rank only).
  void set_writer(EarlyWriter* writer) { writer_ = writer; }

  // Tells the link what the next hello says.
  void publish_state();

 private:
  void on(LinkUp&& event);
  void on(LinkDown&& event);
  void on(FrameReceived&& event);
  void on(QueueDrained&& event);
  void on(GroupFormed&& event);
  void on(GroupBroken&& event);
  void on(RoundOpened&& event);
  void on(RoundCommitted&& event);
  void on(RoundSkipped&& event);
  void on(CatchUp&& event);
  void on(StateRequest&& event);
  void on(Announcement&& event);

  Status take_frame(const FrameReceived& event);
  Status take_update(const wire::FrameEnvelope& envelope, const compression::FrameView& frame, bool is_replay);
  Status take_state(const wire::FrameEnvelope& envelope, const compression::FrameView& frame);
  void decide_contribution(std::uint64_t round, bool was_counted);
  void after_change();
  void report_applied();
  [[nodiscard]] bool is_caught_up() const;
  void serve_state();
  void start_over(const Error& error);

  struct CatchingUp {
    CatchUp request;
    bool needs_all = false;           // every chunk was at the target round already: only its bytes differ
    std::vector<std::uint8_t> taken;  // chunks whose state has come
    std::size_t taken_count = 0;
  };

  ShardState state_;
  GatewayLink& link_;
  AgentStatus& status_;
  std::function<void(std::uint64_t)> group_formed_;
  EarlyWriter* writer_ = nullptr;

  std::uint64_t connection_ = 0;
  std::optional<Welcome> welcome_;
  std::string lost_reason_ = "not connected yet";
  bool is_solo_announced_ = false;
  bool is_group_complete_ = false;
  std::optional<RoundOpened> opened_;
  std::uint64_t contributed_round_ = 0;
  RoundCommitted last_commit_;
  std::uint64_t skips_ = 0;
  std::string skip_reason_;
  std::optional<CatchingUp> catch_up_;
  std::deque<std::uint32_t> requested_;  // state chunks to serve
  bool tensors_stale_ = false;
};

}  // namespace sluice::site_agent
