#pragma once

// A graph of nodes, network switches and groups made by name: what the descriptions of clusters have in common. Pure.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "topology/site_graph.h"

namespace sluice::topology {

class ClusterBuilder {
 public:
  ClusterBuilder(const std::string& file, std::string kind);

  // The device of this kind and name, made when it is new. A node's name is that of its operating system.
  DeviceIndex node(const std::string& name) { return find_or_add(DeviceKind::kNode, name); }
  DeviceIndex network_switch(const std::string& name) { return find_or_add(DeviceKind::kSwitch, name); }
  DeviceIndex group(const std::string& name) { return find_or_add(DeviceKind::kGroup, name); }
  [[nodiscard]] std::optional<DeviceIndex> find(DeviceKind kind, const std::string& name) const;

  // Stated, both ways. A pair that has a link of the label already gets none.
  void join(DeviceIndex left, DeviceIndex right, std::string label, std::optional<double> gb_per_second = std::nullopt,
            std::optional<double> latency_us = std::nullopt);

  SiteGraph& graph() { return graph_; }
  // Reports what descriptions of clusters leave out: GPUs when there are none.
  SiteGraph take();

 private:
  DeviceIndex find_or_add(DeviceKind kind, const std::string& name);

  SiteGraph graph_;
  std::unordered_map<std::string, DeviceIndex> by_name_;  // kind's letter and name
  std::unordered_map<std::uint64_t, std::string> joined_;
};

}  // namespace sluice::topology
