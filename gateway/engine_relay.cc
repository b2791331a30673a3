// Engine, the way over a third site: two sites whose own link is down reach each other through one that has links to both, and frames
// that the round's plan names spare a slow link that way. What travels is what would have travelled on the link; the site in the middle
// keeps nothing and looks at nothing but who it is for.

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "gateway/engine.h"

namespace sluice::gateway {
namespace {

// Frames that wait for one peer on behalf of others. Each belongs to a round in progress, which is at most the model's chunks twice.
constexpr std::size_t kPassedOnFramesMax = 8192;
// Of the rate of the first link, what is reported for a way over it. Small: whoever shares out the chunks then gives those that would
// travel such a way to sites that need none, above all the one in the middle. Summed there they cross each link once.
constexpr double kRelayedRateShare = 0.05;

bool is_of_round(const wire::FrameEnvelope& envelope) {
  const auto role = static_cast<wire::FrameRole>(envelope.role);
  return role == wire::FrameRole::kContribution || role == wire::FrameRole::kUpdate;
}

// What concerns a link itself stays on it.
bool may_travel_over_others(wire::PeerMessage::KindCase kind) {
  switch (kind) {
    case wire::PeerMessage::kProposal:
    case wire::PeerMessage::kWithdraw:
    case wire::PeerMessage::kOwnerStatus:
    case wire::PeerMessage::kConfirm:
    case wire::PeerMessage::kStoreCas:
    case wire::PeerMessage::kStoreReply:
    case wire::PeerMessage::kStoreEvent:
    case wire::PeerMessage::kFetchRound:
    case wire::PeerMessage::kFetchRoundReply:
    case wire::PeerMessage::kFetchState:
    case wire::PeerMessage::kFetchStateReply:
    case wire::PeerMessage::kStateReport:
      return true;
    default:
      return false;
  }
}

}  // namespace

// ---- who is reached how

void Engine::apply_routes(const std::vector<RouteChange>& changes, const std::string& reason) {
  for (const RouteChange& change : changes) {
    const SiteId site = change.site;
    if (routes_.is_relayed(site)) {
      log_warning("link", "{} is reached over {}", name(site), name(*routes_.next_hop(site)));
    } else if (change.event == RouteEvent::kMoved) {
      log_info("link", "{} is reached by its own link again", name(site));
    }
    if (change.event == RouteEvent::kDown) {
      catch_up_->on_peer_down(site, Clock::now());
      feed(sync::PeerDown{site, reason});
      coordination_->on_peer_down(site, reason);
      continue;
    }
    if (change.event == RouteEvent::kMoved) {
      // What is still in the queue of the way before would come late, or twice.
      if (routes_.is_relayed(site)) links_->discard_frames(site, is_of_round);
      std::erase_if(waiting_frames_[site], [](const FrameRecord& frame) { return is_of_round(frame.envelope); });
      catch_up_->on_peer_down(site, Clock::now());
    }
    feed(sync::PeerUp{site});  // says the present state again, contributions included
    coordination_->on_peer_up(site);
    if (change.event == RouteEvent::kMoved) send_updates_again(site);
  }
  leave_lost_detours();
  if (!changes.empty()) mark_changed();
}

// The site over which this frame goes to spare the own link, by the plan of the round in progress.
std::optional<SiteId> Engine::detour_of(SiteId to, const wire::FrameEnvelope& envelope) {
  const sync::RoundRecord& record = machine_->record();
  if (!record.is_running() || envelope.round != record.round.value || envelope.epoch != record.epoch.value || !is_of_round(envelope)) {
    return std::nullopt;
  }
  const auto over = sync::detour_of(record.plan.detours, self_, to, ChunkId(envelope.chunk));
  if (!over || !routes_.leads_over(to, *over)) return std::nullopt;
  detours_used_.insert({to, *over});
  return over;
}

// What went over a site that has lost one of the two links goes once more, on the own link.
void Engine::leave_lost_detours() {
  const auto used = detours_used_;
  for (const auto& [to, over] : used) {
    if (routes_.leads_over(to, over)) continue;
    detours_used_.erase({to, over});
    const auto is_for = [site = to](const wire::FrameEnvelope& envelope) { return envelope.to == site.value + 1; };
    links_->discard_frames(over, is_for);
    std::erase_if(waiting_frames_[over],
                  [&](const FrameRecord& frame) { return frame.envelope.site == self_.value && is_for(frame.envelope); });
    if (!routes_.is_reachable(to) || !machine_->record().is_running()) continue;
    log_info("link", "what went to {} over {} is sent again", name(to), name(over));
    feed(sync::PeerUp{to});
    send_updates_again(to);
  }
}

void Engine::announce_links() {
  wire::PeerMessage message;
  // Who does not pass on anything does not offer its links.
  message.mutable_link_state()->set_up(parts_.config.wan.relay ? routes_.direct().bits : SiteSet().bits);
  routes_.direct().for_each([&](SiteId peer) { links_->send_control(peer, message); });
}

// Updates of the running round that were made here and may have been lost on the way.
void Engine::send_updates_again(SiteId to) {
  const sync::RoundRecord& record = machine_->record();
  if (!record.is_running() || record.owners.empty() || sync::is_direct(record)) return;
  for (const auto& [key, epoch] : update_epochs_) {
    if (key.round != record.round || epoch != record.epoch || !sync::owners_of(record, key.chunk).contains(self_)) continue;
    auto frame = parts_.spool.get(key);
    if (frame) send_peer_frame(to, FrameRecord{update_envelope(key, epoch), *frame});
  }
}

// ---- sending

bool Engine::send_control(SiteId to, const wire::PeerMessage& message) {
  if (!routes_.is_relayed(to)) return links_->send_control(to, message);
  if (!may_travel_over_others(message.kind_case())) return false;
  wire::PeerMessage wrapped;
  wrapped.mutable_relayed()->set_from(self_.value);
  wrapped.mutable_relayed()->set_to(to.value);
  if (!message.SerializeToString(wrapped.mutable_relayed()->mutable_message())) return false;
  if (wrapped.ByteSizeLong() > wire::kControlBytesMax) {
    log_error("link", "a message to {} is too large to go over {}", name(to), name(*routes_.next_hop(to)));
    return false;
  }
  return links_->send_control(*routes_.next_hop(to), wrapped);
}

// ---- passing on, and taking what was passed on

Status Engine::take_relayed(SiteId by, const wire::PeerMessage& wrapped) {
  const wire::Relayed& relayed = wrapped.relayed();
  if (relayed.from() >= sites_ || relayed.to() >= sites_) return fail(ErrorCode::kWireBadMessage, "pass on message", "no such site");
  const SiteId from(static_cast<std::uint16_t>(relayed.from()));
  const SiteId to(static_cast<std::uint16_t>(relayed.to()));
  if (to != self_) {
    if (from != by || !routes_.may_pass_on(from, to)) {
      return fail(ErrorCode::kPeerNotEntitled, "pass on message", fmt::format("from site {} to site {}", from, to));
    }
    links_->send_control(to, wrapped);
    parts_.metrics.count_passed_on(relayed.message().size());
    return {};
  }
  if (!routes_.may_take(from, by)) return fail(ErrorCode::kPeerNotEntitled, "take message", fmt::format("of site {}", from));
  wire::PeerMessage message;
  if (!message.ParseFromString(relayed.message()) || !may_travel_over_others(message.kind_case())) {
    return fail(ErrorCode::kWireBadMessage, "take message", fmt::format("of site {} over site {}", from, by));
  }
  return handle_peer_control(from, message);
}

// The frame with its sender when it is for this site; nothing when it was passed on.
Result<std::optional<SiteId>> Engine::sort_frame(SiteId by, FrameRecord& frame) {
  if (frame.envelope.to == 0) return std::optional(by);
  const SiteId to(static_cast<std::uint16_t>(frame.envelope.to - 1));
  const SiteId from(frame.envelope.site);
  if (to == self_) {
    if (!routes_.may_take(from, by)) return fail(ErrorCode::kPeerNotEntitled, "take frame", fmt::format("of site {}", from));
    frame.envelope.to = 0;
    return std::optional(from);
  }
  if (from != by || !routes_.may_pass_on(from, to)) {
    return fail(ErrorCode::kPeerNotEntitled, "pass on frame", fmt::format("from site {} to site {}", from, to));
  }
  if (waiting_frames_[to].size() >= kPassedOnFramesMax) {
    return fail(ErrorCode::kLimitExceeded, "pass on frame", fmt::format("{} frames wait for site {}", kPassedOnFramesMax, to));
  }
  parts_.metrics.count_passed_on(frame.frame->size());
  queue_peer_frame(to, std::move(frame));
  return std::optional<SiteId>();
}

// ---- what is reported of the way

topology::LinkEstimate Engine::path_estimate(SiteId peer) const {
  if (!routes_.is_relayed(peer)) return links_->estimate(peer);
  topology::LinkEstimate estimate = links_->estimate(*routes_.next_hop(peer));
  if (estimate.rate) {
    for (double* rate : {&estimate.rate->low, &estimate.rate->p50}) *rate *= kRelayedRateShare;
  }
  return estimate;
}

}  // namespace sluice::gateway
