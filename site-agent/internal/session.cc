#include "site-agent/internal/session.h"

#include "base/log.h"
#include "compression/frame.h"
#include "site-agent/limits.h"

namespace sluice::site_agent {

Session::Session(ShardState state, GatewayLink& link, AgentStatus& status) : state_(std::move(state)), link_(link), status_(status) {
  publish_state();
}

void Session::handle(GatewayEvent&& event) {
  std::visit([this](auto&& what) { on(std::forward<decltype(what)>(what)); }, std::move(event));
}

void Session::publish_state() {
  link_.set_state(state_.round_min(), state_.digests());
  status_.update([&](AgentStatistics& statistics) { statistics.round = state_.round_min(); });
}

// ---- connection and group ----

void Session::on(LinkUp&& event) {
  connection_ = event.connection;
  welcome_ = std::move(event.welcome);
  is_solo_announced_ = false;
  is_group_complete_ = false;
  opened_.reset();
  catch_up_.reset();
  requested_.clear();
  status_.update([&](AgentStatistics& statistics) {
    statistics.is_connected = true;
    statistics.inner_steps = welcome_->inner_steps;
    statistics.reconnects = connection_ - 1;
  });
  // A round may have been applied between the hello and now.
  if (event.hello_round != state_.round_min()) report_applied();
}

void Session::on(LinkDown&& event) {
  connection_ = 0;
  lost_reason_ = std::move(event.reason);
  is_group_complete_ = false;
  opened_.reset();
  catch_up_.reset();
  requested_.clear();
  status_.update([](AgentStatistics& statistics) { statistics.is_connected = false; });
}

void Session::on(GroupFormed&& event) {
  is_group_complete_ = true;
  if (group_formed_) group_formed_(event.generation);
}

void Session::on(GroupBroken&& event) {
  is_group_complete_ = false;
  log_info("agent", "the site's group {} is broken: {}", event.generation, event.reason);
}

void Session::on(Announcement&& event) {
  is_solo_announced_ = event.is_solo;
  if (!event.text.empty()) status_.announce(event.text);
}

// ---- rounds ----

void Session::on(RoundOpened&& event) {
  if (event.round != state_.round_min() + 1 || state_.round_min() != state_.round_max()) return;  // a catch-up comes first
  const bool is_same = opened_ && opened_->epoch == event.epoch && opened_->round == event.round;
  if (contributed_round_ != 0 && !is_same) withhold_contribution();
  opened_ = std::move(event);
}

void Session::withhold_contribution() {
  state_.undo();
  contributed_round_ = 0;
}

// The residual follows the decision about the contribution that it belongs to; any other contribution is void.
void Session::decide_contribution(std::uint64_t round, bool was_counted) {
  if (contributed_round_ == round && was_counted) {
    state_.settle();
  } else {
    state_.undo();
  }
  contributed_round_ = 0;
}

void Session::on(RoundCommitted&& event) {
  if (!welcome_) return;
  if (event.round <= state_.round_min()) {
    if (!catch_up_) report_applied();
    return;
  }
  const bool is_gap = state_.round_min() + 1 < event.round && !(catch_up_ && catch_up_->request.with_state);
  if (is_gap || !state_.is_staged(event.round, event.counted, event.scale)) {
    start_over(Error{
        ErrorCode::kAgentProtocol, "apply round",
        fmt::format("round {} is committed, but its update is not complete here (state of round {})", event.round, state_.round_min())});
    return;
  }
  state_.commit(event.round, event.scale, welcome_->outer, [this](ChunkId chunk, std::span<const float> values, bool was_prepared) {
    if (writer_ != nullptr) writer_->commit(chunk, values, was_prepared);
  });
  if (writer_ == nullptr) tensors_stale_ = true;
  decide_contribution(event.round, event.was_counted);
  if (opened_ && opened_->round <= event.round) opened_.reset();
  status_.update([&](AgentStatistics& statistics) { ++(event.was_counted ? statistics.rounds_committed : statistics.rounds_left_out); });
  last_commit_ = std::move(event);
  after_change();
}

void Session::on(RoundSkipped&& event) {
  if (event.round <= state_.round_min()) return;
  withhold_contribution();
  opened_.reset();
  ++skips_;
  skip_reason_ = std::move(event.reason);
  status_.update([](AgentStatistics& statistics) { ++statistics.rounds_skipped; });
}

// ---- frames ----

void Session::on(FrameReceived&& event) {
  const TimePoint begin = Clock::now();
  const Status status = take_frame(event);
  status_.update([&](AgentStatistics& statistics) { statistics.decode_time += Clock::now() - begin; });
  if (!status) start_over(status.error());
}

Status Session::take_frame(const FrameReceived& event) {
  const wire::FrameEnvelope& envelope = event.envelope;
  if (!state_.contains(ChunkId(envelope.chunk))) {
    return fail(ErrorCode::kAgentProtocol, "take frame", fmt::format("chunk {} is not of this rank's shard", envelope.chunk));
  }
  SLUICE_TRY(const compression::FrameView frame, compression::parse_frame(event.frame()));
  switch (static_cast<wire::FrameRole>(envelope.role)) {
    case wire::FrameRole::kUpdate:
      return take_update(envelope, frame, false);
    case wire::FrameRole::kReplay:
      return take_update(envelope, frame, true);
    case wire::FrameRole::kStateParameters:
    case wire::FrameRole::kStateMomentum:
      return take_state(envelope, frame);
    case wire::FrameRole::kContribution:
    case wire::FrameRole::kProbe:
      break;
  }
  return fail(ErrorCode::kAgentProtocol, "take frame", "the gateway sent what only sites send");
}

Status Session::take_update(const wire::FrameEnvelope& envelope, const compression::FrameView& frame, bool is_replay) {
  const ChunkId chunk(envelope.chunk);
  if (envelope.round != state_.chunk_round(chunk) + 1) return {};  // of a round that this chunk has had, or cannot use yet
  const SiteSet counted{envelope.counted};
  SLUICE_CHECK_OK(state_.stage(chunk, envelope.epoch, envelope.round, counted, is_replay, frame));
  // The usual case, all members counted, is worked out while the other chunks are still on their way.
  const bool is_expected = !is_replay && opened_ && opened_->round == envelope.round && opened_->epoch == envelope.epoch &&
                           opened_->members == counted && opened_->scale_if_all > 0.0F;
  if (!is_expected || !welcome_ || !state_.prepare(chunk, opened_->scale_if_all, welcome_->outer)) return {};
  if (writer_ != nullptr) writer_->write(chunk, state_.prepared(chunk));
  return {};
}

Status Session::take_state(const wire::FrameEnvelope& envelope, const compression::FrameView& frame) {
  if (!catch_up_ || !catch_up_->request.with_state || !welcome_) return {};  // of a catch-up that was given up
  const ChunkId chunk(envelope.chunk);
  const bool is_momentum = static_cast<wire::FrameRole>(envelope.role) == wire::FrameRole::kStateMomentum;
  SLUICE_TRY(const bool is_complete,
             state_.install(chunk, envelope.round, is_momentum ? ShardState::Part::kMomentum : ShardState::Part::kParameters,
                            sync::has_momentum(welcome_->outer.rule), frame));
  if (!is_complete) return {};
  tensors_stale_ = true;
  std::uint8_t& taken = catch_up_->taken[envelope.chunk - state_.chunks().begin];
  if (taken == 0) ++catch_up_->taken_count;
  taken = 1;
  after_change();
  return {};
}

// ---- catching up ----

void Session::on(CatchUp&& event) {
  withhold_contribution();
  opened_.reset();
  log_info("agent", "catching up from round {} to {}{}: {}", state_.round_min(), event.to_round, event.with_state ? " by state" : "",
           event.reason);
  CatchingUp next;
  next.needs_all = event.with_state && state_.round_min() == event.to_round && state_.round_max() == event.to_round;
  next.taken.resize(state_.chunks().count());
  next.request = std::move(event);
  catch_up_ = std::move(next);
  if (state_.chunks().count() == 0 && catch_up_->request.with_state) state_.note_round(catch_up_->request.to_round);
  after_change();
}

bool Session::is_caught_up() const {
  if (state_.round_min() != state_.round_max() || state_.round_min() < catch_up_->request.to_round) return false;
  return !catch_up_->needs_all || catch_up_->taken_count == catch_up_->taken.size();
}

void Session::after_change() {
  publish_state();
  if (catch_up_) {
    if (!is_caught_up()) return;
    catch_up_.reset();
    status_.update([](AgentStatistics& statistics) { ++statistics.catch_ups; });
    log_info("agent", "caught up: the state is that of round {}", state_.round_min());
  }
  report_applied();
}

void Session::report_applied() {
  if (connection_ == 0 || state_.round_min() != state_.round_max()) return;
  link_.send(connection_, make_round_applied(state_.round_min(), state_.digests()));
}

// The conversation does not fit the state: connect again, so that the hello says what this rank holds and the gateway starts from there.
void Session::start_over(const Error& error) {
  status_.report(error);
  link_.drop(connection_, error.detail);
}

// ---- serving state to other sites ----

void Session::on(StateRequest&& event) {
  for (const std::uint32_t chunk : event.chunks) {
    if (state_.contains(ChunkId(chunk)) && requested_.size() < kStateRequestsMax) requested_.push_back(chunk);
  }
  serve_state();
}

void Session::on(QueueDrained&& /*event*/) { serve_state(); }

void Session::serve_state() {
  ByteVector frame;
  while (!requested_.empty() && connection_ != 0) {
    if (link_.outbound_bytes() > kStateServeBytesMax) {
      link_.request_drained_event();
      return;
    }
    const ChunkId chunk(requested_.front());
    requested_.pop_front();
    for (const auto part : {ShardState::Part::kParameters, ShardState::Part::kMomentum}) {
      const bool is_momentum = part == ShardState::Part::kMomentum;
      if (is_momentum && !sync::has_momentum(welcome_->outer.rule)) continue;
      const Status status = state_.export_part(chunk, part, frame);
      if (!status) {
        status_.report(status.error());
        continue;
      }
      wire::FrameEnvelope envelope;
      envelope.round = state_.chunk_round(chunk);
      envelope.chunk = chunk.value;
      envelope.role = static_cast<std::uint16_t>(is_momentum ? wire::FrameRole::kStateMomentum : wire::FrameRole::kStateParameters);
      link_.send(connection_, make_frame_record(envelope, frame));
    }
  }
}

}  // namespace sluice::site_agent
