#include "gateway/site_topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "gateway/internal/disk_file.h"
#include "topology/graph_file.h"
#include "topology/graph_merge.h"
#include "topology/limits.h"
#include "topology/probe_graph.h"
#include "topology/topology_reader.h"

namespace sluice::gateway {
namespace {

constexpr const char* kFileName = "topology.json";
constexpr std::size_t kMachineNameBytesMax = 255;  // of a host name
constexpr std::size_t kFailureBytesMax = 500;
// Beyond what any link between two processes carries: a broken clock.
constexpr double kGbPerSecondMax = 1e6;
constexpr double kLatencyUsMax = 1e8;

Result<std::string> read_text(const std::filesystem::path& path) {
  auto bytes = read_file(path, topology::kFileBytesMax);
  if (!bytes) return fail(ErrorCode::kTopologyUnreadable, "read " + path.string(), bytes.error().detail);
  return std::string(bytes->begin(), bytes->end());
}

bool is_printable(const std::string& text) {
  return std::ranges::none_of(text, [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; });
}

std::optional<double> known(double value) { return value > 0.0 ? std::optional(value) : std::nullopt; }

bool is_sound(const wire::ProbedPair& pair) {
  const auto is_within = [](double value, double most) { return std::isfinite(value) && value >= 0.0 && value <= most; };
  return is_within(pair.forward_gb_per_second(), kGbPerSecondMax) && is_within(pair.backward_gb_per_second(), kGbPerSecondMax) &&
         is_within(pair.latency_us(), kLatencyUsMax);
}

Result<topology::ProbeReport> read_report(RankId rank, const wire::SiteProbe& probe, std::uint32_t ranks) {
  const auto refuse = [](std::string detail) { return fail(ErrorCode::kWireBadMessage, "read site probe", std::move(detail)); };
  if (probe.machine().size() > kMachineNameBytesMax || !is_printable(probe.machine())) return refuse("the machine's name");
  if (probe.pairs_size() >= static_cast<int>(ranks)) return refuse(fmt::format("{} pairs of one of {} ranks", probe.pairs_size(), ranks));
  topology::ProbeReport report{rank, probe.machine().empty() ? "unnamed" : probe.machine(), {}};
  for (const wire::ProbedPair& pair : probe.pairs()) {
    if (pair.peer() <= rank.value || pair.peer() >= ranks) return refuse(fmt::format("rank {} led a pair with {}", rank, pair.peer()));
    if (!is_sound(pair)) return refuse(fmt::format("the figures of ranks {} and {}", rank, pair.peer()));
    topology::ProbedPair& entry = report.pairs.emplace_back();
    entry.leader = rank;
    entry.follower = RankId(pair.peer());
    entry.forward_gb_per_second = known(pair.forward_gb_per_second());
    entry.backward_gb_per_second = known(pair.backward_gb_per_second());
    entry.latency_us = known(pair.latency_us());
    entry.is_steady = pair.steady();
  }
  return report;
}

SpreadStatus spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  return {values.front(), values[values.size() / 2], values.back()};
}

}  // namespace

Result<SiteTopology> SiteTopology::open(SiteTopologyOptions options) {
  SiteTopology site(std::move(options));
  if (!site.options_.promised_file.empty()) {
    SLUICE_TRY(const std::string text, read_text(site.options_.promised_file));
    SLUICE_TRY(auto graph, topology::read_topology_file(text, site.options_.promised_file.string()));
    site.graph_ = graph;
    site.promised_ = std::move(graph);
  }
  const std::filesystem::path saved = site.options_.state_directory / kFileName;
  std::error_code unreadable;
  if (std::filesystem::exists(saved, unreadable)) {
    const auto text = read_text(saved);
    const auto graph = text ? topology::read_graph_file(*text, saved.string()) : fail(text.error());
    const Status merged = graph ? site.merge(topology::measured_part(*graph)) : Status(fail(graph.error()));
    if (!merged) log_warning("topology", "what the last run measured is not used: {}", merged.error().to_string());
    site.is_of_earlier_run_ = merged.has_value();
  }
  site.status_ = std::make_shared<const TopologyStatus>(site.summarize());
  return site;
}

// graph_ = what is promised and what is measured.
Status SiteTopology::merge(topology::SiteGraph measured) {
  if (measured.devices.empty()) return {};
  if (!promised_) {
    graph_ = std::move(measured);
    return {};
  }
  std::vector<topology::MergeInput> inputs(2);
  inputs[0].graph = *promised_;
  inputs[1].graph = std::move(measured);
  // One machine without a name and one that has measured: the same.
  const auto node = std::ranges::find(promised_->devices, topology::DeviceKind::kNode, &topology::Device::kind);
  if (promised_->nnodes() == 1 && inputs[1].graph.nnodes() == 1 && node->hardware.empty()) {
    inputs[0].node = std::ranges::find(inputs[1].graph.devices, topology::DeviceKind::kNode, &topology::Device::kind)->name;
  }
  SLUICE_TRY(graph_, topology::merge_graphs(std::move(inputs)));
  return {};
}

