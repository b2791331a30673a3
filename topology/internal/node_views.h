#pragma once

// What the checks of one node look at: its GPUs and NICs and the label of every pair. Pure.

#include <cstddef>
#include <string_view>
#include <vector>

#include "topology/site_graph.h"

namespace sluice::topology {

struct NodeView {
  DeviceIndex node = 0;
  std::vector<DeviceIndex> gpus;
  std::vector<DeviceIndex> nics;
  std::vector<DeviceIndex> cpus;
  // [row][column] over gpus, then nics: the label from one to the other, "" when nothing is known. Views into the graph.
  std::vector<std::string_view> labels;

  [[nodiscard]] std::size_t endpoints() const { return gpus.size() + nics.size(); }
  [[nodiscard]] std::string_view label(std::size_t row, std::size_t column) const {
    return labels.empty() ? std::string_view{} : labels[row * endpoints() + column];
  }
  [[nodiscard]] std::string_view gpu_label(std::size_t left, std::size_t right) const { return label(left, right); }
  [[nodiscard]] std::string_view nic_label(std::size_t gpu, std::size_t nic) const { return label(gpu, gpus.size() + nic); }
};

// One for each node, in the order of the devices. `graph` must stay as it is while the views are used.
std::vector<NodeView> view_nodes(const SiteGraph& graph);

// How far apart a label says two devices are: NVLink 0, PIX 1, PXB 2, PHB 3, NODE 4, SYS 5; 6 for what is not known.
int label_distance(std::string_view label);

// "node03: GPU2"; without the node where there is only one.
std::string name_in_site(const SiteGraph& graph, const NodeView& view, DeviceIndex device);

}  // namespace sluice::topology
