#include "topology/site_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "topology/internal/link_rank.h"
#include "topology/limits.h"

namespace sluice::topology {
namespace {

constexpr std::array<std::string_view, 9> kKindNames = {"node", "cpu", "pci", "nvswitch", "gpu", "nic", "switch", "group", "rank"};
constexpr std::array<std::string_view, 3> kSeverityNames = {"info", "warning", "error"};

template <typename Enum, std::size_t kCount>
std::optional<Enum> find_name(const std::array<std::string_view, kCount>& names, std::string_view name) {
  const auto found = std::ranges::find(names, name);
  return found == names.end() ? std::nullopt : std::optional(static_cast<Enum>(found - names.begin()));
}

bool is_endpoint(const Device& device) { return device.kind == DeviceKind::kGpu || device.kind == DeviceKind::kNic; }

}  // namespace

std::string_view device_kind_name(DeviceKind kind) { return kKindNames.at(static_cast<std::size_t>(kind)); }
std::optional<DeviceKind> parse_device_kind(std::string_view name) { return find_name<DeviceKind>(kKindNames, name); }

std::string_view severity_name(Severity severity) { return kSeverityNames.at(static_cast<std::size_t>(severity)); }
std::optional<Severity> parse_severity(std::string_view name) { return find_name<Severity>(kSeverityNames, name); }

std::size_t SiteGraph::count(DeviceKind kind) const { return static_cast<std::size_t>(std::ranges::count(devices, kind, &Device::kind)); }

std::string SiteGraph::title() const { return files.size() == 1 ? files.front().name : fmt::format("{} files", files.size()); }

void SiteGraph::add_problem(std::string id, Severity severity, std::string where, std::string text) {
  if (problems.size() < kProblemsMax) problems.push_back({std::move(id), severity, std::move(where), std::move(text), false});
}

void SiteGraph::add_gap(std::string id, std::string where, std::string text) {
  is_partial = true;
  if (problems.size() < kProblemsMax) problems.push_back({std::move(id), Severity::kWarning, std::move(where), std::move(text), true});
}

void SiteGraph::add_measured(DeviceIndex from, DeviceIndex to, double gb_per_second, double latency_us, FileIndex file) {
  links.push_back({from, to, "measured", gb_per_second, LinkBasis::kMeasured, file, latency_us});
}

DeviceIndex SiteGraph::add_device(Device device) {
  const DeviceIndex at = devices.size();
  if (device.parent == kInNothing) device.parent = at;
  devices.push_back(std::move(device));
  return at;
}

void SiteGraph::add_both_ways(Link link) {
  Link back = link;
  std::swap(back.from, back.to);
  links.push_back(std::move(link));
  links.push_back(std::move(back));
}

std::vector<DeviceIndex> nodes_of_devices(const SiteGraph& graph) {
  std::vector<DeviceIndex> nodes(graph.devices.size(), kInNothing);
  for (DeviceIndex index = 0; index < graph.devices.size(); ++index) {
    const Device& device = graph.devices[index];
    if (device.kind == DeviceKind::kNode) {
      nodes[index] = index;
    } else if (device.parent < index) {
      nodes[index] = nodes[device.parent];
    }
  }
  return nodes;
}

std::map<std::string, std::size_t> count_pairs(const SiteGraph& graph) {
  std::vector<const Link*> pairs;
  for (const Link& link : graph.links) {
    if (link.from < link.to && is_endpoint(graph.devices[link.from]) && is_endpoint(graph.devices[link.to])) pairs.push_back(&link);
  }
  const auto ends = [](const Link* link) { return std::pair(link->from, link->to); };
  std::ranges::sort(pairs, [&](const Link* left, const Link* right) {
    if (ends(left) != ends(right)) return ends(left) < ends(right);
    return label_rank(*left) > label_rank(*right);
  });
  std::map<std::string, std::size_t> counts;
  for (std::size_t index = 0; index < pairs.size(); ++index) {
    if (index != 0 && ends(pairs[index - 1]) == ends(pairs[index])) continue;
    const Link& link = *pairs[index];
    const int nics =
        (graph.devices[link.from].kind == DeviceKind::kNic ? 1 : 0) + (graph.devices[link.to].kind == DeviceKind::kNic ? 1 : 0);
    const std::string_view kinds = nics == 0 ? "GG:" : nics == 1 ? "GN:" : "NN:";
    ++counts[std::string(kinds) + link.label];
  }
  return counts;
}

}  // namespace sluice::topology
