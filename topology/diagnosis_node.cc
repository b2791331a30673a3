// Checks of one machine at a time.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "topology/internal/findings.h"
#include "topology/internal/link_rank.h"
#include "topology/internal/node_views.h"

namespace sluice::topology {
namespace {

// Below this a PCI link is no link that a GPU or fast NIC ever had: VMs report 0.2.
constexpr double kPciSlowest = 1.0;

using Views = std::vector<NodeView>;

bool has_nvlink(const NodeView& view, std::size_t gpu) {
  for (std::size_t other = 0; other < view.gpus.size(); ++other) {
    if (other != gpu && (is_fast_label(view.gpu_label(gpu, other)) || is_fast_label(view.gpu_label(other, gpu)))) return true;
  }
  return false;
}

// Whether anything is known of the way from this GPU to others.
bool has_row(const NodeView& view, std::size_t gpu) {
  for (std::size_t other = 0; other < view.endpoints(); ++other) {
    if (other != gpu && !view.label(gpu, other).empty()) return true;
  }
  return false;
}

// A pair joined by a bridge is no fabric: most GPUs must have peers, and each of these more than one.
void check_gpu_without_nvlink(const SiteGraph& graph, const Views& views, Findings& findings) {
  findings.open("gpu-without-nvlink");
  for (const NodeView& view : views) {
    if (view.labels.empty() || view.gpus.size() < 4) continue;
    std::vector<std::size_t> without;
    std::size_t with = 0;
    for (std::size_t gpu = 0; gpu < view.gpus.size(); ++gpu) {
      if (has_nvlink(view, gpu)) {
        ++with;
      } else if (has_row(view, gpu)) {
        without.push_back(gpu);
      }
    }
    if (with < 3 || without.size() >= with) continue;
    for (const std::size_t gpu : without) {
      const std::string_view label = view.gpu_label(gpu, gpu == 0 ? 1 : 0);
      findings.add(name_in_site(graph, view, view.gpus[gpu]),
                   fmt::format("{} to its peers, while {} of {} GPUs have NVLink", label, with, view.gpus.size()));
    }
  }
}

// Only where every pair is joined: in cube meshes GPUs at the edge have fewer lanes by design.
void check_nvlink_uneven(const SiteGraph& graph, const Views& views, Findings& findings) {
  findings.open("nvlink-uneven");
  for (const NodeView& view : views) {
    if (view.labels.empty() || view.gpus.size() < 3) continue;
    bool is_full = true;
    std::uint32_t most = 0;
    for (std::size_t gpu = 0; gpu < view.gpus.size(); ++gpu) {
      most = std::max(most, graph.devices[view.gpus[gpu]].fast_links);
      for (std::size_t other = 0; other < view.gpus.size(); ++other) {
        is_full = is_full && (gpu == other || view.gpu_label(gpu, other).starts_with("NV"));
      }
    }
    if (!is_full) continue;
    for (const DeviceIndex gpu : view.gpus) {
      const std::uint32_t lanes = graph.devices[gpu].fast_links;
      if (lanes != 0 && lanes < most) findings.add(name_in_site(graph, view, gpu), fmt::format("{} lanes, others have {}", lanes, most));
    }
  }
}

// Three GPUs and two NICs all PIX to each other: a real switch has two slots of each at most in machines with NICs beside the GPUs.
// Or: four GPUs and every NIC is PHB to every GPU, as when a hypervisor hangs everything on one root; where a file shows the tree itself,
// PHB only says that the way leads through the CPU.
bool is_flat(const SiteGraph& graph, const NodeView& view) {
  for (std::size_t gpu = 0; gpu < view.gpus.size(); ++gpu) {
    std::vector<std::size_t> near = {gpu};
    std::size_t nics = 0;
    for (std::size_t other = 0; other < view.endpoints(); ++other) {
      const bool is_near =
          other != gpu && std::ranges::all_of(near, [&](std::size_t member) { return view.label(member, other) == "PIX"; });
      if (!is_near) continue;
      near.push_back(other);
      if (other >= view.gpus.size()) ++nics;
    }
    if (near.size() - nics >= 3 && nics >= 2) return true;
  }
  if (view.gpus.size() < 4 || view.nics.empty() || graph.devices[graph.devices[view.gpus.front()].parent].kind == DeviceKind::kPci)
    return false;
  for (std::size_t gpu = 0; gpu < view.gpus.size(); ++gpu) {
    for (std::size_t nic = 0; nic < view.nics.size(); ++nic) {
      if (view.nic_label(gpu, nic) != "PHB") return false;
    }
  }
  return true;
}

void check_vm_flat_tree(const SiteGraph& graph, const Views& views, Findings& findings) {
  findings.open("vm-flat-tree");
  for (const NodeView& view : views) {
    if (view.labels.empty() || !is_flat(graph, view)) continue;
    findings.add(graph.devices[view.node].name,
                 fmt::format("{} GPUs and {} NICs look as if one switch or host bridge joined them", view.gpus.size(), view.nics.size()));
  }
}

void check_numa_unknown(const SiteGraph& graph, const Views& views, Findings& findings) {
  findings.open("numa-unknown");
  for (const NodeView& view : views) {
    for (const DeviceIndex cpu : view.cpus) {
      if (graph.devices[cpu].numa && *graph.devices[cpu].numa < 0) {
        findings.add(name_in_site(graph, view, cpu), fmt::format("NUMA number {}", *graph.devices[cpu].numa));
      }
    }
  }
}

// The PCI link of each GPU and NIC, against those of its kind in the same machine.
void check_pci_link_slow(const SiteGraph& graph, const Views& views, Findings& findings) {
  findings.open("pci-link-slow");
  std::vector<std::optional<double>> uplink(graph.devices.size());
  for (const Link& link : graph.links) {
    if (link.label == "PCI" && link.basis == LinkBasis::kStated && graph.devices[link.from].parent == link.to && !uplink[link.from]) {
      uplink[link.from] = link.gb_per_second;
    }
  }
  for (const NodeView& view : views) {
    for (const auto* members : {&view.gpus, &view.nics}) {
      std::vector<std::pair<DeviceIndex, double>> speeds;
      for (const DeviceIndex device : *members) {
        if (const auto speed = uplink[graph.devices[device].parent]) speeds.emplace_back(device, *speed);
      }
      std::vector<double> sorted;
      for (const auto& [device, speed] : speeds) sorted.push_back(speed);
      std::ranges::sort(sorted);
      for (const auto& [device, speed] : speeds) {
        const double usual = sorted[sorted.size() / 2];
        const bool is_gpu = members == &view.gpus;
        const bool is_slow = is_gpu ? speed < kPciSlowest || speed * 2 <= usual : speed > 0 && speed < kPciSlowest && usual < kPciSlowest;
        if (is_slow) {
          findings.add(name_in_site(graph, view, device), fmt::format("{:.3g} GB/s, usual in this machine {:.3g}", speed, usual));
        }
      }
    }
  }
}

void check_numa_gpu_imbalance(const SiteGraph& graph, const Views& views, Findings& findings) {
  findings.open("numa-gpu-imbalance");
  for (const NodeView& view : views) {
    std::map<int, std::size_t> gpus;
    for (const DeviceIndex gpu : view.gpus) {
      if (graph.devices[gpu].numa) ++gpus[*graph.devices[gpu].numa];
    }
    const bool is_known = std::ranges::all_of(view.gpus, [&](DeviceIndex gpu) { return graph.devices[gpu].numa.has_value(); });
    if (gpus.size() < 2 || !is_known) continue;
    const auto [least, most] = std::ranges::minmax_element(gpus, {}, [](const auto& entry) { return entry.second; });
    if (most->second < least->second + 2) continue;
    std::string text;
    for (const auto& [numa, number] : gpus) text += fmt::format("{}{} on NUMA node {}", text.empty() ? "" : ", ", number, numa);
    findings.add(graph.devices[view.node].name, text);
  }
}

void check_label_contradicts_numa(const SiteGraph& graph, const Views& views, Findings& findings) {
  findings.open("label-contradicts-numa");
  for (const NodeView& view : views) {
    if (view.labels.empty()) continue;
    for (std::size_t gpu = 0; gpu < view.gpus.size(); ++gpu) {
      for (std::size_t other = gpu + 1; other < view.gpus.size(); ++other) {
        const auto left = graph.devices[view.gpus[gpu]].numa;
        const auto right = graph.devices[view.gpus[other]].numa;
        const std::string_view label = view.gpu_label(gpu, other);
        const bool is_within = label_distance(label) >= 1 && label_distance(label) <= 4;
        if (!left || !right || *left == *right || !is_within) continue;
        findings.add(fmt::format("{}/{}", name_in_site(graph, view, view.gpus[gpu]), graph.devices[view.gpus[other]].name),
                     fmt::format("{} between NUMA nodes {} and {}", label, *left, *right));
      }
    }
  }
}

// Distance of the nearest NIC; nothing when no label to a NIC is known.
std::optional<int> nearest_nic(const NodeView& view, std::size_t gpu) {
  std::optional<int> nearest;
  for (std::size_t nic = 0; nic < view.nics.size(); ++nic) {
    const std::string_view label = view.nic_label(gpu, nic);
    if (!label.empty()) nearest = std::min(nearest.value_or(6), label_distance(label));
  }
  return nearest;
}

void check_gpu_far_from_nics(const SiteGraph& graph, const Views& views, Findings& findings) {
  findings.open("gpu-far-from-nics");
  for (const NodeView& view : views) {
    if (view.labels.empty() || view.nics.size() < 2) continue;
    std::vector<std::size_t> far;
    std::size_t close = 0;
    for (std::size_t gpu = 0; gpu < view.gpus.size(); ++gpu) {
      const auto distance = nearest_nic(view, gpu);
      if (distance && *distance <= 2) ++close;
      if (distance && *distance > 2) far.push_back(gpu);
    }
    if (close < 2 || far.size() > close) continue;
    for (const std::size_t gpu : far) {
      findings.add(name_in_site(graph, view, view.gpus[gpu]), fmt::format("no NIC nearer than its CPU; {} GPUs have one", close));
    }
  }
}

void check_nic_far_from_gpus(const SiteGraph& graph, const Views& views, Findings& findings) {
  findings.open("nic-far-from-gpus");
  for (const NodeView& view : views) {
    if (view.labels.empty() || view.gpus.empty()) continue;
    std::vector<int> distances;
    for (std::size_t nic = 0; nic < view.nics.size(); ++nic) {
      int nearest = 6;
      bool is_known = true;
      for (std::size_t gpu = 0; gpu < view.gpus.size(); ++gpu) {
        nearest = std::min(nearest, label_distance(view.nic_label(gpu, nic)));
        is_known = is_known && !view.nic_label(gpu, nic).empty();
      }
      distances.push_back(is_known || nearest <= 2 ? nearest : 6);
    }
    const auto close = std::ranges::count_if(distances, [](int distance) { return distance <= 2; });
    if (close < 2) continue;
    for (std::size_t nic = 0; nic < distances.size(); ++nic) {
      if (distances[nic] >= 3 && distances[nic] <= 5) {
        findings.add(name_in_site(graph, view, view.nics[nic]), fmt::format("behind the switch of no GPU; {} NICs are", close));
      }
    }
  }
}

void check_nic_slow_port(const SiteGraph& graph, const Views& views, Findings& findings) {
  findings.open("nic-slow-port");
  for (const NodeView& view : views) {
    double fastest = 0;
    for (const DeviceIndex nic : view.nics) fastest = std::max(fastest, graph.devices[nic].network_gb_per_second.value_or(0));
    for (const DeviceIndex nic : view.nics) {
      const auto speed = graph.devices[nic].network_gb_per_second;
      if (speed && *speed * 4 <= fastest) {
        findings.add(name_in_site(graph, view, nic), fmt::format("{:.3g} Gbit/s, the fastest has {:.3g}", *speed * 8, fastest * 8));
      }
    }
  }
}

void check_geforce(const SiteGraph& graph, const Views& views, Findings& findings) {
  findings.open("geforce-p2p");
  for (const NodeView& view : views) {
    const auto consumer =
        std::ranges::find_if(view.gpus, [&](DeviceIndex gpu) { return graph.devices[gpu].model.find("GeForce") != std::string::npos; });
    if (view.gpus.size() < 2 || consumer == view.gpus.end()) continue;
    findings.add(graph.devices[view.node].name, fmt::format("{} GPUs, {} among them", view.gpus.size(), graph.devices[*consumer].model));
  }
}

}  // namespace

void check_nodes(const SiteGraph& graph, Findings& findings) {
  const Views views = view_nodes(graph);
  check_gpu_without_nvlink(graph, views, findings);
  check_nvlink_uneven(graph, views, findings);
  check_vm_flat_tree(graph, views, findings);
  check_numa_unknown(graph, views, findings);
  check_pci_link_slow(graph, views, findings);
  check_numa_gpu_imbalance(graph, views, findings);
  check_label_contradicts_numa(graph, views, findings);
  check_gpu_far_from_nics(graph, views, findings);
  check_nic_far_from_gpus(graph, views, findings);
  check_nic_slow_port(graph, views, findings);
  check_geforce(graph, views, findings);
}

}  // namespace sluice::topology
