#include "gateway/status.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace sluice::gateway {
namespace {

using nlohmann::json;

json number(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

json optional_number(const std::optional<double>& value) { return value ? number(*value) : json(nullptr); }

json optional_time(const std::optional<WallTime>& time) { return time ? json(format_utc(*time)) : json(nullptr); }

json round_to_json(const RoundStatus& round) {
  return json{
      {"round", round.round},
      {"outcome", round_outcome_name(round.outcome)},
      {"sites", round.sites},
      {"members", round.members},
      {"bits_per_value", number(round.bits_per_value)},
      {"step", number(round.step)},
      {"state_digest", round.state_digest},
      {"update_digest", round.update_digest},
      {"seconds", number(round.seconds)},
      {"phase_seconds",
       {{"open", number(round.phase_seconds.open)},
        {"contribute", number(round.phase_seconds.contribute)},
        {"combine", number(round.phase_seconds.combine)},
        {"commit", number(round.phase_seconds.commit)}}},
      {"raw_bytes", round.raw_bytes},
      {"sent_bytes", round.sent_bytes},
      {"received_bytes", round.received_bytes},
      {"loss", optional_number(round.loss)},
      {"reason", round.reason},
      {"rate",
       {{"reason", round.rate_reason},
        {"text", round.rate_text},
        {"plan", round.plan},
        {"target_bits", number(round.target_bits)},
        {"budget_seconds", number(round.budget_seconds)},
        {"predicted_seconds", number(round.predicted_seconds)}}},
      {"finished_at", format_utc(round.finished_at)},
  };
}

json measured(double value, bool is_known) { return is_known ? number(value) : json(nullptr); }

json path_to_json(const WanPathStatus& path) {
  const bool has_rate = path.median_bits_per_second > 0.0;
  const bool has_rtt = path.rtt_seconds_min > 0.0;
  return json{
      {"from", path.from},
      {"to", path.to},
      {"method", path.method},
      {"low_bits_per_second", measured(path.low_bits_per_second, has_rate)},
      {"median_bits_per_second", measured(path.median_bits_per_second, has_rate)},
      {"confidence", number(path.confidence)},
      {"age_seconds", measured(path.age_seconds, has_rate)},
      {"loss", number(path.loss)},
      {"rtt_seconds",
       {{"min", measured(path.rtt_seconds_min, has_rtt)},
        {"p50", measured(path.rtt_seconds_p50, has_rtt)},
        {"p95", measured(path.rtt_seconds_p95, has_rtt)}}},
      {"jitter_seconds", measured(path.jitter_seconds, has_rtt)},
  };
}

json link_to_json(const LinkStatus& link) {
  return json{
      {"peer", link.peer},
      {"up", link.is_up},
      {"via", link.via},
      {"reason", link.reason},
      {"sent_bytes", link.sent_bytes},
      {"received_bytes", link.received_bytes},
      {"raw_bytes", link.raw_bytes},
      {"rtt_seconds", {{"min", number(link.rtt_seconds_min)}, {"p50", number(link.rtt_seconds_p50)}}},
      {"streams", link.streams},
      {"reconnects", link.reconnects},
      {"resent_frames", link.resent_frames},
      {"send_bits_per_second", number(link.send_bits_per_second)},
      {"receive_bits_per_second", number(link.receive_bits_per_second)},
      {"target_bits_per_value", number(link.target_bits_per_value)},
      {"observed_bits_per_value", number(link.observed_bits_per_value)},
      {"estimate", path_to_json(link.path)},
      {"plan",
       {{"bits_per_second", measured(link.plan_bits_per_second, link.plan_bits_per_second > 0.0)},
        {"budget_bytes", measured(link.budget_bytes, link.budget_bytes > 0.0)},
        {"predicted_bytes", number(link.predicted_bytes)},
        {"round_bytes", link.round_bytes}}},
  };
}

json spread_to_json(const SpreadStatus& spread) {
  return json{{"min", number(spread.least)}, {"median", number(spread.median)}, {"max", number(spread.most)}};
}

json topology_summary(const TopologyStatus& topology) {
  return json{
      {"probe", topology.probe},
      {"failure", topology.failure},
      {"ranks_reported", topology.ranks_reported},
      {"machines", topology.machines},
      {"pairs", topology.pairs},
      {"pairs_planned", topology.pairs_planned},
      {"seconds", number(topology.seconds)},
      {"gb_per_second", spread_to_json(topology.gb_per_second)},
      {"latency_us", spread_to_json(topology.latency_us)},
      {"earlier_run", topology.is_of_earlier_run},
  };
}

json agents_to_json(const std::vector<AgentStatus>& agents) {
  json list = json::array();
  for (const AgentStatus& agent : agents) {
    list.push_back({{"rank", agent.rank},
                    {"connected", agent.is_connected},
                    {"round", agent.round},
                    {"loss", optional_number(agent.loss)},
                    {"tokens", agent.tokens}});
  }
  return list;
}

json sites_to_json(const std::vector<SiteStatus>& sites) {
  json list = json::array();
  for (const SiteStatus& site : sites) {
    list.push_back({{"name", site.name},
                    {"state", site.state},
                    {"round", site.round},
                    {"last_seen", optional_time(site.last_seen)},
                    {"detail", site.detail},
                    {"certificate_expiry", optional_time(site.certificate_expiry)}});
  }
  return list;
}

json announcements_to_json(const std::vector<Announcement>& announcements) {
  json list = json::array();
  for (const Announcement& announcement : announcements) {
    list.push_back({{"time", format_utc(announcement.at)}, {"solo", announcement.is_solo}, {"text", announcement.text}});
  }
  return list;
}

}  // namespace

std::string_view round_outcome_name(RoundOutcome outcome) {
  switch (outcome) {
    case RoundOutcome::kCommitted:
      return "committed";
    case RoundOutcome::kAborted:
      return "aborted";
    case RoundOutcome::kReplayed:
      return "replayed";
  }
  return "unknown";
}

double WanStatus::reduction() const { return sent_bytes == 0 ? 0.0 : static_cast<double>(raw_bytes) / static_cast<double>(sent_bytes); }

json links_to_json(const StatusSnapshot& snapshot) {
  json list = json::array();
  for (const LinkStatus& link : snapshot.links) list.push_back(link_to_json(link));
  return list;
}

json wan_to_json(const StatusSnapshot& snapshot) {
  json paths = json::array();
  for (const WanPathStatus& path : snapshot.paths) paths.push_back(path_to_json(path));
  return json{{"site", snapshot.site},
              {"paths", std::move(paths)},
              {"probe", {{"running", snapshot.is_probing},
                {"text", snapshot.probe},
                {"ended", snapshot.probes_ended},
                {"complete", snapshot.was_probe_complete}}}};
}

json topology_to_json(const StatusSnapshot& snapshot) {
  const TopologyStatus topology = snapshot.topology ? *snapshot.topology : TopologyStatus{};
  json links = json::array();
  for (const SiteLinkStatus& link : topology.links) {
    links.push_back({{"from", link.from},
                     {"to", link.to},
                     {"gb_per_second", number(link.gb_per_second)},
                     {"latency_us", optional_number(link.latency_us)},
                     {"promised_gb_per_second", optional_number(link.promised_gb_per_second)}});
  }
  return json{{"site", snapshot.site},
              {"topology", topology_summary(topology)},
              {"links", std::move(links)},
              {"graph", topology.graph ? json::parse(*topology.graph, nullptr, false) : json(nullptr)}};
}

json rounds_to_json(const StatusSnapshot& snapshot, std::size_t rounds_max) {
  json list = json::array();
  const std::size_t count = std::min(rounds_max, snapshot.rounds.size());
  for (std::size_t index = snapshot.rounds.size() - count; index < snapshot.rounds.size(); ++index) {
    list.push_back(round_to_json(*snapshot.rounds[index]));
  }
  return list;
}

json to_json(const StatusSnapshot& snapshot, std::size_t rounds_max) {
  return json{
      {"site", snapshot.site},
      {"run", snapshot.run},
      {"version", snapshot.version},
      {"epoch", snapshot.epoch},
      {"round", snapshot.round},
      {"phase", snapshot.phase},
      {"description", snapshot.description},
      {"quorum", snapshot.quorum},
      {"ready",
       {{"config_loaded", snapshot.readiness.is_config_loaded},
        {"wan_listener", snapshot.readiness.is_wan_listener_up},
        {"agent_socket", snapshot.readiness.is_agent_socket_up},
        {"certificate", snapshot.readiness.is_certificate_valid},
        {"store", snapshot.readiness.is_store_writable}}},
      {"rounds", rounds_to_json(snapshot, rounds_max)},
      {"links", links_to_json(snapshot)},
      {"wan",
       {{"sent_bytes", snapshot.wan.sent_bytes},
        {"received_bytes", snapshot.wan.received_bytes},
        {"raw_bytes", snapshot.wan.raw_bytes},
        {"reduction", number(snapshot.wan.reduction())}}},
      {"wan_paths", wan_to_json(snapshot)},
      {"agents", agents_to_json(snapshot.agents)},
      {"topology", topology_summary(snapshot.topology ? *snapshot.topology : TopologyStatus{})},
      {"sites", sites_to_json(snapshot.sites)},
      {"announcements", announcements_to_json(snapshot.announcements)},
      {"memory", {{"used_bytes", snapshot.memory_used_bytes}, {"budget_bytes", snapshot.memory_budget_bytes}}},
      {"spool", {{"used_bytes", snapshot.spool_used_bytes}, {"budget_bytes", snapshot.spool_budget_bytes}}},
      {"started_at", format_utc(snapshot.started_at)},
      {"certificate_expiry", optional_time(snapshot.certificate_expiry)},
  };
}

std::string dump_json(const json& document) { return document.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string format_utc(WallTime time) {
  const auto milliseconds = std::chrono::floor<std::chrono::milliseconds>(time);
  const auto seconds = std::chrono::floor<std::chrono::seconds>(milliseconds);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)),
                     (milliseconds - seconds).count());
}

std::string to_hex(const Digest& digest) { return fmt::format("{:016x}{:016x}", digest.high, digest.low); }

void StatusBoard::publish(std::shared_ptr<const StatusSnapshot> snapshot, TimePoint now) {
  const std::lock_guard lock(mutex_);
  published_.snapshot.swap(snapshot);  // the old one is freed after the lock, when it leaves `snapshot`
  published_.at = now;
}

StatusBoard::Published StatusBoard::current() const {
  const std::lock_guard lock(mutex_);
  return published_;
}

}  // namespace sluice::gateway
