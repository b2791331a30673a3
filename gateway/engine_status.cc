// Engine, the side of people: snapshots for the admin server, link figures for the metrics.

#include <utility>

#include "gateway/engine.h"
#include "gateway/wire_convert.h"

namespace sluice::gateway {
namespace {

// Snapshots are made at most this often: a burst of frames is one change to a reader.
constexpr std::chrono::milliseconds kPublishInterval{50};

std::string phase_name(sync::Phase phase) {
  switch (phase) {
    case sync::Phase::kIdle:
      return "idle";
    case sync::Phase::kOpen:
      return "open";
    case sync::Phase::kClosed:
      return "closed";
    case sync::Phase::kCommitted:
      return "committed";
    case sync::Phase::kAborted:
      return "aborted";
  }
  return "idle";
}

double to_seconds(std::optional<std::chrono::microseconds> duration) {
  return duration ? std::chrono::duration<double>(*duration).count() : 0.0;
}

}  // namespace

std::string Engine::name(SiteId site) const { return parts_.config.sites[site.value].name; }

// The machine speaks of "site 2"; people know their sites by name.
std::string Engine::with_names(const std::string& text) const {
  std::string result;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t found = text.find("site ", at);
    if (found == std::string::npos) break;
    std::size_t end = found + 5;
    std::size_t number = 0;
    while (end < text.size() && text[end] >= '0' && text[end] <= '9' && number < 1000) {
      number = number * 10 + static_cast<std::size_t>(text[end] - '0');
      ++end;
    }
    const bool is_site = end > found + 5 && number < sites_;
    result += text.substr(at, is_site ? found - at : end - at);
    if (is_site) result += name(SiteId(static_cast<std::uint16_t>(number)));
    at = end;
  }
  return result + text.substr(at);
}

void Engine::mark_changed() {
  if (is_publish_armed_ || is_stopped_) return;
  is_publish_armed_ = true;
  publish_timer_.expires_after(kPublishInterval);
  publish_timer_.async_wait([this](const asio::error_code& error) {
    is_publish_armed_ = false;
    if (!error && !is_stopped_) publish();
  });
}

void Engine::update_link_figures() {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  for (std::uint16_t site = 0; site < sites_; ++site) {
    const SiteId peer(site);
    if (peer == self_) continue;
    const LinkStats stats = links_->stats(peer);
    sent += stats.sent_bytes;
    received += stats.received_bytes;
    LinkTotals totals;
    totals.sent_wire_bytes = stats.sent_bytes;
    totals.received_wire_bytes = stats.received_bytes;
    totals.sent_payload_bytes = stats.sent_round_bytes;
    totals.received_payload_bytes = stats.received_round_bytes;
    totals.reconnects = stats.links_up > 0 ? stats.links_up - 1 : 0;
    totals.resent_frames = stats.frames_resent;
    parts_.metrics.set_link_totals(peer, totals);
    parts_.metrics.set_link_rtt(peer, to_seconds(stats.rtt_p50));
    parts_.metrics.set_link_streams(peer, stats.bulk_streams);
    parts_.metrics.set_link_relayed(peer, routes_.is_relayed(peer));
    LinkStatus wan;
    fill_link_wan(peer, wan);
    parts_.metrics.set_link_estimate(peer, wan.path);
  }
  history_.set_wan_totals(sent, received);
  const std::uint64_t memory = parts_.spool.bytes_in_memory();
  parts_.metrics.set_memory(memory, parts_.config.limits.memory.count);
  parts_.metrics.set_spool(memory, parts_.spool.bytes_on_disk(), parts_.config.state.spool_limit.count);
  if (parts_.tls) parts_.metrics.set_certificate_expiry(parts_.tls->not_after());
}

