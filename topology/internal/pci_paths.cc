#include "topology/internal/pci_paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace sluice::topology {
namespace {

using Bandwidth = std::optional<double>;

Bandwidth slower(Bandwidth left, Bandwidth right) { return left && right ? Bandwidth(std::min(*left, *right)) : std::nullopt; }

struct SwitchPorts {
  std::uint32_t lanes = 0;
  Bandwidth gb_per_second;
};

class PathFinder {
 public:
  PathFinder(SiteGraph& graph, const PathOptions& options) : graph_(graph), options_(options), uplink_(graph.devices.size()) {
    for (const Link& link : graph.links) {
      if (graph.devices[link.from].parent == link.to) uplink_[link.from] = link.gb_per_second;
      joined_.insert(key(link.from, link.to));
      if (graph.devices[link.to].kind == DeviceKind::kNvSwitch) add_ports(link);
    }
  }

  void add_all() {
    const std::vector<DeviceIndex> node_of = nodes_of_devices(graph_);
    std::map<DeviceIndex, std::vector<DeviceIndex>> endpoints;  // by node
    for (DeviceIndex index = 0; index < graph_.devices.size(); ++index) {
      const DeviceKind kind = graph_.devices[index].kind;
      if ((kind == DeviceKind::kGpu || kind == DeviceKind::kNic) && node_of[index] != kInNothing) {
        endpoints[node_of[index]].push_back(index);
      }
    }
    for (const auto& [node, members] : endpoints) {
      for (const DeviceIndex from : members) {
        for (const DeviceIndex to : members) {
          if (from != to && !joined_.contains(key(from, to))) graph_.links.push_back(derive(from, to));
        }
      }
    }
  }

 private:
  [[nodiscard]] std::uint64_t key(DeviceIndex from, DeviceIndex to) const { return from * graph_.devices.size() + to; }

  void add_ports(const Link& link) {
    SwitchPorts& ports = ports_[link.from];
    const bool is_first = ports.lanes == 0;
    ports.lanes = graph_.devices[link.from].fast_links;
    const Bandwidth sum = ports.gb_per_second && link.gb_per_second ? Bandwidth(*ports.gb_per_second + *link.gb_per_second) : std::nullopt;
    ports.gb_per_second = is_first ? link.gb_per_second : sum;
  }

  [[nodiscard]] Link make_link(DeviceIndex from, DeviceIndex to, std::string label, Bandwidth speed) const {
    return {from, to, std::move(label), speed, LinkBasis::kDerived, options_.file};
  }

  [[nodiscard]] Link derive(DeviceIndex from, DeviceIndex to) const {
    const auto from_ports = ports_.find(from);
    const auto to_ports = ports_.find(to);
    if (from_ports == ports_.end() || to_ports == ports_.end()) return pci_path(from, to);
    const std::uint32_t lanes = std::min(from_ports->second.lanes, to_ports->second.lanes);
    return make_link(from, to, fmt::format("NV{}", lanes), slower(from_ports->second.gb_per_second, to_ports->second.gb_per_second));
  }

  // The devices from this one up to and including its CPU (or the node).
  [[nodiscard]] std::vector<DeviceIndex> way_up(DeviceIndex index) const {
    std::vector<DeviceIndex> way;
    DeviceIndex at = graph_.devices[index].parent;
    while (graph_.devices[at].kind == DeviceKind::kPci) {
      way.push_back(at);
      at = graph_.devices[at].parent;
    }
    way.push_back(at);
    return way;
  }

  // Of the part of the way below `end`, the device's own link included; a host bridge has no link of its own.
  [[nodiscard]] Bandwidth bandwidth_below(DeviceIndex index, DeviceIndex end) const {
    Bandwidth least;
    bool is_first = true;
    for (DeviceIndex at = graph_.devices[index].parent; at != end && graph_.devices[at].kind == DeviceKind::kPci;
         at = graph_.devices[at].parent) {
      if (is_host_bridge(at)) continue;
      least = is_first ? uplink_[at] : slower(least, uplink_[at]);
      is_first = false;
    }
    return least;
  }

  [[nodiscard]] bool is_host_bridge(DeviceIndex index) const { return graph_.devices[index].pci_class == kHostBridgeClass; }

  // What the way between two devices is called that meets in `meeting` after so many steps up and down.
  [[nodiscard]] std::string_view label_at(DeviceIndex meeting, DeviceIndex below, std::size_t steps) const {
    if (graph_.devices[meeting].kind != DeviceKind::kPci) return is_host_bridge(below) ? "NODE" : "PHB";
    if (is_host_bridge(meeting)) return "PHB";
    // Each device's own PCI function is no bridge: two devices below one switch have it alone between them.
    return steps <= 2 * options_.bridges_per_switch ? "PIX" : "PXB";
  }

  [[nodiscard]] Link pci_path(DeviceIndex from, DeviceIndex to) const {
    const std::vector<DeviceIndex> up = way_up(from);
    const std::vector<DeviceIndex> down = way_up(to);
    for (std::size_t rise = 0; rise < up.size(); ++rise) {
      const auto meeting = std::ranges::find(down, up[rise]);
      if (meeting == down.end() || graph_.devices[*meeting].kind == DeviceKind::kNode) continue;
      const auto fall = static_cast<std::size_t>(meeting - down.begin());
      const Bandwidth speed = slower(bandwidth_below(from, up[rise]), bandwidth_below(to, up[rise]));
      return make_link(from, to, std::string(label_at(up[rise], rise == 0 ? from : up[rise - 1], rise + fall)), speed);
    }
    const Bandwidth speed =
        slower(slower(bandwidth_below(from, up.back()), bandwidth_below(to, down.back())), options_.socket_gb_per_second);
    return make_link(from, to, "SYS", speed);
  }

  SiteGraph& graph_;
  PathOptions options_;
  std::vector<Bandwidth> uplink_;             // by device: the link to its parent
  std::unordered_set<std::uint64_t> joined_;  // links that the file states
  std::unordered_map<DeviceIndex, SwitchPorts> ports_;
};

}  // namespace

void add_derived_links(SiteGraph& graph, const PathOptions& options) { PathFinder(graph, options).add_all(); }

}  // namespace sluice::topology
