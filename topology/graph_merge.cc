// Files are taken in the order of how much structure they have, so that a GPU hangs on its PCI device even when a table that knows no PCI
// tree was named first; the numbers of the files remain those of the caller. Cost: linear in devices and links.

#include "topology/graph_merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "topology/limits.h"

namespace sluice::topology {
namespace {

constexpr std::array<std::string_view, 8> kMachineKinds = {"nccl-xml", "hwloc-xml",   "live-hwloc", "nvml",
                                                           "sysfs",    "topo-matrix", "rocm-smi",   "numactl"};

// Position in kMachineKinds, or the end for descriptions of clusters.
std::size_t machine_rank(const SiteGraph& graph) {
  const std::string_view kind = graph.files.size() == 1 ? std::string_view(graph.files.front().kind) : std::string_view{};
  return static_cast<std::size_t>(std::ranges::find(kMachineKinds, kind) - kMachineKinds.begin());
}
bool is_machine(const SiteGraph& graph) { return machine_rank(graph) < kMachineKinds.size(); }

// A name that a driver made up by counting, "NIC3".
bool is_counted_name(const Device& nic) { return nic.hardware.empty() && nic.name.starts_with("NIC"); }

const std::string& system_name(const Device& device) { return device.hardware.empty() ? device.name : device.hardware; }

class Merger {
 public:
  explicit Merger(std::vector<MergeInput> inputs) : inputs_(std::move(inputs)) {}

  Result<SiteGraph> merge() {
    SLUICE_CHECK_OK(check_inputs());
    std::vector<FileIndex> first_file;
    for (const MergeInput& input : inputs_) {
      first_file.push_back(static_cast<FileIndex>(out_.files.size()));
      out_.files.insert(out_.files.end(), input.graph.files.begin(), input.graph.files.end());
    }
    for (const std::size_t index : order()) add_input(inputs_[index], first_file[index]);
    if (out_.devices.size() > kSiteDevicesMax || out_.links.size() > kSiteLinksMax) {
      return fail(ErrorCode::kTopologyTooLarge, "merge topologies",
                  fmt::format("{} devices and {} links", out_.devices.size(), out_.links.size()));
    }
    drop_closed_gaps();
    return std::move(out_);
  }

 private:
  [[nodiscard]] Status check_inputs() const {
    if (inputs_.empty()) return fail(ErrorCode::kInvalidArgument, "merge topologies", "nothing to merge");
    for (const MergeInput& input : inputs_) {
      if (input.node.empty() || input.graph.nnodes() == 1) continue;
      return fail(ErrorCode::kInvalidArgument, "merge topologies",
                  fmt::format("{} describes {} nodes: a node's name fits a file of one", input.graph.title(), input.graph.nnodes()));
    }
    return {};
  }

  // Descriptions of clusters, which name nodes; machines by structure; what is for all nodes.
  [[nodiscard]] std::vector<std::size_t> order() const {
    const auto rank = [&](std::size_t index) {
      const MergeInput& input = inputs_[index];
      if (input.node == "*") return std::size_t{1000};
      return is_machine(input.graph) ? 1 + machine_rank(input.graph) : 0;
    };
    std::vector<std::size_t> result(inputs_.size());
    std::iota(result.begin(), result.end(), std::size_t{0});
    std::ranges::stable_sort(result, {}, rank);
    return result;
  }

  void add_input(const MergeInput& input, FileIndex first_file) {
    add_notes(input.graph);
    if (input.node != "*") {
      add_graph(input.graph, first_file, input.node);
      return;
    }
    std::vector<bool> has_gpu(out_.devices.size(), false);
    const std::vector<DeviceIndex> node_of = nodes_of_devices(out_);
    for (DeviceIndex index = 0; index < out_.devices.size(); ++index) {
      if (out_.devices[index].kind == DeviceKind::kGpu && node_of[index] != kInNothing) has_gpu[node_of[index]] = true;
    }
    std::vector<std::string> names;
    for (DeviceIndex index = 0; index < has_gpu.size(); ++index) {
      if (out_.devices[index].kind == DeviceKind::kNode && !has_gpu[index]) names.push_back(out_.devices[index].name);
    }
    for (const std::string& name : names) add_graph(input.graph, first_file, name);
    if (names.empty())
      out_.add_problem("merge-unused", Severity::kWarning, input.graph.title(), "no node is without GPUs: the file was not used");
  }

  void add_notes(const SiteGraph& graph) {
    for (const Problem& problem : graph.problems) {
      if (out_.problems.size() >= kProblemsMax) break;
      out_.problems.push_back(problem);
      if (inputs_.size() > 1) out_.problems.back().where = fmt::format("{}: {}", graph.title(), problem.where);
    }
    out_.channel_files.insert(out_.channel_files.end(), graph.channel_files.begin(), graph.channel_files.end());
    for (const auto& [key, count] : graph.counts) out_.counts[key] += count;
  }