Status SiteTopology::take(RankId rank, const wire::SiteProbe& probe) {
  RankProbe taken;
  SLUICE_TRY(taken.report, read_report(rank, probe, options_.ranks));
  taken.seconds = static_cast<double>(probe.elapsed_us()) / 1e6;
  taken.pairs_planned = probe.pairs_planned();
  taken.is_cut = probe.is_cut();
  taken.failure = probe.failure().substr(0, kFailureBytesMax);
  probes_[rank] = std::move(taken);
  fresh_.insert(rank);
  is_dirty_ = true;
  return {};
}

bool SiteTopology::refresh() {
  if (!std::exchange(is_dirty_, false)) return false;
  const bool has_failed = std::ranges::any_of(probes_, [](const auto& entry) { return !entry.second.failure.empty(); });
  const bool is_whole = fresh_.size() == options_.ranks;
  if (!is_whole && !has_failed) return false;  // the others are about to report
  if (is_whole) fresh_.clear();
  std::vector<topology::ProbeReport> reports;
  for (const auto& [rank, probe] : probes_) reports.push_back(probe.report);
  const Status merged = merge(topology::make_probe_graph(reports));
  if (!merged) log_warning("topology", "the probe's figures do not fit topology.file: {}", merged.error().to_string());
  is_of_earlier_run_ = false;
  status_ = std::make_shared<const TopologyStatus>(summarize());
  if (const Status saved = save(); !saved) log_warning("topology", "{}", saved.error().to_string());
  log_info("topology", "probe of the site {}: {} of {} pairs of ranks in {:.2f} s, {:.3g} to {:.3g} GB/s, {:.3g} us{}{}", status_->probe,
           status_->pairs, status_->pairs_planned, status_->seconds, status_->gb_per_second.least, status_->gb_per_second.most,
           status_->latency_us.median, status_->failure.empty() ? "" : ": ", status_->failure);
  return true;
}

TopologyStatus SiteTopology::summarize() const {
  TopologyStatus status;
  status.is_of_earlier_run = is_of_earlier_run_;
  std::vector<double> rates;
  std::vector<double> latencies;
  for (const topology::MeasuredLink& link : topology::measured_links(graph_)) {
    const topology::Device& from = graph_.devices[link.from];
    const topology::Device& to = graph_.devices[link.to];
    if (status.links.size() < kTopologyLinksShownMax) {
      status.links.push_back({from.name, to.name, link.gb_per_second, link.latency_us, link.promised_gb_per_second});
    }
    if (from.kind != topology::DeviceKind::kRank) continue;
    rates.push_back(link.gb_per_second);
    if (link.latency_us) latencies.push_back(*link.latency_us);
  }
  status.pairs = (rates.size() + 1) / 2;
  status.machines = graph_.nnodes();
  status.gb_per_second = spread_of(std::move(rates));
  status.latency_us = spread_of(std::move(latencies));
  bool is_cut = false;
  for (const auto& [rank, probe] : probes_) {
    is_cut = is_cut || probe.is_cut;
    if (status.failure.empty() && !probe.failure.empty()) status.failure = fmt::format("rank {}: {}", rank, probe.failure);
    status.pairs_planned = std::max(status.pairs_planned, probe.pairs_planned);
    status.seconds = std::max(status.seconds, probe.seconds);
  }
  status.ranks_reported = probes_.size();
  const bool is_asked = options_.is_probing && options_.ranks > 1;
  status.probe = probes_.empty() ? (is_asked ? "waiting" : "off") : !status.failure.empty() ? "failed" : is_cut ? "cut" : "done";
  if (!graph_.devices.empty()) status.graph = std::make_shared<const std::string>(topology::write_graph_file(graph_));
  return status;
}

Status SiteTopology::save() const {
  if (!status_->graph) return {};
  const std::filesystem::path path = options_.state_directory / kFileName;
  SLUICE_TRY(auto file, DiskFile::open(path.string() + ".new", OpenMode::kReplace));
  SLUICE_CHECK_OK(file.write_at(0, ByteSpan(reinterpret_cast<const std::uint8_t*>(status_->graph->data()), status_->graph->size())));
  SLUICE_CHECK_OK(file.sync());
  SLUICE_CHECK_OK(file.rename_to(path));
  return sync_directory(options_.state_directory);
}

}  // namespace sluice::gateway