LinkStatus Engine::link_status(SiteId peer, const LinkStats& stats) const {
  LinkStatus link;
  link.peer = name(peer);
  link.is_up = stats.is_up;
  link.reason = stats.is_up ? "" : stats.last_error;
  if (routes_.is_relayed(peer)) link.via = name(*routes_.next_hop(peer));
  link.sent_bytes = stats.sent_bytes;
  link.received_bytes = stats.received_bytes;
  link.raw_bytes = history_.raw_bytes() / std::max<std::uint64_t>(1, sites_ - 1U);
  link.rtt_seconds_min = to_seconds(stats.rtt_min);
  link.rtt_seconds_p50 = to_seconds(stats.rtt_p50);
  link.streams = stats.bulk_streams;
  fill_link_wan(peer, link);
  link.reconnects = stats.links_up > 0 ? stats.links_up - 1 : 0;
  link.resent_frames = stats.frames_resent;
  return link;
}

void Engine::publish() {
  update_link_figures();
  if (parts_.topology.refresh()) parts_.metrics.set_topology(*parts_.topology.status());
  const sync::RoundRecord& record = machine_->record();
  auto snapshot = std::make_shared<StatusSnapshot>();
  snapshot->site = parts_.config.site;
  snapshot->run = parts_.config.run.name;
  snapshot->version = parts_.version;
  snapshot->epoch = record.epoch.value;
  snapshot->round = record.committed_round.value;
  snapshot->phase = is_solo_ ? "solo" : phase_name(record.phase);
  snapshot->description = with_names(machine_->describe());
  snapshot->quorum = parts_.config.round.quorum;
  snapshot->readiness = {true, !is_stopped_, !is_stopped_, parts_.tls && parts_.tls->not_after() > std::chrono::system_clock::now(),
                         !is_store_stuck_};
  snapshot->rounds.assign(history_.rounds().begin(), history_.rounds().end());
  snapshot->announcements.assign(history_.announcements().begin(), history_.announcements().end());
  for (std::uint16_t site = 0; site < sites_; ++site) {
    const SiteId peer(site);
    SiteStatus status;
    status.name = name(peer);
    if (peer == self_) {
      status.state = catch_up_->is_bringing_agents() ? "catching up" : "self";
      status.round = record.committed_round.value;
      snapshot->sites.push_back(std::move(status));
      continue;
    }
    const LinkStats stats = links_->stats(peer);
    LinkStatus link = link_status(peer, stats);
    snapshot->wan.sent_bytes += stats.sent_bytes;
    snapshot->wan.received_bytes += stats.received_bytes;
    snapshot->links.push_back(std::move(link));
    status.state = stats.is_up ? "up" : routes_.is_relayed(peer) ? "relayed" : "down";
    status.round = history_.newest_state(peer).value;
    if (routes_.is_reachable(peer)) last_seen_[peer] = std::chrono::system_clock::now();
    if (const auto seen = last_seen_.find(peer); seen != last_seen_.end()) status.last_seen = seen->second;
    status.detail = stats.is_up ? "" : stats.last_error;
    snapshot->sites.push_back(std::move(status));
  }
  snapshot->wan.raw_bytes = history_.raw_bytes();
  publish_wan(*snapshot);
  for (const auto& [rank, member] : group_.members()) {
    AgentStatus agent;
    agent.rank = rank.value;
    agent.is_connected = true;
    agent.round = member.round.value;
    agent.loss = member.loss;
    agent.tokens = member.tokens_total;
    snapshot->agents.push_back(agent);
  }
  snapshot->topology = parts_.topology.status();
  snapshot->memory_used_bytes = parts_.spool.bytes_in_memory();
  snapshot->memory_budget_bytes = parts_.config.limits.memory.count;
  snapshot->spool_used_bytes = parts_.spool.bytes_on_disk();
  snapshot->spool_budget_bytes = parts_.config.state.spool_limit.count;
  snapshot->started_at = started_at_;
  if (parts_.tls) snapshot->certificate_expiry = parts_.tls->not_after();
  parts_.board.publish(std::move(snapshot), Clock::now());
}

}  // namespace sluice::gateway
