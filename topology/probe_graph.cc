#include "topology/probe_graph.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

#include "topology/graph_arrays.h"

namespace sluice::topology {
namespace {

constexpr const char* kProbeKind = "probe";

class ProbeGraphMaker {
 public:
  ProbeGraphMaker() { graph_.files.push_back({"probe", kProbeKind}); }

  void add_rank(const ProbeReport& report) {
    auto [machine, is_new] = machines_.emplace(report.machine, 0);
    if (is_new) {
      Device node;
      node.name = node.hardware = report.machine;
      node.parent = kInNothing;
      machine->second = graph_.add_device(std::move(node));
    }
    Device rank;
    rank.kind = DeviceKind::kRank;
    rank.name = fmt::format("rank{}", report.rank);
    rank.parent = machine->second;
    ranks_[report.rank] = graph_.add_device(std::move(rank));
  }

  void add_pair(const ProbedPair& pair) {
    const auto leader = ranks_.find(pair.leader);
    const auto follower = ranks_.find(pair.follower);
    if (leader == ranks_.end() || follower == ranks_.end() || leader == follower) return;
    add_link(leader->second, follower->second, pair.forward_gb_per_second, pair.latency_us);
    add_link(follower->second, leader->second, pair.backward_gb_per_second, pair.latency_us);
  }

  SiteGraph take() { return std::move(graph_); }

 private:
  void add_link(DeviceIndex from, DeviceIndex to, std::optional<double> rate, std::optional<double> latency_us) {
    if (!rate) return;
    graph_.add_measured(from, to, *rate, latency_us.value_or(0.0), 0);
    const DeviceIndex source = graph_.devices[from].parent;
    const DeviceIndex target = graph_.devices[to].parent;
    if (source != target) graph_.add_measured(source, target, *rate, latency_us.value_or(0.0), 0);
  }

  SiteGraph graph_;
  std::map<std::string, DeviceIndex> machines_;
  std::map<RankId, DeviceIndex> ranks_;
};

bool is_measured_end(const Device& device) { return device.kind == DeviceKind::kNode || device.kind == DeviceKind::kRank; }

}  // namespace

SiteGraph make_probe_graph(std::span<const ProbeReport> reports) {
  ProbeGraphMaker maker;
  for (const ProbeReport& report : reports) maker.add_rank(report);
  for (const ProbeReport& report : reports) {
    for (const ProbedPair& pair : report.pairs) maker.add_pair(pair);
  }
  return maker.take();
}

SiteGraph measured_part(const SiteGraph& graph) {
  SiteGraph part;
  part.files.push_back({"probe", kProbeKind});
  std::vector<DeviceIndex> place(graph.devices.size(), kInNothing);
  const std::vector<DeviceIndex> node_of = nodes_of_devices(graph);
  std::vector<bool> is_wanted(graph.devices.size(), false);
  const auto counts = [&](const Link& link) {
    return link.basis == LinkBasis::kMeasured && link.gb_per_second && is_measured_end(graph.devices[link.from]) &&
           is_measured_end(graph.devices[link.to]);
  };
  for (const Link& link : graph.links) {
    if (!counts(link)) continue;
    for (const DeviceIndex end : {link.from, link.to}) {
      is_wanted[end] = true;
      if (node_of[end] != kInNothing) is_wanted[node_of[end]] = true;
    }
  }
  for (DeviceIndex index = 0; index < graph.devices.size(); ++index) {
    if (!is_wanted[index]) continue;
    Device copy;
    copy.kind = graph.devices[index].kind;
    copy.name = graph.devices[index].name;
    copy.hardware = graph.devices[index].hardware;
    const bool is_inside = node_of[index] != kInNothing && node_of[index] != index;
    copy.parent = is_inside ? place[node_of[index]] : kInNothing;
    place[index] = part.add_device(std::move(copy));
  }
  for (const Link& link : graph.links) {
    if (counts(link)) part.add_measured(place[link.from], place[link.to], *link.gb_per_second, link.latency_us.value_or(0.0), 0);
  }
  return part;
}

std::vector<MeasuredLink> measured_links(const SiteGraph& graph) {
  SiteGraph promised;
  promised.devices = graph.devices;
  std::vector<MeasuredLink> measured;
  for (const Link& link : graph.links) {
    if (link.basis != LinkBasis::kMeasured) {
      promised.links.push_back(link);
    } else if (link.gb_per_second) {
      measured.push_back({link.from, link.to, *link.gb_per_second, link.latency_us, std::nullopt});
    }
  }
  const NodeSpeeds nodes(promised);
  const SpeedRows gpus = speed_intra(promised);
  std::vector<std::size_t> number(graph.devices.size(), 0);
  std::map<DeviceKind, std::size_t> next;
  for (DeviceIndex index = 0; index < graph.devices.size(); ++index) number[index] = next[graph.devices[index].kind]++;
  for (MeasuredLink& link : measured) {
    const DeviceKind kind = graph.devices[link.from].kind;
    if (graph.devices[link.to].kind != kind) continue;
    std::optional<Speed> speed;
    if (kind == DeviceKind::kNode) speed = nodes.at(number[link.from], number[link.to]);
    if (kind == DeviceKind::kGpu) speed = gpus.at(number[link.from], number[link.to]);
    if (speed) link.promised_gb_per_second = speed->gb_per_second;
  }
  return measured;
}

}  // namespace sluice::topology
