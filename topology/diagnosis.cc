#include "topology/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include "base/assert.h"
#include "topology/internal/findings.h"
#include "topology/internal/node_views.h"

namespace sluice::topology {

const std::vector<Check>& diagnosis_checks() {
  static const std::vector<Check> kChecks = {
      {"gpu-without-nvlink", Severity::kError, "a GPU has no NVLink to any peer while the others of its machine have",
       "check the GPU with `nvidia-smi nvlink -s`, reset or replace it, and keep it out of jobs until then"},
      {"nvlink-uneven", Severity::kWarning, "GPUs behind one NVLink switch have different numbers of lanes",
       "look for lanes that are down with `nvidia-smi nvlink -s` and for the fabric manager's log"},
      {"vm-flat-tree", Severity::kWarning, "the PCI tree is flat: more devices share one switch than a real one joins",
       "the machine is a VM that hides its tree: give NCCL the host's tree with NCCL_TOPO_FILE"},
      {"numa-unknown", Severity::kWarning, "a CPU has no NUMA number, as in VMs",
       "give the VM its NUMA nodes, or NCCL the host's tree with NCCL_TOPO_FILE"},
      {"pci-link-slow", Severity::kWarning, "a GPU or NIC has a PCI link that is much slower than its equals, or below 1 GB/s",
       "reseat the card or riser, check the slot's width; in a VM the number is made up and needs a topology file"},
      {"numa-gpu-imbalance", Severity::kWarning, "the GPUs of one machine are spread unevenly over its NUMA nodes",
       "bind ranks to the CPUs of their GPU; collectives that pair GPUs across sockets run at the speed of the socket link"},
      {"label-contradicts-numa", Severity::kWarning, "a path within one CPU is claimed between devices of different NUMA nodes",
       "the table was edited or made up, or the firmware reports wrong NUMA nodes: dump it afresh"},
      {"gpu-far-from-nics", Severity::kWarning, "a GPU has no NIC behind its own switch while others have",
       "check that its NIC is there and up; let NCCL use the NIC of a neighbour over NVLink (NCCL_PXN_DISABLE=0)"},
      {"nic-far-from-gpus", Severity::kInfo, "a NIC is farther from every GPU than the others",
       "it is for storage or management: leave it out with NCCL_IB_HCA"},
      {"nic-slow-port", Severity::kWarning, "a port is at most a quarter as fast as the fastest of its machine",
       "leave it out with NCCL_IB_HCA or NCCL_SOCKET_IFNAME, or find out why the link came up slow"},
      {"geforce-p2p", Severity::kInfo, "consumer GPUs have no peer-to-peer copies: a shared switch does not make a pair faster",
       "measure pairs with the site probe rather than trust PIX"},
      {"acs-on", Severity::kWarning, "Access Control Services redirect peer-to-peer traffic of a PCI switch through the CPU",
       "switch ACS off in the firmware, or with setpci on the bridges, on machines without VMs"},
      {"gdr-off", Severity::kInfo, "a NIC cannot copy into the memory of GPUs (GPUDirect RDMA is off)",
       "load nvidia-peermem (or use a kernel with DMA-BUF) and check that ACS and the IOMMU are off"},
      {"graph-file-stale", Severity::kError, "an NCCL graph file is for other GPUs than the machine has",
       "remove NCCL_GRAPH_FILE from /etc/nccl.conf, ~/.nccl.conf and the environment, or dump it for this machine"},
      {"nic-sets-differ", Severity::kError, "machines of the site have different sets of NICs, which makes NCCL hang",
       "give all machines the same NIC names, or the same list in NCCL_IB_HCA; do not set NCCL_IGNORE_NET_MISMATCH"},
      {"gpu-nic-map-differs", Severity::kWarning, "the NIC nearest to a GPU differs from that of the same GPU in other machines",
       "give NCCL one corrected topology file for all machines; look for a virtual bridge or another slot"},
      {"gpu-counts-differ", Severity::kWarning, "machines of the site have different numbers of GPUs",
       "look for GPUs that fell off the bus, or set `types` and use equal machines in one job"},
      {"gpu-types-differ", Severity::kWarning, "the site mixes GPUs of different generations",
       "set `types` in the type map, and do not mix generations in one communicator"},
      {"server-models-differ", Severity::kInfo, "the site mixes server models",
       "compare firmware and trees when collectives between the two hang above small sizes"},
      {"leaf-oversubscribed", Severity::kWarning, "a leaf switch has less than half of its nodes' bandwidth up to the next ones",
       "place a job's nodes under as few leaves as possible; look for cables that are down"},
      {"rail-mixed", Severity::kWarning, "a leaf switch of a rail network has ports of other rails",
       "swap the cables, or tell NCCL with NCCL_CROSS_NIC=1 that equal NICs are not on one switch"},
      {"node-outside-network", Severity::kWarning, "a node has no link into the network that the others have",
       "check its cables and ports, or whether its name differs between the files"},
      {"topology-changed", Severity::kWarning, "a machine is not connected as it was",
       "compare with the saved file; bonding and VM settings reorder devices at boot: pin them, or save the new state"},
      {"gpu-not-visible", Severity::kError, "a GPU of the file is not on the machine",
       "give the container all GPUs of the file, or NCCL a file with those that are visible"},
  };
  return kChecks;
}

std::string_view advice_of(std::string_view id) {
  const auto found = std::ranges::find(diagnosis_checks(), id, &Check::id);
  return found == diagnosis_checks().end() ? std::string_view{} : found->advice;
}

void Findings::open(std::string_view id) {
  close();
  const auto found = std::ranges::find(diagnosis_checks(), id, &Check::id);
  SLUICE_ASSERT(found != diagnosis_checks().end(), "no check {}", id);
  check_ = &*found;
  found_ = 0;
}

void Findings::close() {
  if (check_ != nullptr && found_ > kFindingsPerCheck) {
    problems_.back().text += fmt::format(" (and {} more of this kind)", found_ - kFindingsPerCheck);
  }
}

void Findings::add(std::string where, std::string evidence) {
  SLUICE_ASSERT(check_ != nullptr);
  if (++found_ > kFindingsPerCheck) return;
  problems_.push_back({std::string(check_->id), check_->severity, std::move(where), std::move(evidence), false});
}

std::vector<Problem> Findings::take() {
  close();
  check_ = nullptr;
  return std::move(problems_);
}

std::vector<Problem> diagnose(const SiteGraph& graph) {
  Findings findings;
  check_nodes(graph, findings);
  check_site(graph, findings);
  check_network(graph, findings);
  return findings.take();
}

namespace {

// Devices of a node with what they hang on, and the labels between its GPUs and NICs.
std::set<std::string> describe(const SiteGraph& graph, const NodeView& view, const std::vector<DeviceIndex>& devices) {
  std::set<std::string> lines;
  for (const DeviceIndex index : devices) {
    const Device& device = graph.devices[index];
    lines.insert(
        fmt::format("{} {} at {} on {}", device_kind_name(device.kind), device.name, device.bus_id, graph.devices[device.parent].name));
  }
  const auto name_at = [&](std::size_t place) {
    return graph.devices[place < view.gpus.size() ? view.gpus[place] : view.nics[place - view.gpus.size()]].name;
  };
  for (std::size_t row = 0; row < view.endpoints(); ++row) {
    for (std::size_t column = 0; column < view.endpoints(); ++column) {
      if (!view.label(row, column).empty())
        lines.insert(fmt::format("{} to {} {}", name_at(row), name_at(column), view.label(row, column)));
    }
  }
  return lines;
}

// By node: what is in it, without itself.
std::map<DeviceIndex, std::vector<DeviceIndex>> devices_by_node(const SiteGraph& graph) {
  const std::vector<DeviceIndex> node_of = nodes_of_devices(graph);
  std::map<DeviceIndex, std::vector<DeviceIndex>> devices;
  for (DeviceIndex index = 0; index < graph.devices.size(); ++index) {
    if (node_of[index] != kInNothing && node_of[index] != index) devices[node_of[index]].push_back(index);
  }
  return devices;
}

}  // namespace

std::vector<Problem> compare_with_baseline(const SiteGraph& graph, const SiteGraph& baseline) {
  const std::vector<NodeView> now = view_nodes(graph);
  const std::vector<NodeView> before = view_nodes(baseline);
  auto devices_now = devices_by_node(graph);
  auto devices_before = devices_by_node(baseline);
  std::map<std::string, const NodeView*> view_by_name;
  for (const NodeView& view : now) view_by_name[graph.devices[view.node].name] = &view;
  const bool is_alone = now.size() == 1 && before.size() == 1;
  Findings changed;
  Findings gone;
  changed.open("topology-changed");
  gone.open("gpu-not-visible");
  for (const NodeView& old : before) {
    const auto known = view_by_name.find(baseline.devices[old.node].name);
    const NodeView* view = is_alone ? &now.front() : known == view_by_name.end() ? nullptr : known->second;
    if (view == nullptr) continue;
    const std::string& name = graph.devices[view->node].name;
    for (const DeviceIndex gpu : old.gpus) {
      const Device& device = baseline.devices[gpu];
      const bool is_there = std::ranges::any_of(view->gpus, [&](DeviceIndex index) {
        const Device& other = graph.devices[index];
        return device.bus_id.empty() || other.bus_id.empty() ? other.name == device.name : other.bus_id == device.bus_id;
      });
      if (!is_there) gone.add(name, fmt::format("{} at \"{}\" is in {} only", device.name, device.bus_id, baseline.title()));
    }
    const std::set<std::string> lines = describe(graph, *view, devices_now[view->node]);
    const std::set<std::string> lines_before = describe(baseline, old, devices_before[old.node]);
    if (lines == lines_before) continue;
    std::vector<std::string> lost;
    std::ranges::set_difference(lines_before, lines, std::back_inserter(lost));
    std::vector<std::string> added;
    std::ranges::set_difference(lines, lines_before, std::back_inserter(added));
    const std::string example = !lost.empty() ? lost.front() : added.front();
    changed.add(name, fmt::format("{} statements gone, {} new; one of them: {}", lost.size(), added.size(), example));
  }
  std::vector<Problem> problems = changed.take();
  std::ranges::move(gone.take(), std::back_inserter(problems));
  return problems;
}

}  // namespace sluice::topology