  void add_graph(const SiteGraph& graph, FileIndex first_file, const std::string& node_name) {
    std::vector<DeviceIndex> place(graph.devices.size());
    const std::vector<DeviceIndex> node_of = nodes_of_devices(graph);
    for (DeviceIndex index = 0; index < graph.devices.size(); ++index) {
      const Device& device = graph.devices[index];
      if (device.kind == DeviceKind::kNode) {
        place[index] = place_node(graph, device, node_name);
      } else {
        const DeviceIndex node = node_of[index] == kInNothing ? kInNothing : place[node_of[index]];
        place[index] = place_device(device, node, device.parent == index ? kInNothing : place[device.parent], graph.title());
      }
    }
    for (const Link& link : graph.links) {
      Link copy = link;
      copy.from = place[link.from];
      copy.to = place[link.to];
      copy.file += first_file;
      if (copy.from != copy.to) out_.links.push_back(std::move(copy));
    }
    compare_gpu_counts(graph, place);
  }

  DeviceIndex place_node(const SiteGraph& graph, const Device& node, const std::string& given_name) {
    const std::string name = given_name.empty() ? node.hardware : given_name;
    const std::string kind = is_machine(graph) ? graph.files.front().kind : std::string();
    DeviceIndex at = kInNothing;
    if (!name.empty()) {
      const auto known = node_by_name_.find(name);
      if (known != node_by_name_.end()) at = known->second;
    }
    if (at == kInNothing && !kind.empty() && given_name.empty()) at = undescribed_node(kind, name);
    if (at == kInNothing) {
      Device copy = node;
      copy.name = name.empty() ? fmt::format("node{}", machine_nodes_.size()) : name;
      copy.parent = kInNothing;
      at = out_.add_device(std::move(copy));
    }
    Device& placed = out_.devices[at];
    if (!name.empty()) {
      placed.name = placed.hardware = name;
      node_by_name_[name] = at;
    }
    if (placed.type.empty()) placed.type = node.type;
    if (placed.model.empty()) placed.model = node.model;
    if (!kind.empty()) {
      auto& kinds = machine_nodes_[at];
      if (kinds.empty()) machine_order_.push_back(at);
      kinds.push_back(kind);
    }
    return at;
  }

  // The first machine that no file of the kind describes; with a name, only one that has none yet.
  [[nodiscard]] DeviceIndex undescribed_node(const std::string& kind, const std::string& name) const {
    for (const DeviceIndex at : machine_order_) {
      const auto& kinds = machine_nodes_.at(at);
      if (!name.empty() && !out_.devices[at].hardware.empty()) continue;
      if (std::ranges::find(kinds, kind) == kinds.end()) return at;
    }
    // A network that names a single node and one machine's file: the same machine.
    if (name.empty() && node_by_name_.size() == 1 && !machine_nodes_.contains(node_by_name_.begin()->second))
      return node_by_name_.begin()->second;
    return kInNothing;
  }

  // "12/4/b/0000:0f:00.0": node, kind, how it is known.
  static std::string key(DeviceIndex node, DeviceKind kind, std::string_view how, std::string_view name) {
    return fmt::format("{}/{}/{}/{}", node, static_cast<int>(kind), how, name);
  }

  [[nodiscard]] DeviceIndex find_device(const Device& device, DeviceIndex node) const {
    const auto look = [&](std::string_view how, std::string_view name) {
      const auto known = known_.find(key(node, device.kind, how, name));
      return known == known_.end() ? kInNothing : known->second;
    };
    const auto is_other = [&](DeviceIndex at) {
      return at != kInNothing && !device.bus_id.empty() && !out_.devices[at].bus_id.empty() && device.bus_id != out_.devices[at].bus_id;
    };
    if (device.kind == DeviceKind::kCpu && device.numa) {
      if (const DeviceIndex at = look("numa", std::to_string(*device.numa)); at != kInNothing) return at;
    }
    if (device.kind == DeviceKind::kNic) {
      // Ports of one card share an address, so the name in the system decides where both sides have one.
      const DeviceIndex by_name = look("name", system_name(device));
      if (by_name != kInNothing && !is_other(by_name)) return by_name;
      if (device.bus_id.empty()) return kInNothing;
      const DeviceIndex by_bus = look("bus", device.bus_id);
      if (by_bus == kInNothing) return kInNothing;
      return is_counted_name(device) || is_counted_name(out_.devices[by_bus]) ? by_bus : kInNothing;
    }
    if (!device.bus_id.empty()) {
      if (const DeviceIndex at = look("bus", device.bus_id); at != kInNothing) return at;
    }
    const DeviceIndex at = look("name", device.name);
    return is_other(at) ? kInNothing : at;
  }

  DeviceIndex place_device(const Device& device, DeviceIndex node, DeviceIndex parent, const std::string& title) {
    DeviceIndex at = find_device(device, node);
    if (at == kInNothing) {
      Device copy = device;
      copy.parent = parent;
      at = out_.add_device(std::move(copy));
    } else {
      fill(out_.devices[at], device, title);
      if (parent != kInNothing && parent < at && out_.devices[out_.devices[at].parent].kind == DeviceKind::kNode)
        out_.devices[at].parent = parent;
    }
    const Device& placed = out_.devices[at];
    if (!placed.bus_id.empty()) known_.emplace(key(node, device.kind, "bus", placed.bus_id), at);
    known_.emplace(key(node, device.kind, "name", device.kind == DeviceKind::kNic ? system_name(device) : device.name), at);
    if (device.kind == DeviceKind::kCpu && placed.numa) known_.emplace(key(node, device.kind, "numa", std::to_string(*placed.numa)), at);
    return at;
  }

