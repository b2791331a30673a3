#include "topology/internal/pci_paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
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
  PathFinder(SiteGraph& graph, Bandwidth socket) : graph_(graph), socket_(socket), uplink_(graph.devices.size()) {
    for (const Link& link : graph.links) {
      if (graph.devices[link.from].parent == link.to) uplink_[link.from] = link.gb_per_second;
      joined_.emplace(link.from, link.to);
      if (graph.devices[link.to].kind == DeviceKind::kNvSwitch) add_ports(link);
    }
  }

  void add_all() {
    std::vector<DeviceIndex> endpoints;
    for (DeviceIndex index = 0; index < graph_.devices.size(); ++index) {
      const DeviceKind kind = graph_.devices[index].kind;
      if (kind == DeviceKind::kGpu || kind == DeviceKind::kNic) endpoints.push_back(index);
    }
    for (const DeviceIndex from : endpoints) {
      for (const DeviceIndex to : endpoints) {
        if (from != to && !joined_.contains({from, to})) graph_.links.push_back(derive(from, to));
      }
    }
  }

 private:
  void add_ports(const Link& link) {
    SwitchPorts& ports = ports_[link.from];
    const bool is_first = ports.lanes == 0;
    ports.lanes = graph_.devices[link.from].fast_links;
    const Bandwidth sum = ports.gb_per_second && link.gb_per_second ? Bandwidth(*ports.gb_per_second + *link.gb_per_second) : std::nullopt;
    ports.gb_per_second = is_first ? link.gb_per_second : sum;
  }

  Link derive(DeviceIndex from, DeviceIndex to) const {
    const auto from_ports = ports_.find(from);
    const auto to_ports = ports_.find(to);
    if (from_ports == ports_.end() || to_ports == ports_.end()) return pci_path(from, to);
    const std::uint32_t lanes = std::min(from_ports->second.lanes, to_ports->second.lanes);
    return {from, to, fmt::format("NV{}", lanes), slower(from_ports->second.gb_per_second, to_ports->second.gb_per_second),
            LinkSource::kDerived};
  }

  // The devices from this one up to and including its CPU (or the node).
  std::vector<DeviceIndex> way_up(DeviceIndex index) const {
    std::vector<DeviceIndex> way;
    DeviceIndex at = graph_.devices[index].parent;
    while (graph_.devices[at].kind == DeviceKind::kPci) {
      way.push_back(at);
      at = graph_.devices[at].parent;
    }
    way.push_back(at);
    return way;
  }

  // Of the part of the way below `end`, the device's own link included.
  Bandwidth bandwidth_below(DeviceIndex index, DeviceIndex end) const {
    Bandwidth least;
    bool is_first = true;
    for (DeviceIndex at = graph_.devices[index].parent; at != end && graph_.devices[at].kind == DeviceKind::kPci;
         at = graph_.devices[at].parent) {
      least = is_first ? uplink_[at] : slower(least, uplink_[at]);
      is_first = false;
    }
    return least;
  }

  Link pci_path(DeviceIndex from, DeviceIndex to) const {
    const std::vector<DeviceIndex> up = way_up(from);
    const std::vector<DeviceIndex> down = way_up(to);
    for (std::size_t rise = 0; rise < up.size(); ++rise) {
      const auto meeting = std::ranges::find(down, up[rise]);
      if (meeting == down.end()) continue;
      const auto fall = static_cast<std::size_t>(meeting - down.begin());
      const Bandwidth speed = slower(bandwidth_below(from, up[rise]), bandwidth_below(to, up[rise]));
      if (graph_.devices[up[rise]].kind != DeviceKind::kPci) return {from, to, "PHB", speed, LinkSource::kDerived};
      // Each device's own PCI function is no bridge: two devices below one bridge have it alone between them.
      return {from, to, rise + fall <= 2 ? "PIX" : "PXB", speed, LinkSource::kDerived};
    }
    const Bandwidth speed = slower(slower(bandwidth_below(from, up.back()), bandwidth_below(to, down.back())), socket_);
    return {from, to, "SYS", speed, LinkSource::kDerived};
  }

  SiteGraph& graph_;
  Bandwidth socket_;
  std::vector<Bandwidth> uplink_;                         // by device: the link to its parent
  std::set<std::pair<DeviceIndex, DeviceIndex>> joined_;  // links that the file states
  std::map<DeviceIndex, SwitchPorts> ports_;
};

}  // namespace

void add_derived_links(SiteGraph& graph, std::optional<double> socket_gb_per_second) { PathFinder(graph, socket_gb_per_second).add_all(); }

}  // namespace sluice::topology
