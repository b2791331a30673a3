// Checks of the network between machines.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "topology/internal/findings.h"

namespace sluice::topology {
namespace {

// A network counts as one of rails when so many of a leaf's ports are those of one NIC name.
constexpr double kRailShare = 0.8;
constexpr std::size_t kRailPortsLeast = 4;

struct Leaf {
  double down = 0;
  double up = 0;
  bool has_all_speeds = true;
  std::map<std::string, std::size_t> nics;  // ports by the NIC's name
};

std::map<DeviceIndex, Leaf> find_leaves(const SiteGraph& graph) {
  std::map<DeviceIndex, Leaf> leaves;
  const auto kind = [&](DeviceIndex index) { return graph.devices[index].kind; };
  for (const Link& link : graph.links) {
    if (kind(link.from) != DeviceKind::kSwitch || kind(link.to) == DeviceKind::kSwitch) continue;
    if (kind(link.to) != DeviceKind::kNic && kind(link.to) != DeviceKind::kNode) continue;
    Leaf& leaf = leaves[link.from];
    leaf.down += link.gb_per_second.value_or(0);
    leaf.has_all_speeds = leaf.has_all_speeds && link.gb_per_second.has_value();
    if (kind(link.to) == DeviceKind::kNic) ++leaf.nics[graph.devices[link.to].name];
  }
  for (const Link& link : graph.links) {
    const auto leaf = leaves.find(link.from);
    if (leaf == leaves.end() || kind(link.to) != DeviceKind::kSwitch) continue;
    leaf->second.up += link.gb_per_second.value_or(0);
    leaf->second.has_all_speeds = leaf->second.has_all_speeds && link.gb_per_second.has_value();
  }
  return leaves;
}

void check_oversubscribed(const SiteGraph& graph, const std::map<DeviceIndex, Leaf>& leaves, Findings& findings) {
  findings.open("leaf-oversubscribed");
  for (const auto& [index, leaf] : leaves) {
    if (!leaf.has_all_speeds || leaf.up == 0 || leaf.up * 2 >= leaf.down) continue;
    findings.add(graph.devices[index].name, fmt::format("{:.4g} GB/s to its nodes, {:.4g} GB/s up", leaf.down, leaf.up));
  }
}

std::string without_number(const std::string& name) { return name.substr(0, name.find_last_not_of("0123456789") + 1); }

void check_rails(const SiteGraph& graph, const std::map<DeviceIndex, Leaf>& leaves, Findings& findings) {
  findings.open("rail-mixed");
  std::size_t pure = 0;
  std::vector<DeviceIndex> mixed;
  for (const auto& [index, leaf] : leaves) {
    const auto usual = std::ranges::max_element(leaf.nics, {}, [](const auto& entry) { return entry.second; });
    if (usual == leaf.nics.end()) continue;
    // "mlx5_3" beside "mlx5_1" is another rail; beside "HCA-4" it may be the same one under another name.
    const std::size_t most = usual->second;
    std::size_t ports = 0;
    for (const auto& [name, number] : leaf.nics) {
      if (without_number(name) == without_number(usual->first)) ports += number;
    }
    if (ports < kRailPortsLeast) continue;
    if (most == ports) {
      ++pure;
    } else if (static_cast<double>(most) >= kRailShare * static_cast<double>(ports)) {
      mixed.push_back(index);
    }
  }
  if (pure + mixed.size() < 2) return;
  for (const DeviceIndex index : mixed) {
    std::string text;
    for (const auto& [name, number] : leaves.at(index).nics)
      text += fmt::format("{}{} ports of {}", text.empty() ? "" : ", ", number, name);
    findings.add(graph.devices[index].name, text);
  }
}

void check_outside(const SiteGraph& graph, Findings& findings) {
  findings.open("node-outside-network");
  const std::vector<DeviceIndex> node_of = nodes_of_devices(graph);
  std::vector<bool> is_joined(graph.devices.size(), false);
  bool has_network = false;
  for (const Link& link : graph.links) {
    const bool leads_out = graph.devices[link.to].kind == DeviceKind::kSwitch || graph.devices[link.to].kind == DeviceKind::kGroup ||
                           (node_of[link.to] != kInNothing && node_of[link.to] != node_of[link.from]);
    if (!leads_out || node_of[link.from] == kInNothing) continue;
    is_joined[node_of[link.from]] = true;
    has_network = true;
  }
  if (!has_network) return;
  for (DeviceIndex index = 0; index < graph.devices.size(); ++index) {
    const Device& device = graph.devices[index];
    if (device.kind == DeviceKind::kNode && !is_joined[index])
      findings.add(device.name, "other nodes have links to switches or to each other");
  }
}

}  // namespace

void check_network(const SiteGraph& graph, Findings& findings) {
  const std::map<DeviceIndex, Leaf> leaves = find_leaves(graph);
  check_oversubscribed(graph, leaves, findings);
  check_rails(graph, leaves, findings);
  check_outside(graph, findings);
}

}  // namespace sluice::topology
