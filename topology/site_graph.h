#pragma once

// The graph of one site or machine: GPUs, NICs, CPUs, PCI devices, NVLink switches, nodes, network switches and groups of nodes, with
// typed, directed links. Plain data that the readers fill and everybody may copy; no threads, no IO. Bandwidth is in GB/s (10^9 bytes),
// latency in microseconds; both are absent where nothing states them. What follows from the graph is in graph_arrays.h.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::topology {

enum class DeviceKind : std::uint8_t {
  kNode,
  kCpu,
  kPci,
  kNvSwitch,
  kGpu,
  kNic,
  kSwitch,  // of the network between nodes
  kGroup,   // nodes that belong together without a switch being named: block, ring, torus, NVLink domain
  kRank,    // a training process, where a probe has measured between them
};
std::string_view device_kind_name(DeviceKind kind);
std::optional<DeviceKind> parse_device_kind(std::string_view name);

// Position in SiteGraph::devices.
using DeviceIndex = std::size_t;

struct Device {
  DeviceKind kind = DeviceKind::kNode;
  std::string name;        // as the source names it: "GPU0", "mlx5_0", "0000:0f:00.0"
  std::string hardware;    // name in the operating system, when the source gives two: NIC0 is "mlx5_3"
  std::string bus_id;      // PCI address, lower case; empty when not stated
  std::string pci_class;   // as stated, "0x030200"
  std::string type;        // of a GPU: compute capability or architecture, "sm90"; of a node: what an operator set by hand
  std::string model;       // of a GPU, as sold: "NVIDIA H100 80GB HBM3"
  DeviceIndex parent = 0;  // what it is plugged into, itself when in nothing; always before the device or the device itself
  std::optional<int> numa;
  std::optional<double> network_gb_per_second;  // of a NIC's port
  std::uint32_t fast_links = 0;                 // NVLink or XGMI lanes that leave a GPU
};

// How a link is known.
enum class LinkBasis : std::uint8_t {
  kStated,    // the file says so
  kDerived,   // follows from other links of the same file: the path through the PCI tree
  kMeasured,  // by a probe between the two
};

// Position in SiteGraph::files.
using FileIndex = std::uint32_t;

// One statement about the way from one device to another. Several files may each make one: all are kept, and the best one counts.
struct Link {
  DeviceIndex from = 0;
  DeviceIndex to = 0;
  std::string label;  // "NV12", "XGMI1", "PIX", "PXB", "PHB", "NODE", "SYS", "PCI", "NET", ...; as the source writes it
  std::optional<double> gb_per_second;
  LinkBasis basis = LinkBasis::kDerived;
  FileIndex file = 0;
  std::optional<double> latency_us = std::nullopt;
};

enum class Severity : std::uint8_t { kInfo, kWarning, kError };
std::string_view severity_name(Severity severity);
std::optional<Severity> parse_severity(std::string_view name);

// Something about the input or the machine that a person should know.
struct Problem {
  std::string id;  // stable, for programs: "missing-row"
  Severity severity = Severity::kWarning;
  std::string where;  // device, cell or line
  std::string text;
  bool is_gap = false;  // what is missing for the graph to be whole
};

struct SourceFile {
  std::string name;
  std::string kind;  // "nccl-xml", "topo-matrix", "hwloc-xml", ...
};

// An NCCL graph file (NCCL_GRAPH_FILE): rings and trees for certain GPUs. Nothing of the machine, but it can contradict it.
struct ChannelFile {
  std::string name;
  std::size_t graphs = 0;
  std::size_t channels = 0;
  std::vector<int> gpus;  // numbers that it uses, ascending
  std::vector<int> nics;
};

struct SiteGraph {
  std::vector<SourceFile> files;
  std::vector<Device> devices;
  std::vector<Link> links;
  std::vector<Problem> problems;
  std::vector<ChannelFile> channel_files;
  std::map<std::string, std::uint64_t> counts;  // what a source counts beyond devices: "Core", "PU", "NUMANode"
  bool is_partial = false;                      // the input left something out; `problems` says what

  [[nodiscard]] std::size_t count(DeviceKind kind) const;
  [[nodiscard]] std::size_t ngpus() const { return count(DeviceKind::kGpu); }
  [[nodiscard]] std::size_t nnodes() const { return count(DeviceKind::kNode); }
  // The file, or "3 files".
  [[nodiscard]] std::string title() const;

  // Keeps at most kProblemsMax.
  void add_problem(std::string id, Severity severity, std::string where, std::string text);
  // The same, and marks the graph as partial.
  void add_gap(std::string id, std::string where, std::string text);
  // A probe's result, beside what files promise: both stay, this one counts. `file` is the probe's entry in `files`.
  void add_measured(DeviceIndex from, DeviceIndex to, double gb_per_second, double latency_us, FileIndex file);
  // Appends the device; a `parent` of kInNothing makes it its own parent.
  DeviceIndex add_device(Device device);
  // The same statement for both directions.
  void add_both_ways(Link link);
};

inline constexpr DeviceIndex kInNothing = static_cast<DeviceIndex>(-1);

// For each device the node it is in (a node is in itself), kInNothing for switches and groups. REQUIRES: parents stand before their
// children.
std::vector<DeviceIndex> nodes_of_devices(const SiteGraph& graph);

// Pairs of GPUs and NICs by kind and label: {"GG:NV12": 28, "GN:PIX": 8, "NN:SYS": 3}. A pair counts once, by what is stated for the
// direction from the device that comes first: NVLink before everything else, then what is written before what was derived.
std::map<std::string, std::size_t> count_pairs(const SiteGraph& graph);

}  // namespace sluice::topology