  void fill(Device& placed, const Device& device, const std::string& title) {
    const auto take = [](std::string& mine, const std::string& theirs) {
      if (mine.empty()) mine = theirs;
    };
    if (placed.kind == DeviceKind::kNic && is_counted_name(placed) && !is_counted_name(device)) take(placed.hardware, system_name(device));
    take(placed.hardware, device.hardware);
    take(placed.bus_id, device.bus_id);
    take(placed.pci_class, device.pci_class);
    take(placed.type, device.type);
    take(placed.model, device.model);
    if (!placed.numa) placed.numa = device.numa;
    if (!placed.network_gb_per_second) placed.network_gb_per_second = device.network_gb_per_second;
    if (placed.fast_links != 0 && device.fast_links != 0 && placed.fast_links != device.fast_links) {
      out_.add_problem("nvlink-count-differs", Severity::kWarning, fmt::format("{}: {}", title, placed.name),
                       fmt::format("{} NVLink lanes here, {} in another file", device.fast_links, placed.fast_links));
    }
    if (placed.fast_links == 0) placed.fast_links = device.fast_links;
  }

  // Two files of one machine that do not have the same number of GPUs do not describe the same machine.
  void compare_gpu_counts(const SiteGraph& graph, const std::vector<DeviceIndex>& place) {
    if (!is_machine(graph) || graph.ngpus() == 0) return;
    const auto node = std::ranges::find(graph.devices, DeviceKind::kNode, &Device::kind);
    if (node == graph.devices.end()) return;
    const DeviceIndex at = place[static_cast<std::size_t>(node - graph.devices.begin())];
    const auto [known, is_new] = gpus_of_node_.emplace(at, std::pair(graph.ngpus(), graph.title()));
    if (is_new || known->second.first == graph.ngpus()) return;
    out_.add_problem("merge-gpu-count", Severity::kError, out_.devices[at].name,
                     fmt::format("{} has {} GPUs, {} has {}: the files are not of one machine, or one is cut", known->second.second,
                                 known->second.first, graph.title(), graph.ngpus()));
  }

  // A gap of one file that another has closed.
  void drop_closed_gaps() {
    std::vector<bool> has_gpu(out_.devices.size(), false);
    std::vector<bool> has_nic(out_.devices.size(), false);
    const std::vector<DeviceIndex> node_of = nodes_of_devices(out_);
    for (DeviceIndex index = 0; index < out_.devices.size(); ++index) {
      if (node_of[index] == kInNothing) continue;
      if (out_.devices[index].kind == DeviceKind::kGpu) has_gpu[node_of[index]] = true;
      if (out_.devices[index].kind == DeviceKind::kNic) has_nic[node_of[index]] = true;
    }
    const auto all_nodes = [&](const std::vector<bool>& has) {
      for (DeviceIndex index = 0; index < out_.devices.size(); ++index) {
        if (out_.devices[index].kind == DeviceKind::kNode && !has[index]) return false;
      }
      return out_.nnodes() != 0;
    };
    const bool has_gpus = all_nodes(has_gpu);
    const bool has_nics = all_nodes(has_nic);
    const bool is_seen_twice =
        !machine_nodes_.empty() && std::ranges::all_of(machine_nodes_, [](const auto& node) { return node.second.size() > 1; });
    std::erase_if(out_.problems, [&](const Problem& problem) {
      if (!problem.is_gap) return false;
      if (problem.id == "no-gpus" || problem.id == "no-nodes" || problem.id == "graph-file" || problem.id == "no-io-devices")
        return has_gpus;
      if (problem.id == "no-nics") return has_nics;
      if (problem.id == "no-gpu-elements" || problem.id == "no-links") return has_gpus && is_seen_twice;
      if (problem.id == "no-net-elements") return has_nics && is_seen_twice;
      if (problem.id == "no-pci-class") return has_gpus && has_nics && is_seen_twice;
      return false;
    });
    out_.is_partial = std::ranges::any_of(out_.problems, &Problem::is_gap);
  }

  std::vector<MergeInput> inputs_;
  SiteGraph out_;
  std::unordered_map<std::string, DeviceIndex> node_by_name_;
  std::map<DeviceIndex, std::vector<std::string>> machine_nodes_;  // kinds of files that describe it
  std::vector<DeviceIndex> machine_order_;
  std::unordered_map<std::string, DeviceIndex> known_;
  std::map<DeviceIndex, std::pair<std::size_t, std::string>> gpus_of_node_;
};

}  // namespace

Result<SiteGraph> merge_graphs(std::vector<MergeInput> inputs) { return Merger(std::move(inputs)).merge(); }

}  // namespace sluice::topology
