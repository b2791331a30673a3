#include "topology/graph_arrays.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/assert.h"
#include "topology/internal/link_rank.h"

namespace sluice::topology {
namespace {

std::vector<std::size_t> number_devices(const SiteGraph& graph, DeviceKind kind) {
  std::vector<std::size_t> numbers(graph.devices.size(), kInNothing);
  std::size_t next = 0;
  for (DeviceIndex index = 0; index < graph.devices.size(); ++index) {
    if (graph.devices[index].kind == kind) numbers[index] = next++;
  }
  return numbers;
}

// Sets of devices that links join.
class Parts {
 public:
  explicit Parts(std::size_t size) : above_(size) { std::iota(above_.begin(), above_.end(), std::size_t{0}); }
  std::size_t find(std::size_t at) {
    while (above_[at] != at) at = above_[at] = above_[above_[at]];
    return at;
  }
  void join(std::size_t left, std::size_t right) { above_[find(left)] = find(right); }

 private:
  std::vector<std::size_t> above_;
};

}  // namespace

SpeedRows::SpeedRows(const SiteGraph& graph, DeviceKind kind) : rows_(graph.count(kind)) {
  const std::vector<std::size_t> numbers = number_devices(graph, kind);
  std::vector<const Link*> links;
  for (const Link& link : graph.links) {
    if (link.gb_per_second && link.from != link.to && numbers[link.from] != kInNothing && numbers[link.to] != kInNothing) {
      links.push_back(&link);
    }
  }
  std::ranges::stable_sort(links, [](const Link* left, const Link* right) {
    if (left->from != right->from) return left->from < right->from;
    if (left->to != right->to) return left->to < right->to;
    return speed_rank(*left) > speed_rank(*right);
  });
  for (const Link* link : links) {
    std::vector<Entry>& row = rows_[numbers[link->from]];
    const std::size_t to = numbers[link->to];
    if (!row.empty() && row.back().to == to) continue;
    row.push_back({to, {*link->gb_per_second, link->basis, link->file, link->latency_us}});
  }
}

std::optional<Speed> SpeedRows::at(std::size_t from, std::size_t to) const {
  SLUICE_ASSERT(from < rows_.size() && to < rows_.size());
  const auto found = std::ranges::lower_bound(rows_[from], to, {}, &Entry::to);
  return found != rows_[from].end() && found->to == to ? std::optional(found->speed) : std::nullopt;
}

SpeedRows speed_intra(const SiteGraph& graph) { return {graph, DeviceKind::kGpu}; }

NodeSpeeds::NodeSpeeds(const SiteGraph& graph) : direct_(graph, DeviceKind::kNode), nodes_(direct_.size()) {
  add_ports(graph);
  join_fabric(graph);
}

// A port counts by its link into the network where one is stated, otherwise by its own speed; a node's own link to a switch counts too.
void NodeSpeeds::add_ports(const SiteGraph& graph) {
  const std::vector<std::size_t> numbers = number_devices(graph, DeviceKind::kNode);
  const std::vector<DeviceIndex> node_of = nodes_of_devices(graph);
  std::vector<std::optional<double>> port(graph.devices.size());
  for (DeviceIndex index = 0; index < graph.devices.size(); ++index) {
    if (graph.devices[index].kind == DeviceKind::kNic) port[index] = graph.devices[index].network_gb_per_second;
  }
  std::vector<FileIndex> file(graph.devices.size(), 0);
  std::vector<bool> has_link(graph.devices.size(), false);
  for (const Link& link : graph.links) {
    const DeviceKind from = graph.devices[link.from].kind;
    if (graph.devices[link.to].kind != DeviceKind::kSwitch || (from != DeviceKind::kNic && from != DeviceKind::kNode)) continue;
    if (!link.gb_per_second) continue;
    port[link.from] = has_link[link.from] ? *port[link.from] + *link.gb_per_second : *link.gb_per_second;
    has_link[link.from] = true;
    file[link.from] = link.file;
  }
  for (DeviceIndex index = 0; index < graph.devices.size(); ++index) {
    if (!port[index] || node_of[index] == kInNothing) continue;
    Node& node = nodes_[numbers[node_of[index]]];
    node.ports = node.ports.value_or(0) + *port[index];
    node.file = file[index];
  }
}

void NodeSpeeds::join_fabric(const SiteGraph& graph) {
  const std::vector<std::size_t> numbers = number_devices(graph, DeviceKind::kNode);
  const std::vector<DeviceIndex> node_of = nodes_of_devices(graph);
  const auto is_switch = [&](DeviceIndex index) { return graph.devices[index].kind == DeviceKind::kSwitch; };
  const auto end_of = [&](DeviceIndex index) { return node_of[index] == kInNothing ? index : node_of[index]; };
  Parts parts(graph.devices.size());
  std::vector<std::optional<double>> way_up(graph.devices.size());  // of a switch to others
  std::vector<std::pair<DeviceIndex, DeviceIndex>> leaves;          // of a node
  for (const Link& link : graph.links) {
    if (!is_switch(link.from) && !is_switch(link.to)) continue;
    has_fabric_ = true;
    parts.join(end_of(link.from), end_of(link.to));
    if (is_switch(link.from) && is_switch(link.to)) {
      if (link.gb_per_second) way_up[link.from] = way_up[link.from].value_or(0) + *link.gb_per_second;
    } else if (is_switch(link.to)) {
      leaves.emplace_back(end_of(link.from), link.to);
    }
  }
  for (DeviceIndex index = 0; index < graph.devices.size(); ++index) {
    if (numbers[index] == kInNothing) continue;
    nodes_[numbers[index]].fabric = parts.find(index);
    nodes_[numbers[index]].leaf = index;
  }
  std::ranges::sort(leaves);
  leaves.erase(std::unique(leaves.begin(), leaves.end()), leaves.end());
  for (auto first = leaves.begin(); first != leaves.end();) {
    const auto last = std::find_if(first, leaves.end(), [&](const auto& pair) { return pair.first != first->first; });
    const bool is_known = std::all_of(first, last, [&](const auto& pair) { return way_up[pair.second].has_value(); });
    Node& node = nodes_[numbers[first->first]];
    node.leaf = first->second;
    if (is_known) node.way_up = std::accumulate(first, last, 0.0, [&](double sum, const auto& pair) { return sum + *way_up[pair.second]; });
    first = last;
  }
}

std::optional<Speed> NodeSpeeds::at(std::size_t from, std::size_t to) const {
  if (from == to) return std::nullopt;
  if (const auto direct = direct_.at(from, to)) return direct;
  const Node& left = nodes_[from];
  const Node& right = nodes_[to];
  if (!left.ports || !right.ports || (has_fabric_ && left.fabric != right.fabric)) return std::nullopt;
  double least = std::min(*left.ports, *right.ports);
  if (left.leaf != right.leaf && left.way_up && right.way_up) least = std::min({least, *left.way_up, *right.way_up});
  return Speed{least, LinkBasis::kDerived, left.file, std::nullopt};
}

std::vector<std::string> node_types(const SiteGraph& graph) {
  const std::vector<std::size_t> numbers = number_devices(graph, DeviceKind::kNode);
  const std::vector<DeviceIndex> node_of = nodes_of_devices(graph);
  std::vector<std::string> types(graph.nnodes());
  std::vector<std::map<std::string, std::size_t>> gpus(types.size());
  for (DeviceIndex index = 0; index < graph.devices.size(); ++index) {
    const Device& device = graph.devices[index];
    if (device.kind == DeviceKind::kNode) types[numbers[index]] = device.type;
    if (device.kind != DeviceKind::kGpu || node_of[index] == kInNothing) continue;
    const std::string& name = device.model.empty() ? device.type : device.model;
    ++gpus[numbers[node_of[index]]][name.empty() ? "GPU" : name];
  }
  for (std::size_t node = 0; node < types.size(); ++node) {
    if (!types[node].empty()) continue;
    for (const auto& [name, number] : gpus[node]) {
      types[node] += fmt::format("{}{}x {}", types[node].empty() ? "" : " + ", number, name);
    }
    if (types[node].empty()) types[node] = "unknown";
  }
  return types;
}

}  // namespace sluice::topology
