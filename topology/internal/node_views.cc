#include "topology/internal/node_views.h"

#include <fmt/format.h>

#include "topology/internal/link_rank.h"
#include "topology/limits.h"

namespace sluice::topology {

int label_distance(std::string_view label) {
  if (is_fast_label(label)) return 0;
  if (label == "PIX") return 1;
  if (label == "PXB" || label == "PXN") return 2;
  if (label == "PHB") return 3;
  if (label == "NODE") return 4;
  if (label == "SYS" || label == "SOC") return 5;
  return 6;
}

std::vector<NodeView> view_nodes(const SiteGraph& graph) {
  std::vector<NodeView> views;
  std::vector<std::size_t> view_of(graph.devices.size(), kInNothing);  // by node
  std::vector<std::size_t> place(graph.devices.size(), kInNothing);    // among the endpoints of its node
  const std::vector<DeviceIndex> node_of = nodes_of_devices(graph);
  for (DeviceIndex index = 0; index < graph.devices.size(); ++index) {
    if (graph.devices[index].kind != DeviceKind::kNode) continue;
    view_of[index] = views.size();
    views.emplace_back();
    views.back().node = index;
  }
  for (DeviceIndex index = 0; index < graph.devices.size(); ++index) {
    if (node_of[index] == kInNothing) continue;
    NodeView& view = views[view_of[node_of[index]]];
    const DeviceKind kind = graph.devices[index].kind;
    if (kind == DeviceKind::kGpu) view.gpus.push_back(index);
    if (kind == DeviceKind::kNic) view.nics.push_back(index);
    if (kind == DeviceKind::kCpu) view.cpus.push_back(index);
  }
  for (NodeView& view : views) {
    std::size_t next = 0;
    for (const DeviceIndex gpu : view.gpus) place[gpu] = next++;
    for (const DeviceIndex nic : view.nics) place[nic] = next++;
    if (view.endpoints() <= kEndpointsMax) view.labels.resize(view.endpoints() * view.endpoints());
  }
  for (const Link& link : graph.links) {
    if (place[link.from] == kInNothing || place[link.to] == kInNothing || node_of[link.from] != node_of[link.to]) continue;
    NodeView& view = views[view_of[node_of[link.from]]];
    if (view.labels.empty() || link.basis == LinkBasis::kMeasured) continue;
    std::string_view& label = view.labels[place[link.from] * view.endpoints() + place[link.to]];
    // A statement beats what was derived: derived links come after the stated ones of their file, and NVLink beats both.
    if (label.empty() || (is_fast_label(link.label) && !is_fast_label(label)) ||
        (link.basis == LinkBasis::kStated && !is_fast_label(label))) {
      label = link.label;
    }
  }
  return views;
}

std::string name_in_site(const SiteGraph& graph, const NodeView& view, DeviceIndex device) {
  const std::string& name = graph.devices[device].name;
  return graph.nnodes() == 1 ? name : fmt::format("{}: {}", graph.devices[view.node].name, name);
}

}  // namespace sluice::topology
