// Engine, the side of the other sites: control messages to events, frames to the spool.

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "compression/frame.h"
#include "gateway/engine.h"
#include "gateway/wire_convert.h"

namespace sluice::gateway {
namespace {

// A peer may be this many epochs ahead of what this site has heard from the store; more is nonsense.
constexpr std::uint64_t kEpochsAheadMax = 16 * sync::kEpochsPerStart;
constexpr std::size_t kEarlyUpdatesMax = 4096;
// A peer may know this many committed rounds that this site has not heard of yet, after a long absence from the store.
constexpr std::uint64_t kRoundsAheadMax = 1'000'000;

}  // namespace

void Engine::on_peer_up(SiteId peer, bool) {
  parts_.metrics.set_link_up(peer, true);
  auto changes = routes_.set_direct(peer, true);
  if (changes.empty()) changes.push_back({peer, RouteEvent::kUp});  // another connection of a link that was up
  announce_links();
  apply_routes(changes, {});
}

void Engine::on_peer_down(SiteId peer, const std::string& reason) {
  parts_.metrics.set_link_up(peer, false);
  prober_->on_peer_down(peer);
  const auto changes = routes_.set_direct(peer, false);
  announce_links();
  apply_routes(changes, reason);
}

void Engine::on_peer_control(SiteId from, const wire::PeerMessage& message) {
  const Status handled = handle_peer_control(from, message);
  if (handled) return;
  parts_.metrics.count_reject(RejectReason::kProtocol);
  log_warning("link", "message from {} refused: {}", name(from), handled.error().to_string());
}

Status Engine::handle_peer_control(SiteId from, const wire::PeerMessage& message) {
  switch (message.kind_case()) {
    case wire::PeerMessage::kProposal: {
      SLUICE_TRY(auto proposal, read_proposal(message.proposal(), from, sites_));
      // Before the first round the site with the store says which model the run trains.
      if (from == site_id(parts_.config, parts_.config.coordination.site) && !run_model()) {
        refuse_other_model({proposal.manifest_hash, proposal.chunks}, name(from));
      }
      take_wan_report(proposal);
      feed(sync::ProposalReceived{std::move(proposal)});
      return {};
    }
    case wire::PeerMessage::kWithdraw:
      feed(sync::WithdrawReceived{from, EpochId(message.withdraw().epoch()), RoundId(message.withdraw().round())});
      return {};
    case wire::PeerMessage::kOwnerStatus: {
      const wire::OwnerStatus& status = message.owner_status();
      feed(sync::OwnerStatusReceived{from, EpochId(status.epoch()), RoundId(status.round()), status.attempt(),
                                     SiteSet{status.complete_sites()}.intersect(all_sites(parts_.config))});
      return {};
    }
    case wire::PeerMessage::kConfirm: {
      const wire::Confirm& confirm = message.confirm();
      SLUICE_TRY(const Digest digest, read_digest(confirm.update_digest(), "update_digest"));
      feed(sync::ConfirmReceived{from, EpochId(confirm.epoch()), RoundId(confirm.round()), confirm.attempt(),
                                 SiteSet{confirm.counted()}.intersect(all_sites(parts_.config)), digest});
      return {};
    }
    case wire::PeerMessage::kStoreCas:
    case wire::PeerMessage::kStoreReply:
    case wire::PeerMessage::kStoreEvent:
      return coordination_->on_message(from, message);
    case wire::PeerMessage::kFetchRound:
      catch_up_->serve_round(from, RoundId(message.fetch_round().round()));
      return {};
    case wire::PeerMessage::kFetchRoundReply:
      return catch_up_->on_fetch_round_reply(from, message.fetch_round_reply(), Clock::now());
    case wire::PeerMessage::kFetchState:
      catch_up_->serve_state(from, message.fetch_state(), !catch_up_->is_bringing_agents());
      return {};
    case wire::PeerMessage::kFetchStateReply:
      return catch_up_->on_fetch_state_reply(from, message.fetch_state_reply(), Clock::now());
    case wire::PeerMessage::kLinkState:
      apply_routes(routes_.set_reach(from, SiteSet{message.link_state().up()}.intersect(all_sites(parts_.config))),
                   fmt::format("{} has no link to it either", name(from)));
      return {};
    case wire::PeerMessage::kRelayed:
      return take_relayed(from, message);
    case wire::PeerMessage::kProbe:
      mark_changed();
      return prober_->on_message(from, message.probe(), Clock::now());
    case wire::PeerMessage::kStateReport: {
      SLUICE_TRY(const Digest digest, read_digest(message.state_report().state_digest(), "state_digest"));
      if (message.state_report().round() > machine_->record().committed_round.value + kRoundsAheadMax) {
        return fail(ErrorCode::kWireBadMessage, "read state report",
                    fmt::format("round {} (last committed here: {})", message.state_report().round(), machine_->record().committed_round));
      }
      const auto different = history_.report_state(RoundId(message.state_report().round()), from, self_, digest);
      if (!different.empty()) {
        log_error("round", "after round {} the state of {} differs from that of {}: it is taken again before the next round",
                  message.state_report().round(), name(from), fmt::join(different, ", "));
      }
      feed(sync::StateReportReceived{from, RoundId(message.state_report().round()), digest});
      return {};
    }
    default:
      return fail(ErrorCode::kWireBadMessage, "read message from peer",
                  fmt::format("kind {} is not expected here", static_cast<int>(message.kind_case())));
  }
}

Status Engine::check_envelope(const wire::FrameEnvelope& envelope) {
  const sync::RoundRecord& record = machine_->record();
  const EpochId epoch(envelope.epoch);
  const RoundId round(envelope.round);
  if (epoch < newest_epoch_ || epoch < record.epoch || epoch.value > record.epoch.value + kEpochsAheadMax) {
    return fail(ErrorCode::kFrameUnexpected, "take frame", fmt::format("epoch {} (here {})", epoch, record.epoch));
  }
  if (round <= record.committed_round || round.value > record.committed_round.value + 2) {
    return fail(ErrorCode::kFrameUnexpected, "take frame",
                fmt::format("round {} (last committed here: {})", round, record.committed_round));
  }
  newest_epoch_ = epoch;
  return {};
}

void Engine::on_peer_frame(SiteId by, FrameRecord frame) {
  const auto sorted = sort_frame(by, frame);
  if (!sorted) {
    parts_.metrics.count_reject(reject_reason_of(sorted.error().code));
    log_warning("link", "frame from {} refused: {}", name(by), sorted.error().to_string());
    return;
  }
  if (!*sorted) return;  // passed on
  const SiteId from = **sorted;
  Status taken;
  switch (static_cast<wire::FrameRole>(frame.envelope.role)) {
    case wire::FrameRole::kContribution:
      taken = take_contribution(from, frame);
      break;
    case wire::FrameRole::kUpdate:
      taken = take_update(from, frame);
      break;
    case wire::FrameRole::kProbe:
      if (!prober_->expects_frames(from)) taken = fail(ErrorCode::kFrameUnexpected, "take frame", "of a probe that was not agreed on");
      break;
    default:
      taken = catch_up_->on_frame(from, frame, Clock::now());
      break;
  }
  if (taken) return;
  parts_.metrics.count_reject(reject_reason_of(taken.error().code));
  // A frame of a round that has just ended is everyday business when a site is slow; everything else is worth a warning.
  if (taken.error().code == ErrorCode::kFrameUnexpected) {
    log_debug("link", "frame from {} dropped: {}", name(from), taken.error().to_string());
  } else {
    log_warning("link", "frame from {} refused: {}", name(from), taken.error().to_string());
  }
}

Status Engine::take_contribution(SiteId from, const FrameRecord& frame) {
  SLUICE_CHECK_OK(check_envelope(frame.envelope));
  if (frame.envelope.site != from.value) {
    return fail(ErrorCode::kPeerNotEntitled, "take contribution",
                fmt::format("site {} sent a frame of site {}", from, frame.envelope.site));
  }
  SLUICE_TRY(const auto view, compression::parse_frame(*frame.frame));
  const ChunkId chunk(frame.envelope.chunk);
  if (view.header.chunk != chunk || view.header.contributions != 1) {
    return fail(ErrorCode::kFrameUnexpected, "take contribution",
                fmt::format("the envelope says chunk {}, the frame {}", chunk, view.header.chunk));
  }
  const RoundId round(frame.envelope.round);
  SLUICE_CHECK_OK(parts_.spool.put(FrameKey{round, wire::FrameRole::kContribution, from, SiteSet(), chunk}, frame.frame));
  feed(sync::ContributionStored{EpochId(frame.envelope.epoch), round, from, chunk});
  return {};
}

Status Engine::take_update(SiteId from, const FrameRecord& frame) {
  SLUICE_CHECK_OK(check_envelope(frame.envelope));
  SLUICE_TRY(const auto view, compression::parse_frame(*frame.frame));
  const ChunkId chunk(frame.envelope.chunk);
  const SiteSet counted{frame.envelope.counted};
  if (view.header.chunk != chunk || !all_sites(parts_.config).contains_all(counted) || view.header.contributions != counted.size()) {
    return fail(ErrorCode::kFrameUnexpected, "take update", fmt::format("chunk {} for {:#x} does not fit its frame", chunk, counted.bits));
  }
  const sync::RoundRecord& record = machine_->record();
  const bool is_current = record.epoch.value == frame.envelope.epoch && record.round.value == frame.envelope.round;
  // In a direct round nobody has to send sums; who does may know already that the round goes on with owners.
  if (is_current && !record.owners.empty() && !sync::owners_of(record, chunk).contains(from)) {
    return fail(ErrorCode::kPeerNotEntitled, "take update", fmt::format("site {} does not own chunk {}", from, chunk));
  }
  const RoundId round(frame.envelope.round);
  SLUICE_CHECK_OK(
      keep_update(FrameKey{round, wire::FrameRole::kUpdate, SiteId(), counted, chunk}, frame.frame, EpochId(frame.envelope.epoch)));
  const bool are_agents_told = contribution_ && contribution_->round == round && contribution_->epoch.value == frame.envelope.epoch;
  if (are_agents_told) {
    send_agent_frame(chunk, frame);
  } else if (early_updates_.size() < kEarlyUpdatesMax) {
    early_updates_.push_back(frame);
  }
  feed(sync::UpdateStored{EpochId(frame.envelope.epoch), round, counted, chunk, xxh3_128(*frame.frame)});
  return {};
}

void Engine::send_peer_frame(SiteId to, FrameRecord frame) {
  const std::optional<SiteId> over = routes_.is_relayed(to) ? routes_.next_hop(to) : detour_of(to, frame.envelope);
  if (!over) return queue_peer_frame(to, std::move(frame));
  frame.envelope.site = self_.value;
  frame.envelope.to = static_cast<std::uint16_t>(to.value + 1);
  queue_peer_frame(*over, std::move(frame));
}

void Engine::queue_peer_frame(SiteId hop, FrameRecord frame) {
  auto& waiting = waiting_frames_[hop];
  if (waiting.empty() && links_->send_frame(hop, frame)) return;
  waiting.push_back(std::move(frame));
}

void Engine::on_drained(SiteId peer) {
  auto& waiting = waiting_frames_[peer];
  // Frames of rounds that are over would only delay the others.
  const RoundId committed = machine_->record().committed_round;
  std::erase_if(waiting, [&](const FrameRecord& frame) {
    const auto role = static_cast<wire::FrameRole>(frame.envelope.role);
    const bool is_live = role == wire::FrameRole::kContribution || role == wire::FrameRole::kUpdate;
    return is_live && frame.envelope.round <= committed.value;
  });
  while (!waiting.empty() && links_->send_frame(peer, waiting.front())) waiting.pop_front();
}

std::vector<SiteId> Engine::live_peers() const {
  std::vector<SiteId> peers;
  for (std::uint16_t site = 0; site < sites_; ++site) {
    if (SiteId(site) != self_ && routes_.is_reachable(SiteId(site))) peers.emplace_back(site);
  }
  return peers;
}

// Whoever refused has logged it.
void Engine::on_refused(std::string_view reason, const std::string&) {
  for (std::size_t index = 0; index < kRejectReasonCount; ++index) {
    const auto candidate = static_cast<RejectReason>(index);
    if (reject_reason_name(candidate) != reason) continue;
    parts_.metrics.count_reject(candidate);
    return;
  }
  parts_.metrics.count_reject(RejectReason::kOther);
}

}  // namespace sluice::gateway
