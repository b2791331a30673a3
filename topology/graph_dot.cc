#include "topology/graph_dot.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "topology/internal/link_rank.h"

namespace sluice::topology {
namespace {

std::string quoted_label(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += (c >= 0 && c < ' ') || c == '\x7f' ? '?' : c;
  }
  return result + '"';
}

std::string_view shape_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kGpu:
      return "box";
    case DeviceKind::kNic:
      return "cds";
    case DeviceKind::kSwitch:
    case DeviceKind::kNvSwitch:
      return "diamond";
    case DeviceKind::kNode:
      return "box3d";
    default:
      return "ellipse";
  }
}

}  // namespace

std::string write_dot(const SiteGraph& graph) {
  std::string out = "graph site {\n  node [fontsize=10];\n";
  const auto to = [&] { return std::back_inserter(out); };
  const std::vector<DeviceIndex> node_of = nodes_of_devices(graph);
  std::map<DeviceIndex, std::string> inside;  // by node
  for (DeviceIndex index = 0; index < graph.devices.size(); ++index) {
    const Device& device = graph.devices[index];
    std::string& place = node_of[index] == kInNothing ? out : inside[node_of[index]];
    fmt::format_to(std::back_inserter(place), "  d{} [label={},shape={}];\n", index, quoted_label(device.name), shape_of(device.kind));
  }
  for (const auto& [node, text] : inside) {
    fmt::format_to(to(), "  subgraph cluster_{} {{ label={};\n{}  }}\n", node, quoted_label(graph.devices[node].name), text);
  }
  std::map<std::pair<DeviceIndex, DeviceIndex>, const Link*> pairs;
  for (const Link& link : graph.links) {
    if (link.basis == LinkBasis::kDerived) continue;
    const Link*& best = pairs[std::minmax(link.from, link.to)];
    if (best == nullptr || label_rank(link) > label_rank(*best)) best = &link;
  }
  for (const auto& [ends, link] : pairs) {
    const std::string speed = link->gb_per_second ? fmt::format(" {:.4g} GB/s", *link->gb_per_second) : std::string();
    fmt::format_to(to(), "  d{} -- d{} [label={}];\n", ends.first, ends.second, quoted_label(link->label + speed));
  }
  return out + "}\n";
}

}  // namespace sluice::topology
