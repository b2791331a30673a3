// Checks of machines against each other, and of NCCL graph files against machines.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "topology/internal/findings.h"
#include "topology/internal/node_views.h"

namespace sluice::topology {
namespace {

using Views = std::vector<NodeView>;

std::string system_name(const Device& device) { return device.hardware.empty() ? device.name : device.hardware; }

std::string join_names(const std::set<std::string>& names) { return fmt::format("{}", fmt::join(names, ",")); }

// What most nodes have counts as right; the first of equals.
template <typename Value>
const Value& usual_value(const std::vector<std::pair<const NodeView*, Value>>& values) {
  std::map<Value, std::size_t> counts;
  for (const auto& [view, value] : values) ++counts[value];
  const Value* usual = &values.front().second;
  for (const auto& [view, value] : values) {
    if (counts[value] > counts[*usual]) usual = &value;
  }
  return *usual;
}

void check_graph_files(const SiteGraph& graph, const Views& views, Findings& findings) {
  findings.open("graph-file-stale");
  for (const ChannelFile& file : graph.channel_files) {
    for (const NodeView& view : views) {
      if (view.gpus.empty()) continue;
      std::set<int> there;
      for (const DeviceIndex gpu : view.gpus) {
        const std::string digits = graph.devices[gpu].name.substr(std::min<std::size_t>(3, graph.devices[gpu].name.size()));
        if (!digits.empty() && digits.size() < 6 && digits.find_first_not_of("0123456789") == std::string::npos)
          there.insert(std::stoi(digits));
      }
      const std::set<int> used(file.gpus.begin(), file.gpus.end());
      if (there.empty() || used.empty() || used == there) continue;
      findings.add(graph.devices[view.node].name,
                   fmt::format("{} uses GPUs {}; the machine has {}", file.name, fmt::join(used, ","), fmt::join(there, ",")));
    }
  }
}

void check_nic_sets(const SiteGraph& graph, const Views& views, Findings& findings) {
  findings.open("nic-sets-differ");
  std::vector<std::pair<const NodeView*, std::set<std::string>>> sets;
  for (const NodeView& view : views) {
    if (view.nics.empty() || view.gpus.empty()) continue;  // a network's own names of ports are not those of the machines
    std::set<std::string> names;
    for (const DeviceIndex nic : view.nics) names.insert(system_name(graph.devices[nic]));
    sets.emplace_back(&view, std::move(names));
  }
  if (sets.size() < 2) return;
  const std::set<std::string>& usual = usual_value(sets);
  for (const auto& [view, names] : sets) {
    if (names != usual) findings.add(graph.devices[view->node].name, fmt::format("{}; most have {}", join_names(names), join_names(usual)));
  }
}

// "GPU0:mlx5_0 GPU1:mlx5_1": the NICs nearest to each GPU.
std::string nearest_map(const SiteGraph& graph, const NodeView& view) {
  std::map<std::string, std::set<std::string>> nearest;
  for (std::size_t gpu = 0; gpu < view.gpus.size(); ++gpu) {
    int least = 6;
    for (std::size_t nic = 0; nic < view.nics.size(); ++nic) least = std::min(least, label_distance(view.nic_label(gpu, nic)));
    auto& names = nearest[graph.devices[view.gpus[gpu]].name];
    for (std::size_t nic = 0; nic < view.nics.size(); ++nic) {
      if (least < 6 && label_distance(view.nic_label(gpu, nic)) == least) names.insert(system_name(graph.devices[view.nics[nic]]));
    }
  }
  std::string text;
  for (const auto& [gpu, names] : nearest) text += fmt::format("{}{}:{}", text.empty() ? "" : " ", gpu, join_names(names));
  return text;
}

void check_gpu_nic_maps(const SiteGraph& graph, const Views& views, Findings& findings) {
  findings.open("gpu-nic-map-differs");
  std::vector<std::pair<const NodeView*, std::string>> maps;
  for (const NodeView& view : views) {
    if (!view.labels.empty() && !view.gpus.empty() && !view.nics.empty()) maps.emplace_back(&view, nearest_map(graph, view));
  }
  if (maps.size() < 2) return;
  const std::string& usual = usual_value(maps);
  for (const auto& [view, map] : maps) {
    if (map != usual) findings.add(graph.devices[view->node].name, fmt::format("{}; most have {}", map, usual));
  }
}

void check_gpu_counts(const SiteGraph& graph, const Views& views, Findings& findings) {
  findings.open("gpu-counts-differ");
  std::vector<std::pair<const NodeView*, std::size_t>> counts;
  for (const NodeView& view : views) {
    if (!view.gpus.empty()) counts.emplace_back(&view, view.gpus.size());
  }
  if (counts.size() < 2) return;
  const std::size_t usual = usual_value(counts);
  for (const auto& [view, count] : counts) {
    if (count != usual) findings.add(graph.devices[view->node].name, fmt::format("{} GPUs; most have {}", count, usual));
  }
}

void check_gpu_types(const SiteGraph& graph, const Views& views, Findings& findings) {
  findings.open("gpu-types-differ");
  std::map<std::string, std::pair<std::size_t, std::string>> types;  // number, first place
  for (const NodeView& view : views) {
    for (const DeviceIndex gpu : view.gpus) {
      const Device& device = graph.devices[gpu];
      const std::string& type = device.type.empty() ? device.model : device.type;
      if (type.empty()) continue;
      auto& [number, place] = types[type];
      if (number++ == 0) place = name_in_site(graph, view, gpu);
    }
  }
  if (types.size() < 2) return;
  std::string text;
  for (const auto& [type, entry] : types) text += fmt::format("{}{} of {}", text.empty() ? "" : ", ", entry.first, type);
  const auto rarest = std::ranges::min_element(types, {}, [](const auto& entry) { return entry.second.first; });
  findings.add(rarest->second.second, text);
}

void check_server_models(const SiteGraph& graph, const Views& views, Findings& findings) {
  findings.open("server-models-differ");
  std::map<std::string, std::string> models;  // first node
  for (const NodeView& view : views) {
    const Device& node = graph.devices[view.node];
    if (!node.model.empty()) models.emplace(node.model, node.name);
  }
  if (models.size() < 2) return;
  std::string text;
  for (const auto& [model, node] : models) text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", model, node);
  findings.add("site", text);
}

}  // namespace

void check_site(const SiteGraph& graph, Findings& findings) {
  const Views views = view_nodes(graph);
  check_graph_files(graph, views, findings);
  check_nic_sets(graph, views, findings);
  check_gpu_nic_maps(graph, views, findings);
  check_gpu_counts(graph, views, findings);
  check_gpu_types(graph, views, findings);
  check_server_models(graph, views, findings);
}

}  // namespace sluice::topology
