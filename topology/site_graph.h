#pragma once

// The graph of one site or machine: GPUs, NICs, CPUs, PCI devices, NVLink switches and nodes, with typed, directed links. Plain data that
// the readers fill and everybody may copy; no threads, no IO. Bandwidth is in GB/s (10^9 bytes) and absent where nothing states it.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::topology {

enum class DeviceKind : std::uint8_t { kNode, kCpu, kPci, kNvSwitch, kGpu, kNic };
std::string_view device_kind_name(DeviceKind kind);

// Position in SiteGraph::devices.
using DeviceIndex = std::size_t;

struct Device {
  DeviceKind kind = DeviceKind::kNode;
  std::string name;        // as the source names it: "GPU0", "mlx5_0", "0000:0f:00.0"
  std::string hardware;    // name in the operating system, when the source gives two: NIC0 is "mlx5_3"
  std::string bus_id;      // PCI address, lower case; empty when not stated
  std::string pci_class;   // as stated, "0x030200"
  DeviceIndex parent = 0;  // what it is plugged into; a node is its own parent
  std::optional<int> numa;
  std::optional<double> network_gb_per_second;  // of a NIC's port
  std::uint32_t fast_links = 0;                 // NVLink or XGMI lanes that leave a GPU
};

// Where the statement of a link comes from.
enum class LinkSource : std::uint8_t {
  kNcclXml,     // written in the file
  kTopoMatrix,  // a cell of `nvidia-smi topo -m`
  kDerived,     // follows from other links of the same file: the path through the PCI tree
};
std::string_view link_source_name(LinkSource source);

struct Link {
  DeviceIndex from = 0;
  DeviceIndex to = 0;
  std::string label;  // "NV12", "XGMI1", "PIX", "PXB", "PHB", "NODE", "SYS", "PCI", ...; as the source writes it
  std::optional<double> gb_per_second;
  LinkSource source = LinkSource::kDerived;
};

enum class Severity : std::uint8_t { kInfo, kWarning, kError };
std::string_view severity_name(Severity severity);

// Something about the input or the machine that a person should know.
struct Problem {
  std::string id;  // stable, for programs: "missing-row"
  Severity severity = Severity::kWarning;
  std::string where;  // device, cell or line
  std::string text;
};

struct SiteGraph {
  std::string source;  // name of the file
  std::vector<Device> devices;
  std::vector<Link> links;
  std::vector<Problem> problems;
  bool is_partial = false;  // the input left something out; `problems` says what

  [[nodiscard]] std::size_t count(DeviceKind kind) const;
  [[nodiscard]] std::size_t ngpus() const { return count(DeviceKind::kGpu); }
  [[nodiscard]] std::size_t nnodes() const { return count(DeviceKind::kNode); }

  // Keeps at most kProblemsMax.
  void add_problem(std::string id, Severity severity, std::string where, std::string text);
  // The same, and marks the graph as partial.
  void add_gap(std::string id, std::string where, std::string text);
};

// Pairs of GPUs and NICs by kind and label: {"GG:NV12": 28, "GN:PIX": 8, "NN:SYS": 3}. A pair counts once, by what is stated for the
// direction from the device that comes first.
std::map<std::string, std::size_t> count_pairs(const SiteGraph& graph);

// [GPU][GPU] in GB/s, GPUs in the order of `devices`; absent where unknown and on the diagonal.
std::vector<std::vector<std::optional<double>>> speed_intra(const SiteGraph& graph);

}  // namespace sluice::topology
