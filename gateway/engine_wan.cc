// Engine, the side of the WAN's figures: what this site reports of its links and rounds, what it keeps of the plan, probes.

#include <algorithm>
#include <utility>

#include <asio/post.hpp>

#include "base/log.h"
#include "base/units.h"
#include "gateway/engine.h"

namespace sluice::gateway {
namespace {

constexpr std::chrono::seconds kProbeCheckInterval{1};
// A probe by schedule sends at most this, or what so many rounds send over the link.
constexpr double kOwnProbeBytesMin = 4.0 * static_cast<double>(kMiB);
constexpr double kOwnProbeRounds = 16.0;

double to_seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

sync::LinkReport report_of(SiteId peer, const topology::LinkEstimate& estimate) {
  sync::LinkReport report;
  report.to = peer;
  if (estimate.rate) {
    report.low_rate = estimate.rate->low;
    report.median_rate = estimate.rate->p50;
  }
  if (estimate.rtt) {
    report.rtt_min = estimate.rtt->min;
    report.rtt_p50 = estimate.rtt->p50;
    report.rtt_p95 = estimate.rtt->p95;
    report.jitter = estimate.rtt->jitter;
  }
  report.loss = estimate.loss.value_or(0.0);
  report.confidence = estimate.confidence;
  report.age = estimate.age.value_or(Duration{});
  report.method = static_cast<std::uint8_t>(estimate.method);
  return report;
}

WanPathStatus path_of(const std::string& from, const std::string& to, const sync::LinkReport& report) {
  WanPathStatus path;
  path.from = from;
  path.to = to;
  path.method = topology::estimate_method_name(static_cast<topology::EstimateMethod>(report.method));
  const bool is_known = report.method != static_cast<std::uint8_t>(topology::EstimateMethod::kNone);
  if (is_known) {
    path.low_bits_per_second = report.low_rate;
    path.median_bits_per_second = report.median_rate;
    path.age_seconds = to_seconds(report.age);
  }
  path.confidence = report.confidence;
  path.loss = report.loss;
  if (report.rtt_min > Duration{}) {
    path.rtt_seconds_min = to_seconds(report.rtt_min);
    path.rtt_seconds_p50 = to_seconds(report.rtt_p50);
    path.rtt_seconds_p95 = to_seconds(report.rtt_p95);
    path.jitter_seconds = to_seconds(report.jitter);
  }
  return path;
}

}  // namespace

// ---- reported to whoever opens the next round

sync::SiteReport Engine::site_report(TimePoint) const {
  sync::SiteReport report = measured_;
  for (std::uint16_t site = 0; site < sites_; ++site) {
    if (SiteId(site) != self_) report.links.push_back(report_of(SiteId(site), path_estimate(SiteId(site))));
  }
  report.rate_limit = parts_.config.wan.rate_limit.value;
  if (times_.finished && times_.ready) report.compute = *times_.ready - *times_.finished;
  return report;
}

void Engine::note_ready(TimePoint now) { times_.ready = now; }

void Engine::note_opened(const sync::RoundRecord& record, TimePoint now) {
  plan_ = record.plan;
  times_.opened = now;
  times_.encoded.reset();
  for (std::uint16_t site = 0; site < sites_; ++site) {
    if (SiteId(site) != self_) sent_before_[SiteId(site)] = link_sent_bytes(SiteId(site));
  }
  prober_->on_round_opened();
  parts_.metrics.count_rate_decision(plan_.reason);
  parts_.metrics.count_plan(sync::way_of(record));
  detours_used_.clear();
  set_link_plan_metrics();
}

void Engine::note_own_frame(TimePoint now) {
  if (own_chunks_.size() == group_.chunks()) times_.encoded = now;
}

void Engine::note_finished(const sync::RoundRecord& record, double contribution_bits, TimePoint now) {
  measured_ = sync::SiteReport{};
  const auto parameters = static_cast<double>(group_.parameters());
  // Only what this site took part in tells how long things take.
  if (contribution_bits > 0.0 && times_.opened && parameters > 0.0) {
    ++rounds_measured_;
    measured_.measured_round = record.round;
    measured_.contribution_bits = contribution_bits;
    const auto update = update_bytes_.find(record.counted.bits);
    if (update != update_bytes_.end()) measured_.update_bits = 8.0 * static_cast<double>(update->second) / parameters;
    measured_.exchange = now - *times_.opened;
    if (times_.encoded) measured_.encode = *times_.encoded - *times_.opened;
    for (auto& [peer, before] : sent_before_) {
      const std::uint64_t sent = link_sent_bytes(peer);
      sent_in_round_[peer] = sent - std::min(before, sent);
    }
  }
  times_ = RoundTimes{};
  times_.finished = now;
  set_link_plan_metrics();
}

std::uint64_t Engine::link_sent_bytes(SiteId peer) const { return links_->stats(peer).sent_bytes; }

// ---- for people

void Engine::set_link_plan_metrics() {
  const double values = std::max(1.0, static_cast<double>(group_.parameters()));
  for (const sync::LinkPlan& link : plan_.links) {
    if (link.from != self_ || link.to == self_ || link.to.value >= sites_) continue;
    const auto sent = sent_in_round_.find(link.to);
    const double sent_bytes = sent == sent_in_round_.end() ? 0.0 : static_cast<double>(sent->second);
    parts_.metrics.set_link_bits(link.to, 8.0 * link.predicted_bytes / values, 8.0 * sent_bytes / values);
    parts_.metrics.set_link_plan(link.to, {link.budget_bytes, link.predicted_bytes, sent_bytes});
  }
  parts_.metrics.set_round_plan(plan_.target_bits, plan_.budget_seconds, plan_.predicted_seconds);
}

void Engine::fill_link_wan(SiteId peer, LinkStatus& link) const {
  const sync::LinkReport report = report_of(peer, links_->estimate(peer));
  link.path = path_of(parts_.config.site, name(peer), report);
  link.send_bits_per_second = report.median_rate;
  const double values = std::max(1.0, static_cast<double>(group_.parameters()));
  for (const sync::LinkPlan& planned : plan_.links) {
    if (planned.from != self_ || planned.to != peer) continue;
    link.plan_bits_per_second = planned.rate;
    link.budget_bytes = planned.budget_bytes;
    link.predicted_bytes = planned.predicted_bytes;
    link.target_bits_per_value = 8.0 * planned.predicted_bytes / values;
  }
  if (const auto sent = sent_in_round_.find(peer); sent != sent_in_round_.end()) {
    link.round_bytes = sent->second;
    link.observed_bits_per_value = 8.0 * static_cast<double>(sent->second) / values;
  }
  if (link.is_up) link.reason = with_names(plan_.text);
}

void Engine::take_wan_report(const sync::Proposal& proposal) { reports_[proposal.site] = proposal.report.links; }

std::vector<WanPathStatus> Engine::wan_paths() const {
  std::vector<WanPathStatus> paths;
  for (std::uint16_t from = 0; from < sites_; ++from) {
    for (std::uint16_t to = 0; to < sites_; ++to) {
      if (from == to) continue;
      sync::LinkReport report;
      report.to = SiteId(to);
      if (SiteId(from) == self_) {
        report = report_of(SiteId(to), links_->estimate(SiteId(to)));
      } else if (const auto known = reports_.find(SiteId(from)); known != reports_.end()) {
        for (const sync::LinkReport& each : known->second) report = each.to == SiteId(to) ? each : report;
      }
      paths.push_back(path_of(name(SiteId(from)), name(SiteId(to)), report));
    }
  }
  return paths;
}

void Engine::publish_wan(StatusSnapshot& snapshot) const {
  snapshot.paths = wan_paths();
  for (LinkStatus& link : snapshot.links) {
    for (const WanPathStatus& path : snapshot.paths) {
      if (path.from == link.peer && path.to == snapshot.site) link.receive_bits_per_second = path.median_bits_per_second;
    }
  }
  snapshot.probe = with_names(prober_->describe());
  snapshot.is_probing = prober_->is_running();
  snapshot.probes_ended = prober_->ended_count();
  snapshot.was_probe_complete = prober_->was_complete();
}

// ---- probes

WanProberHooks Engine::prober_hooks() {
  WanProberHooks hooks;
  hooks.send = [this](SiteId to, const wire::PeerMessage& message) { return links_->send_control(to, message); };
  hooks.send_frame = [this](SiteId to, FrameRecord frame) { return links_->send_frame(to, std::move(frame)); };
  hooks.queued_bytes = [this](SiteId peer) { return links_->queued_bytes(peer); };
  hooks.discard_queued = [this](SiteId peer) {
    links_->discard_frames(
        peer, [](const wire::FrameEnvelope& envelope) { return static_cast<wire::FrameRole>(envelope.role) == wire::FrameRole::kProbe; });
    mark_changed();
  };
  hooks.set_probing = [this](SiteId peer, bool is_probing) { links_->set_probing(peer, is_probing); };
  hooks.is_round_running = [this] { return machine_->record().is_running(); };
  hooks.ended = [this](SiteId peer, topology::ProbeEnd how) {
    log_info("wan", "probe: {}", with_names(prober_->describe()));
    probe_schedule_.on_ended(peer, how, link_sent_bytes(peer), Clock::now());
    mark_changed();
  };
  return hooks;
}

// The rates are needed where the bits follow them. Rounds come first: only between them is a link probed.
void Engine::arm_probe_timer() {
  if (parts_.config.compression.mode != CompressionMode::kAuto) return;
  probe_timer_.expires_after(kProbeCheckInterval);
  probe_timer_.async_wait([this](const asio::error_code& error) {
    if (error || is_stopped_) return;
    probe_by_schedule(Clock::now());
    arm_probe_timer();
  });
}

void Engine::probe_by_schedule(TimePoint now) {
  if (machine_->record().is_running() || prober_->is_running() || prober_->is_serving(now)) return;
  std::vector<topology::ProbeCandidate> candidates;
  for (const SiteId peer : live_peers()) {
    const topology::LinkEstimate estimate = links_->estimate(peer);
    topology::ProbeCandidate candidate;
    candidate.peer = peer;
    candidate.is_unmeasured = estimate.is_unknown || estimate.is_stale;
    candidate.is_doubtful = estimate.is_contradicted || (plan_.limit_from == self_ && plan_.limit_to == peer);
    candidate.sent_bytes = link_sent_bytes(peer);
    if (estimate.rate) candidate.probe_bytes = std::min(prober_->expected_bytes(estimate.rate->p50), own_probe_bytes_max(peer));
    candidates.push_back(candidate);
  }
  const auto choice = probe_schedule_.choose(candidates, rounds_measured_, now);
  if (!choice) return;
  log_info("wan", "probing the link to {}: {}", name(choice->peer), topology::probe_reason_text(choice->reason));
  if (!prober_->start(choice->peer, now, own_probe_bytes_max(choice->peer)))
    probe_schedule_.on_ended(choice->peer, topology::ProbeEnd::kRefused, 0, now);
  mark_changed();
}

// A small model needs no exact rate of a fast link: what nobody asked for stays in proportion to what the rounds send.
std::uint64_t Engine::own_probe_bytes_max(SiteId peer) const {
  double round_bytes = 0.0;
  for (const sync::LinkPlan& link : plan_.links) {
    if (link.from == self_ && link.to == peer) round_bytes = link.predicted_bytes;
  }
  const double bytes = std::max(kOwnProbeBytesMin, kOwnProbeRounds * round_bytes);
  return static_cast<std::uint64_t>(std::min(bytes, static_cast<double>(kProbeBytesMax)));
}

void Engine::post_probe(const std::string& peer) {
  asio::post(parts_.loop, [this, peer] {
    if (!is_stopped_) probe(peer);
  });
}

void Engine::probe(const std::string& peer) {
  for (std::uint16_t site = 0; site < sites_; ++site) {
    if (SiteId(site) == self_ || name(SiteId(site)) != peer) continue;
    const Status started = prober_->start(SiteId(site), Clock::now());
    mark_changed();
    if (!started) log_warning("wan", "{} is not probed: {}", peer, started.error().detail);
    return;
  }
  log_warning("wan", "no site `{}` to probe", peer);
}

}  // namespace sluice::gateway
