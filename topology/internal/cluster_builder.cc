#include "topology/internal/cluster_builder.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::topology {
namespace {

std::string key_of(DeviceKind kind, const std::string& name) { return fmt::format("{}:{}", static_cast<int>(kind), name); }

}  // namespace

ClusterBuilder::ClusterBuilder(const std::string& file, std::string kind) { graph_.files.push_back({file, std::move(kind)}); }

std::optional<DeviceIndex> ClusterBuilder::find(DeviceKind kind, const std::string& name) const {
  const auto known = by_name_.find(key_of(kind, name));
  return known == by_name_.end() ? std::nullopt : std::optional(known->second);
}

DeviceIndex ClusterBuilder::find_or_add(DeviceKind kind, const std::string& name) {
  const auto [known, is_new] = by_name_.emplace(key_of(kind, name), graph_.devices.size());
  if (!is_new) return known->second;
  Device device;
  device.kind = kind;
  device.name = name;
  if (kind == DeviceKind::kNode) device.hardware = name;
  device.parent = kInNothing;
  return graph_.add_device(std::move(device));
}

void ClusterBuilder::join(DeviceIndex left, DeviceIndex right, std::string label, std::optional<double> gb_per_second,
                          std::optional<double> latency_us) {
  const auto [low, high] = std::minmax(left, right);
  const auto [known, is_new] = joined_.emplace((static_cast<std::uint64_t>(low) << 32U) | high, label);
  if (!is_new && known->second == label) return;
  graph_.add_both_ways({left, right, std::move(label), gb_per_second, LinkBasis::kStated, 0, latency_us});
}

SiteGraph ClusterBuilder::take() {
  if (graph_.nnodes() == 0 && graph_.ngpus() == 0) {
    graph_.add_gap("no-nodes", "file", "the file names no nodes");
  } else if (graph_.ngpus() == 0) {
    graph_.add_gap("no-gpus", "file",
                   "the file does not say how many GPUs a node has: add a file of each node, or of one as `*=FILE` when all are alike");
  }
  return std::move(graph_);
}

}  // namespace sluice::topology
