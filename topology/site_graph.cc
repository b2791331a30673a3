#include "topology/site_graph.h"

#include <algorithm>
#include <utility>

#include "topology/limits.h"

namespace sluice::topology {
namespace {

bool is_endpoint(const Device& device) { return device.kind == DeviceKind::kGpu || device.kind == DeviceKind::kNic; }

}  // namespace

std::string_view device_kind_name(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kNode:
      return "node";
    case DeviceKind::kCpu:
      return "cpu";
    case DeviceKind::kPci:
      return "pci";
    case DeviceKind::kNvSwitch:
      return "nvswitch";
    case DeviceKind::kGpu:
      return "gpu";
    case DeviceKind::kNic:
      return "nic";
  }
  return "";
}

std::string_view link_source_name(LinkSource source) {
  switch (source) {
    case LinkSource::kNcclXml:
      return "nccl-xml";
    case LinkSource::kTopoMatrix:
      return "topo-matrix";
    case LinkSource::kDerived:
      return "derived";
  }
  return "";
}

std::string_view severity_name(Severity severity) {
  switch (severity) {
    case Severity::kInfo:
      return "info";
    case Severity::kWarning:
      return "warning";
    case Severity::kError:
      return "error";
  }
  return "";
}

std::size_t SiteGraph::count(DeviceKind kind) const { return static_cast<std::size_t>(std::ranges::count(devices, kind, &Device::kind)); }

void SiteGraph::add_problem(std::string id, Severity severity, std::string where, std::string text) {
  if (problems.size() < kProblemsMax) problems.push_back({std::move(id), severity, std::move(where), std::move(text)});
}

void SiteGraph::add_gap(std::string id, std::string where, std::string text) {
  is_partial = true;
  add_problem(std::move(id), Severity::kWarning, std::move(where), std::move(text));
}

std::map<std::string, std::size_t> count_pairs(const SiteGraph& graph) {
  std::map<std::string, std::size_t> pairs;
  for (const Link& link : graph.links) {
    const Device& from = graph.devices[link.from];
    const Device& to = graph.devices[link.to];
    if (link.from >= link.to || !is_endpoint(from) || !is_endpoint(to)) continue;
    const int nics = (from.kind == DeviceKind::kNic ? 1 : 0) + (to.kind == DeviceKind::kNic ? 1 : 0);
    const std::string_view kinds = nics == 0 ? "GG:" : nics == 1 ? "GN:" : "NN:";
    ++pairs[std::string(kinds) + link.label];
  }
  return pairs;
}

std::vector<std::vector<std::optional<double>>> speed_intra(const SiteGraph& graph) {
  std::vector<std::size_t> position(graph.devices.size(), 0);
  std::size_t gpus = 0;
  for (std::size_t index = 0; index < graph.devices.size(); ++index) {
    if (graph.devices[index].kind == DeviceKind::kGpu) position[index] = gpus++;
  }
  std::vector<std::vector<std::optional<double>>> speeds(gpus, std::vector<std::optional<double>>(gpus));
  for (const Link& link : graph.links) {
    const bool joins_gpus = graph.devices[link.from].kind == DeviceKind::kGpu && graph.devices[link.to].kind == DeviceKind::kGpu;
    if (joins_gpus) speeds[position[link.from]][position[link.to]] = link.gb_per_second;
  }
  return speeds;
}

}  // namespace sluice::topology
