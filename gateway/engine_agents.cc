// Engine, the side of this site's training processes.

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "compression/frame.h"
#include "gateway/engine.h"
#include "gateway/wire_convert.h"
#include "sync/outer_optimizer.h"

namespace sluice::gateway {

void Engine::on_agent_control(AgentSessionId session, const wire::AgentMessage& message) {
  const Status handled = handle_agent_control(session, message);
  if (handled) return;
  parts_.metrics.count_reject(RejectReason::kAgent);
  log_warning("agent", "session {} refused: {}", session, handled.error().to_string());
  send_away(session, handled.error());
  on_agent_gone(session, handled.error().detail);
}

// Says why and closes; the group still has to be told.
void Engine::send_away(AgentSessionId session, const Error& why) {
  wire::AgentMessage rejection;
  rejection.mutable_reject()->set_error_code(static_cast<std::uint32_t>(why.code));
  rejection.mutable_reject()->set_detail(why.to_string());
  agents_->send_control(session, rejection);
  agents_->close(session, why.detail);
}

std::optional<Engine::Model> Engine::run_model() const {
  const sync::RoundRecord& record = machine_->record();
  const bool has_round = record.committed_round.value > 0 || record.phase == sync::Phase::kOpen || record.phase == sync::Phase::kClosed;
  if (!has_round || record.manifest_hash == 0) return std::nullopt;
  return Model{record.manifest_hash, record.chunks};
}

void Engine::refuse_other_model(const Model& expected, const std::string& whose) {
  if (group_.members().empty() || Model{group_.manifest_hash(), group_.chunks()} == expected) return;
  const Error why = other_model({group_.manifest_hash(), group_.chunks()}, expected, whose);
  log_error("agent", "{}", why.to_string());
  history_.announce(why.to_string(), false, std::chrono::system_clock::now());
  parts_.metrics.count_reject(RejectReason::kAgent);
  std::vector<AgentSessionId> sessions;
  for (const auto& [rank, member] : group_.members()) sessions.push_back(member.session);
  for (const AgentSessionId session : sessions) {
    send_away(session, why);
    on_agent_gone(session, why.detail);
  }
}

Error Engine::other_model(const Model& own, const Model& expected, const std::string& whose) {
  return Error{
      ErrorCode::kManifestMismatch, "admit agent",
      fmt::format("this site's model has manifest {:016x} and {} chunks, that of {} has {:016x} and {}: names, order, shapes and types of "
                  "the tensors must be the same at all sites; a new model is a new run (run.name and state.directory)",
                  own.manifest_hash, own.chunks, whose, expected.manifest_hash, expected.chunks)};
}

Status Engine::handle_agent_control(AgentSessionId session, const wire::AgentMessage& message) {
  switch (message.kind_case()) {
    case wire::AgentMessage::kHello:
      return admit_agent(session, message.hello());
    case wire::AgentMessage::kReady:
      return take_ready(session, message.ready());
    case wire::AgentMessage::kRoundApplied:
      return take_applied(session, message.round_applied());
    case wire::AgentMessage::kKeySet: {
      SLUICE_TRY(const auto answers, group_.set_key(message.key_set().key(), message.key_set().value()));
      for (const AgentGroup::KeyAnswer& answer : answers) {
        wire::AgentMessage reply;
        reply.mutable_key_value()->set_request_id(answer.request_id);
        reply.mutable_key_value()->set_found(true);
        reply.mutable_key_value()->set_value(answer.value);
        agents_->send_control(answer.session, reply);
      }
      return {};
    }
    case wire::AgentMessage::kKeyWait: {
      const auto value = group_.wait_key(session, message.key_wait().request_id(), message.key_wait().key());
      if (!value) return {};  // the agent has its own deadline
      wire::AgentMessage reply;
      reply.mutable_key_value()->set_request_id(message.key_wait().request_id());
      reply.mutable_key_value()->set_found(true);
      reply.mutable_key_value()->set_value(*value);
      agents_->send_control(session, reply);
      return {};
    }
    case wire::AgentMessage::kSiteProbe:
      return take_site_probe(session, message.site_probe());
    case wire::AgentMessage::kGoodbye:
      on_agent_gone(session, message.goodbye().reason());
      agents_->close(session, "the agent said goodbye");
      return {};
    default:
      return fail(ErrorCode::kWireBadMessage, "read message from agent",
                  fmt::format("kind {} is not expected here", static_cast<int>(message.kind_case())));
  }
}

wire::AgentMessage Engine::welcome() const {
  const GatewayConfig& config = parts_.config;
  wire::AgentMessage message;
  wire::AgentWelcome* welcome = message.mutable_welcome();
  welcome->set_protocol(wire::kProtocolVersion);
  welcome->set_run(config.run.name);
  welcome->set_site(config.site);
  welcome->set_inner_steps(config.training.inner_steps);
  const auto rule = config.training.outer.rule == OuterRule::kNesterov ? sync::OuterRule::kNesterov : sync::OuterRule::kAverage;
  welcome->set_outer_rule(static_cast<std::uint32_t>(rule));
  welcome->set_outer_learning_rate(static_cast<float>(config.training.outer.learning_rate));
  welcome->set_outer_momentum(static_cast<float>(config.training.outer.momentum));
  welcome->set_solo_steps_max(config.training.solo.steps_max);
  welcome->set_solo_pause_us(static_cast<std::uint64_t>(std::chrono::microseconds(config.training.solo.pause_max).count()));
  welcome->set_round(machine_->record().committed_round.value);
  welcome->set_residual_share(static_cast<float>(residual_share(config)));
  // A round takes at most: the wait for the other sites, its deadline, and two attempts to commit.
  const auto longest = config.round.open_grace + config.round.deadline + 2 * config.round.commit_deadline;
  welcome->set_exchange_timeout_us(static_cast<std::uint64_t>(std::chrono::microseconds(longest).count()));
  welcome->set_initial_weight(1.0F / static_cast<float>(sites_));
  const bool is_probing = config.topology.probe && group_.ranks() > 1;
  welcome->set_probe_window_us(is_probing ? static_cast<std::uint64_t>(std::chrono::microseconds(config.topology.probe_window).count())
                                          : 0);
  return message;
}

Status Engine::admit_agent(AgentSessionId session, const wire::AgentHello& hello) {
  if (hello.protocol_min() > wire::kProtocolVersion || hello.protocol_max() < wire::kProtocolVersion) {
    return fail(ErrorCode::kAgentRefused, "admit agent",
                fmt::format("the agent speaks protocol {} to {}, this gateway {}", hello.protocol_min(), hello.protocol_max(),
                            wire::kProtocolVersion));
  }
  const auto model = run_model();
  if (model && *model != Model{hello.manifest_hash(), hello.chunks()}) {
    return fail(other_model({hello.manifest_hash(), hello.chunks()}, *model, "the run"));
  }
  SLUICE_TRY(const auto replaced, group_.join(session, hello));
  if (replaced) {
    const Error displaced{ErrorCode::kLinkReplaced, "serve agent",
                          fmt::format("another process has connected as rank {} of this site: this one goes on alone", hello.rank())};
    send_away(*replaced, displaced);
    log_warning("agent", "rank {} is taken by a newer process; the older one is sent away", hello.rank());
    const std::string reason = fmt::format("rank {} is taken by a newer process", hello.rank());
    break_group(reason, session);
    feed(sync::LocalGone{reason});
  }
  agents_->send_control(session, welcome());
  log_info("agent", "rank {} of {} is here: {} parameters in {} chunks, state of round {}", hello.rank(), hello.ranks(),
           group_.parameters(), group_.chunks(), hello.round());
  parts_.metrics.set_agents_connected(static_cast<std::uint32_t>(group_.members().size()));
  if (group_.is_complete()) on_group_complete();
  mark_changed();
  return {};
}

void Engine::on_group_complete() {
  wire::AgentMessage message;
  message.mutable_group_formed()->set_generation(group_.begin_generation());
  send_agents(message);
  const RoundId committed = machine_->record().committed_round;
  const auto held = group_.state();
  if (held) feed(sync::LocalState{held->round, held->digest});
  // Ranks with states of different rounds (a process died between two outer steps) have no common state to report.
  if (!held) catch_up_->need_agents(committed, true, {}, "the ranks of this site hold different rounds", Clock::now());
  catch_up_->on_agents_changed(committed, Clock::now());
}

Status Engine::take_ready(AgentSessionId session, const wire::AgentReady& ready) {
  SLUICE_TRY(auto merged, group_.set_ready(session, ready));
  parts_.metrics.add_tokens(ready.tokens());
  if (std::isfinite(ready.loss())) parts_.metrics.set_loss(ready.loss());
  if (!merged) return {};
  const auto held = group_.state();
  if (!held) return {};
  inner_steps_ = merged->inner_steps;
  history_.ready(Clock::now());
  note_ready(Clock::now());
  sync::Proposal proposal;
  proposal.round = merged->round;
  proposal.site = self_;
  proposal.tokens = merged->tokens;
  proposal.sketch = std::make_shared<const compression::Sketch>(std::move(merged->sketch));
  proposal.sketch_weight = merged->sketch_weight;
  proposal.manifest_hash = group_.manifest_hash();
  proposal.chunks = group_.chunks();
  proposal.values = group_.parameters();
  proposal.base_digest = held->digest;
  proposal.report = site_report(Clock::now());
  feed(sync::LocalReady{std::move(proposal)});
  return {};
}

Status Engine::take_site_probe(AgentSessionId session, const wire::SiteProbe& probe) {
  const AgentRank* member = group_.find(session);
  if (member == nullptr) return fail(ErrorCode::kAgentRefused, "take site probe", "before hello");
  SLUICE_CHECK_OK(parts_.topology.take(member->rank, probe));
  mark_changed();
  return {};
}

Status Engine::take_applied(AgentSessionId session, const wire::RoundApplied& applied) {
  SLUICE_CHECK_OK(group_.set_applied(session, applied));
  if (const auto reported = group_.reported_state()) {
    const auto different = history_.report_state(reported->round, self_, self_, reported->digest);
    if (!different.empty()) {
      log_error("round", "after round {} this site's state differs from that of {}", reported->round, fmt::join(different, ", "));
    }
  }
  if (const auto held = group_.state()) feed(sync::LocalState{held->round, held->digest});
  catch_up_->on_agents_changed(machine_->record().committed_round, Clock::now());
  mark_changed();
  return {};
}

void Engine::on_agent_frame(AgentSessionId session, FrameRecord frame) {
  const auto role = static_cast<wire::FrameRole>(frame.envelope.role);
  if (role == wire::FrameRole::kStateParameters || role == wire::FrameRole::kStateMomentum) {
    frame.envelope.site = self_.value;
    frame.envelope.to = 0;
    catch_up_->on_agent_state_frame(frame);
    return;
  }
  const Status taken = take_own_contribution(session, frame);
  if (taken) return;
  parts_.metrics.count_reject(reject_reason_of(taken.error().code));
  log_warning("agent", "frame of chunk {} dropped: {}", frame.envelope.chunk, taken.error().to_string());
}

Status Engine::take_own_contribution(AgentSessionId session, const FrameRecord& frame) {
  if (!contribution_ || !contribution_->is_member || contribution_->round.value != frame.envelope.round ||
      contribution_->epoch.value != frame.envelope.epoch) {
    return fail(ErrorCode::kFrameUnexpected, "take contribution", fmt::format("round {} is not open for this site", frame.envelope.round));
  }
  SLUICE_TRY(const auto view, compression::parse_frame(*frame.frame));
  const ChunkId chunk(frame.envelope.chunk);
  if (view.header.chunk != chunk || group_.session_of(chunk) != session) {
    return fail(ErrorCode::kFrameUnexpected, "take contribution", fmt::format("chunk {} is not of that rank's shard", chunk));
  }
  SLUICE_CHECK_OK(parts_.spool.put(FrameKey{contribution_->round, wire::FrameRole::kContribution, self_, SiteSet(), chunk}, frame.frame));
  own_chunks_.insert(chunk);
  note_own_frame(Clock::now());
  history_.contributed(frame.frame->size(), Clock::now());
  const sync::RoundRecord& record = machine_->record();
  const bool is_current = record.round == contribution_->round && record.epoch == contribution_->epoch && !record.owners.empty();
  if (is_current) sync::owners_of(record, chunk).for_each([&](SiteId owner) { send_contribution(owner, chunk); });
  return {};
}

void Engine::on_agent_gone(AgentSessionId session, const std::string& reason) {
  const auto rank = group_.leave(session);
  if (!rank) return;
  log_warning("agent", "rank {} is gone: {}", *rank, reason);
  parts_.metrics.set_agents_connected(static_cast<std::uint32_t>(group_.members().size()));
  const std::string what = fmt::format("rank {} is gone: {}", *rank, reason);
  break_group(what, {});
  catch_up_->on_agents_changed(machine_->record().committed_round, Clock::now());
  feed(sync::LocalGone{what});
}

void Engine::break_group(const std::string& reason, std::optional<AgentSessionId> newcomer) {
  wire::AgentMessage message;
  message.mutable_group_broken()->set_generation(group_.generation());
  message.mutable_group_broken()->set_reason(reason);
  for (const auto& [rank, member] : group_.members()) {
    if (member.session != newcomer) agents_->send_control(member.session, message);
  }
  group_.clear_ready();
  contribution_.reset();
}

void Engine::send_agents(const wire::AgentMessage& message) {
  for (const auto& [rank, member] : group_.members()) agents_->send_control(member.session, message);
}

void Engine::send_agent_frame(ChunkId chunk, FrameRecord frame) {
  if (const auto session = group_.session_of(chunk)) agents_->send_frame(*session, std::move(frame));
}

}  // namespace sluice::gateway
