#include "topology/live_reader.h"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "topology/graph_merge.h"
#include "topology/hwloc_xml_reader.h"
#include "topology/internal/text_fields.h"
#include "topology/limits.h"
#include "topology/nccl_graph_reader.h"

namespace sluice::topology {
namespace {

constexpr std::size_t kKernelFileBytesMax = 64 * 1024;
constexpr std::size_t kConfigSpaceBytes = 4096;
constexpr std::size_t kCapabilitiesMax = 64;

struct TopologyCloser {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};

Result<SiteGraph> read_hwloc() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return fail(ErrorCode::kInternal, "read this machine", "hwloc does not start");
  const std::unique_ptr<hwloc_topology, TopologyCloser> topology(raw);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (hwloc_topology_load(raw) != 0) return fail(ErrorCode::kUnavailable, "read this machine", "hwloc finds no topology");
  char* xml = nullptr;
  int size = 0;
  if (hwloc_topology_export_xmlbuffer(raw, &xml, &size, 0) != 0)
    return fail(ErrorCode::kUnavailable, "read this machine", "hwloc writes no XML");
  std::string text(xml, static_cast<std::size_t>(std::max(size, 0)));
  hwloc_free_xmlbuffer(raw, xml);
  while (text.ends_with('\0')) text.pop_back();
  SLUICE_TRY(auto graph, read_hwloc_xml(text, "this machine (hwloc)"));
  graph.files.front().kind = "live-hwloc";
  // The machine itself has answered: without GPUs it has none, and without PCI devices it shows none.
  for (Problem& problem : graph.problems) {
    if (problem.id == "no-io-devices") problem = {"no-gpus", Severity::kInfo, "this machine", "no PCI devices are visible here", false};
  }
  graph.is_partial = false;
  return graph;
}

std::optional<std::string> read_small_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text(kKernelFileBytesMax, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

// A name out of a file becomes part of a path only when it cannot lead elsewhere.
bool is_plain_name(std::string_view name) { return !name.empty() && name.find('/') == std::string_view::npos && !name.starts_with('.'); }

// GB/s: "400 Gb/sec (4X NDR)" of an InfiniBand port, or Mbit/s of a network device.
std::optional<double> port_speed(const std::string& root, const std::string& name) {
  if (!is_plain_name(name)) return std::nullopt;
  if (const auto rate = read_small_file(fmt::format("{}/sys/class/infiniband/{}/ports/1/rate", root, name))) {
    const auto gigabits = parse_real(std::string_view(*rate).substr(0, rate->find(' ')));
    if (gigabits && *gigabits > 0) return *gigabits / 8;
  }
  if (const auto speed = read_small_file(fmt::format("{}/sys/class/net/{}/speed", root, name))) {
    const auto megabits = parse_real(trim_blanks(*speed));
    if (megabits && *megabits > 0) return *megabits / 8000;
  }
  return std::nullopt;
}

unsigned int word_at(std::string_view bytes, std::size_t at, std::size_t size) {
  unsigned int value = 0;
  for (std::size_t index = 0; index < size; ++index)
    value |= static_cast<unsigned int>(static_cast<unsigned char>(bytes[at + index])) << (8 * index);
  return value;
}

// The control word of Access Control Services in a PCI configuration space, found along the list of extended capabilities.
std::optional<unsigned int> acs_control(std::string_view space) {
  std::size_t at = 0x100;
  for (std::size_t steps = 0; steps < kCapabilitiesMax && at >= 0x100 && at + 8 <= space.size(); ++steps) {
    const unsigned int header = word_at(space, at, 4);
    if ((header & 0xffffU) == 0x000dU) return word_at(space, at + 6, 2);
    at = header >> 20U;
  }
  return std::nullopt;
}

void check_acs(SiteGraph& graph, const std::string& root) {
  // Source validation, request and completion redirect: each sends peer traffic up to the CPU.
  constexpr unsigned int kRedirects = 0x01U | 0x04U | 0x08U;
  std::vector<std::string> bridges;
  for (const Device& device : graph.devices) {
    const bool is_bridge = device.kind == DeviceKind::kPci && device.pci_class.starts_with("0x0604");
    if (!is_bridge || !is_plain_name(device.bus_id)) continue;
    const auto space = read_small_file(fmt::format("{}/sys/bus/pci/devices/{}/config", root, device.bus_id));
    if (!space || space->size() < kConfigSpaceBytes) continue;
    const auto control = acs_control(*space);
    if (control && (*control & kRedirects) != 0) bridges.push_back(device.bus_id);
  }
  if (bridges.empty()) return;
  graph.add_problem("acs-on", Severity::kWarning, bridges.front(),
                    fmt::format("{} PCI bridges have Access Control Services on", bridges.size()));
}

// NCCL_GRAPH_FILE of nccl.conf: a file for other GPUs than the machine's makes jobs fail.
void add_nccl_conf(SiteGraph& graph, const std::string& root) {
  const auto text = read_small_file(root + "/etc/nccl.conf");
  if (!text) return;
  for_each_line(*text, kTextLinesMax, [&](std::size_t, std::string_view line) {
    line = trim_blanks(line.substr(0, line.find('#')));
    constexpr std::string_view kKey = "NCCL_GRAPH_FILE=";
    if (!line.starts_with(kKey)) return;
    const std::string path = root + std::string(trim_blanks(line.substr(kKey.size())));
    const auto content = read_small_file(path);
    const auto channels = content ? read_nccl_graph(*content, path)
                                  : Result<SiteGraph>(fail(ErrorCode::kTopologyUnreadable, "open " + path, "it cannot be read"));
    if (!channels) {
      graph.add_problem("graph-file-unreadable", Severity::kError, "/etc/nccl.conf", channels.error().to_string());
      return;
    }
    graph.channel_files.insert(graph.channel_files.end(), channels->channel_files.begin(), channels->channel_files.end());
  });
}

}  // namespace

void add_kernel_facts(SiteGraph& graph, const std::string& root) {
  for (Device& device : graph.devices) {
    if (device.kind == DeviceKind::kNic && !device.network_gb_per_second) {
      device.network_gb_per_second = port_speed(root, device.hardware.empty() ? device.name : device.hardware);
    }
    const bool wants_numa =
        (device.kind == DeviceKind::kGpu || device.kind == DeviceKind::kNic) && !device.numa && is_plain_name(device.bus_id);
    if (!wants_numa) continue;
    const auto numa = read_small_file(fmt::format("{}/sys/bus/pci/devices/{}/numa_node", root, device.bus_id));
    const auto number = numa ? parse_whole<int>(trim_blanks(*numa)) : std::nullopt;
    if (number && *number >= 0) device.numa = number;
  }
  check_acs(graph, root);
  add_nccl_conf(graph, root);
}

Result<SiteGraph> read_live_machine(const LiveOptions& options) {
  SLUICE_TRY(auto machine, read_hwloc());
  auto gpus = read_nvml(options.nvml_library);
  std::vector<MergeInput> inputs;
  inputs.push_back({std::move(machine), ""});
  if (gpus) inputs.push_back({std::move(*gpus), ""});
  SLUICE_TRY(auto graph, merge_graphs(std::move(inputs)));
  if (!gpus) graph.add_problem("nvml-missing", Severity::kInfo, "this machine", gpus.error().to_string());
  add_kernel_facts(graph, options.root);
  return graph;
}

}  // namespace sluice::topology
