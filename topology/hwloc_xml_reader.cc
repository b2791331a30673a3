// hwloc describes a machine as a tree of objects: packages, caches and cores, and hanging on them host bridges ("Bridge" 0-1), PCI bridges
// (1-1), PCI devices and the devices of the operating system in them (OSDev). A GPU is a PCI device of a display or accelerator class that
// is made by NVIDIA or AMD or that a GPU library knows (cuda0, nvml0, rsmi0): the controller for the console screen is none. A NIC is a PCI
// device of a network class with an OSDev; virtual functions without a driver have none. Bandwidth between GPUs is in <distances2> named
// NVLinkBandwidth or XGMIBandwidth, in MB/s, with the order of its objects given by gp_index or os_index.

#include "topology/hwloc_xml_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "topology/internal/pci_paths.h"
#include "topology/internal/text_fields.h"
#include "topology/internal/xml_elements.h"
#include "topology/limits.h"

namespace sluice::topology {
namespace {

// "0302 [10de:15f9] [10de:116b] a1 00"
struct PciType {
  std::string pci_class;
  std::string vendor;
};

PciType parse_pci_type(std::string_view text) {
  PciType type;
  const std::size_t open = text.find('[');
  type.pci_class = "0x" + to_lower(trim_blanks(text.substr(0, open))) + "00";
  if (open != std::string_view::npos) type.vendor = to_lower(text.substr(open + 1, text.substr(open + 1).find(':')));
  return type;
}

bool is_network_class(std::string_view pci_class) { return pci_class.starts_with("0x02") || pci_class.starts_with("0x0c06"); }

// A set of bits as hwloc writes it: "0x00000001", ",0x2", "0xf...f". The number of its only member.
std::optional<int> only_member(std::string_view mask) {
  std::optional<int> member;
  int low = 0;  // of the group that is looked at, from the right
  while (!mask.empty()) {
    const std::size_t comma = mask.rfind(',');
    std::string_view group = comma == std::string_view::npos ? mask : mask.substr(comma + 1);
    if (group.starts_with("0x")) group.remove_prefix(2);
    const auto bits = group.empty() ? std::optional(std::uint32_t{0}) : parse_whole<std::uint32_t>(group, 16);
    if (!bits || (*bits != 0 && (member || !std::has_single_bit(*bits)))) return std::nullopt;
    if (*bits != 0) member = low + std::countr_zero(*bits);
    if (comma == std::string_view::npos) break;
    mask = mask.substr(0, comma);
    low += 32;
  }
  return member;
}

enum class OsKind { kOther, kGpu, kNetwork, kOpenFabrics };

// Format 2 numbers the kinds, format 3 has a bit for each.
OsKind os_kind(const XmlElement& element, bool has_bits) {
  const auto type = parse_whole<int>(element.attribute("osdev_type")).value_or(-1);
  const std::string_view subtype = element.attribute("subtype");
  if (subtype == "CUDA" || subtype == "NVML" || subtype == "RSMI" || subtype == "LevelZero") return OsKind::kGpu;
  if (has_bits) return (type & 32) != 0 ? OsKind::kOpenFabrics : (type & 16) != 0 ? OsKind::kNetwork : OsKind::kOther;
  return type == 3 ? OsKind::kOpenFabrics : type == 2 ? OsKind::kNetwork : OsKind::kOther;
}

class HwlocReader {
 public:
  HwlocReader(const std::vector<XmlElement>& elements, const std::string& name) : elements_(elements), device_of_(elements.size(), 0) {
    graph_.files.push_back({name, "hwloc-xml"});
    Device node;
    node.name = "node0";
    graph_.add_device(std::move(node));
    has_bits_ = elements.front().attribute("version").starts_with("3");
  }

  Result<SiteGraph> read() {
    for (std::size_t index = 1; index < elements_.size(); ++index) SLUICE_CHECK_OK(visit(index));
    if (graph_.counts["PU"] == 0) return invalid(elements_.front(), "has no <object type=\"PU\">: this is no whole hwloc file");
    add_endpoints();
    SLUICE_CHECK_OK(check_size());
    for (const std::size_t index : distances_) SLUICE_CHECK_OK(add_bandwidths(index));
    report_gaps();
    add_derived_links(graph_, {.bridges_per_switch = 2});
    return std::move(graph_);
  }

 private:
  struct PciFunction {
    DeviceIndex device = 0;
    PciType type;
    std::vector<std::size_t> os_devices;  // elements
  };

  [[nodiscard]] tl::unexpected<Error> invalid(const XmlElement& element, std::string_view text) const {
    return fail(ErrorCode::kTopologyInvalid, "read " + graph_.files.front().name,
                fmt::format("line {}: <{}> {}", element.line, element.name, text));
  }

  [[nodiscard]] Status check_size() const {
    const std::size_t endpoints = graph_.ngpus() + graph_.count(DeviceKind::kNic);
    if (endpoints <= kEndpointsMax) return {};
    return fail(ErrorCode::kTopologyTooLarge, "read " + graph_.files.front().name,
                fmt::format("{} GPUs and NICs, at most {}", endpoints, kEndpointsMax));
  }

  Status visit(std::size_t index) {
    const XmlElement& element = elements_[index];
    device_of_[index] = device_of_[element.parent];
    if (element.name == "object") return add_object(index);
    if (element.name == "info") add_info(element);
    if (element.name.starts_with("distances2") && element.attribute("name").ends_with("Bandwidth")) distances_.push_back(index);
    return {};
  }

  Status add_object(std::size_t index) {
    const XmlElement& element = elements_[index];
    const std::string_view type = element.attribute("type");
    if (type.empty()) return invalid(element, "has no type");
    if (const auto gp_index = parse_whole<std::uint64_t>(element.attribute("gp_index"))) by_gp_index_.emplace(*gp_index, index);
    if (type == "NUMANode" || type == "Core" || type == "PU" || type == "PCIDev") ++graph_.counts[std::string(type)];
    if (type == "Package" || type == "Socket") add_package(index);
    if (type == "Bridge") return add_bridge(index);
    if (type == "PCIDev") return add_pci(index);
    if (type == "OSDev") add_os_device(index);
    return {};
  }

  void add_package(std::size_t index) {
    const XmlElement& element = elements_[index];
    ++graph_.counts["Package"];
    Device cpu;
    cpu.kind = DeviceKind::kCpu;
    cpu.name = fmt::format("cpu{}", graph_.counts["Package"] - 1);
    cpu.numa = only_member(element.attribute("nodeset"));
    device_of_[index] = graph_.add_device(std::move(cpu));
  }

  // NUMA node of the nearest object around that is in exactly one.
  [[nodiscard]] std::optional<int> numa_of(std::size_t index) const {
    for (std::size_t at = index; at != elements_[at].parent; at = elements_[at].parent) {
      if (elements_[at].has("nodeset")) return only_member(elements_[at].attribute("nodeset"));
    }
    return std::nullopt;
  }

  DeviceIndex add_pci_device(std::size_t index, Device pci) {
    const XmlElement& element = elements_[index];
    pci.kind = DeviceKind::kPci;
    pci.parent = device_of_[element.parent];
    pci.numa = numa_of(index);
    const double speed = parse_real(element.attribute("pci_link_speed")).value_or(0);
    const DeviceIndex parent = pci.parent;
    const DeviceIndex at = graph_.add_device(std::move(pci));
    device_of_[index] = at;
    graph_.add_both_ways({at, parent, "PCI", speed > 0 ? std::optional(speed) : std::nullopt, LinkBasis::kStated});
    return at;
  }

  Status add_bridge(std::size_t index) {
    const XmlElement& element = elements_[index];
    const bool is_host = element.attribute("bridge_type").starts_with("0-");
    Device bridge;
    bridge.bus_id = to_lower(element.attribute("pci_busid"));
    bridge.name = is_host ? std::string(element.attribute("bridge_pci")) : bridge.bus_id;
    bridge.pci_class = is_host ? kHostBridgeClass : parse_pci_type(element.attribute("pci_type")).pci_class;
    if (!is_host && bridge.bus_id.empty()) return invalid(element, "is a PCI bridge without pci_busid");
    add_pci_device(index, std::move(bridge));
    return {};
  }

  Status add_pci(std::size_t index) {
    const XmlElement& element = elements_[index];
    PciFunction function;
    function.type = parse_pci_type(element.attribute("pci_type"));
    Device pci;
    pci.bus_id = to_lower(element.attribute("pci_busid"));
    pci.name = pci.bus_id;
    pci.pci_class = function.type.pci_class;
    if (pci.bus_id.empty()) return invalid(element, "is a PCI device without pci_busid");
    function.device = add_pci_device(index, std::move(pci));
    function_of_[function.device] = functions_.size();
    functions_.push_back(std::move(function));
    return {};
  }

  void add_os_device(std::size_t index) {
    const XmlElement& element = elements_[index];
    const std::string_view name = element.attribute("name");
    if (name.starts_with("cuda") || name.starts_with("nvml")) ++graph_.counts["OSDev cuda/nvml"];
    const auto function = function_of_.find(device_of_[index]);
    if (function != function_of_.end()) {
      functions_[function->second].os_devices.push_back(index);
    } else if (os_kind(element, has_bits_) == OsKind::kGpu) {
      loose_gpus_.push_back(index);
    }
  }

  void add_info(const XmlElement& info) {
    const XmlElement& owner = elements_[info.parent];
    const std::string value(trim_blanks(info.attribute("value")));
    if (info.attribute("name") == "HostName" && !value.empty()) {
      graph_.devices.front().name = value;
      graph_.devices.front().hardware = value;
    }
    if (info.attribute("name") == "DMIProductName") graph_.devices.front().model = value;
    if (info.attribute("name") == "GPUModel") model_of_[info.parent] = value;
    if (info.attribute("name") == "CPUModel" && owner.attribute("type") == "Package") graph_.devices[device_of_[info.parent]].model = value;
  }

  [[nodiscard]] bool is_gpu(const PciFunction& function) const {
    const std::string_view pci_class = function.type.pci_class;
    const bool has_library =
        std::ranges::any_of(function.os_devices, [&](std::size_t index) { return os_kind(elements_[index], has_bits_) == OsKind::kGpu; });
    if (has_library || pci_class.starts_with("0x0302") || pci_class.starts_with("0x1200")) return true;
    if (pci_class.starts_with("0x0380")) return function.type.vendor == "1002";
    return pci_class.starts_with("0x0300") && function.type.vendor == "10de";
  }

  void add_endpoints() {
    const bool has_named_nics = std::ranges::any_of(
        functions_, [](const PciFunction& function) { return is_network_class(function.type.pci_class) && !function.os_devices.empty(); });
    for (const PciFunction& function : functions_) {
      if (is_gpu(function)) {
        add_gpu(function.device, function.os_devices);
      } else if (is_network_class(function.type.pci_class) && (!has_named_nics || !function.os_devices.empty())) {
        add_nic(function);
      }
    }
    add_loose_gpus();
    name_gpus();
  }

  // A GPU inside the processor hangs on no PCI device: one for each name of the library that knows most.
  void add_loose_gpus() {
    std::map<std::string_view, std::vector<std::size_t>> by_library;
    for (const std::size_t index : loose_gpus_) by_library[elements_[index].attribute("subtype")].push_back(index);
    const auto most = std::ranges::max_element(by_library, {}, [](const auto& entry) { return entry.second.size(); });
    if (most == by_library.end()) return;
    for (const std::size_t index : most->second) add_gpu(device_of_[index], {index});
  }

  void add_gpu(DeviceIndex parent, const std::vector<std::size_t>& os_devices) {
    Device gpu;
    gpu.kind = DeviceKind::kGpu;
    gpu.parent = parent;
    gpu.bus_id = graph_.devices[parent].bus_id;
    gpu.numa = graph_.devices[parent].numa;
    const DeviceIndex at = graph_.devices.size();
    for (const std::size_t index : os_devices) {
      const auto model = model_of_.find(index);
      if (model != model_of_.end()) gpu.model = model->second;
      if (os_kind(elements_[index], has_bits_) != OsKind::kGpu) continue;
      device_of_[index] = at;  // distances name these
      const std::string_view name = elements_[index].attribute("name");
      const bool is_first_choice = name.starts_with("nvml") || name.starts_with("rsmi");
      if (gpu.hardware.empty() || is_first_choice) gpu.hardware = name;
    }
    graph_.add_device(std::move(gpu));
  }

  // By the number of the library that counts as nvidia-smi does, when all have one and no two the same; otherwise in the order of the file.
  void name_gpus() {
    std::vector<DeviceIndex> gpus;
    std::vector<std::string> numbers;
    for (DeviceIndex index = 0; index < graph_.devices.size(); ++index) {
      const Device& device = graph_.devices[index];
      if (device.kind != DeviceKind::kGpu) continue;
      gpus.push_back(index);
      const std::size_t digits = device.hardware.find_first_of("0123456789");
      if (digits != std::string::npos) numbers.push_back(device.hardware.substr(digits));
    }
    std::vector<std::string> sorted = numbers;
    std::ranges::sort(sorted);
    const bool has_numbers = numbers.size() == gpus.size() && std::ranges::adjacent_find(sorted) == sorted.end();
    for (std::size_t index = 0; index < gpus.size(); ++index) {
      graph_.devices[gpus[index]].name = has_numbers ? "GPU" + numbers[index] : fmt::format("GPU{}", index);
    }
  }

  void add_nic(const PciFunction& function) {
    Device nic;
    nic.kind = DeviceKind::kNic;
    nic.parent = function.device;
    nic.bus_id = graph_.devices[function.device].bus_id;
    nic.numa = graph_.devices[function.device].numa;
    for (const std::size_t index : function.os_devices) {
      const OsKind kind = os_kind(elements_[index], has_bits_);
      if (kind == OsKind::kOpenFabrics || (kind == OsKind::kNetwork && nic.name.empty())) nic.name = elements_[index].attribute("name");
    }
    if (nic.name.empty() && !function.os_devices.empty()) nic.name = elements_[function.os_devices.front()].attribute("name");
    if (nic.name.empty()) nic.name = "net " + nic.bus_id;
    graph_.add_device(std::move(nic));
  }

  // What <indexes> and <u64values> below say: "332 333 3", or "OSDev:332 Package:3".
  Status add_bandwidths(std::size_t index) {
    const XmlElement& element = elements_[index];
    const bool is_xgmi = element.attribute("name").starts_with("XGMI");
    if (!is_xgmi && !element.attribute("name").starts_with("NVLink")) return {};
    std::vector<std::optional<DeviceIndex>> ends;
    std::vector<std::uint64_t> values;
    for (std::size_t at = index + 1; at < elements_.size() && elements_[at].parent == index; ++at) {
      for (std::string_view word : split_words(elements_[at].text)) {
        if (word.find(':') != std::string_view::npos) word.remove_prefix(word.find(':') + 1);
        const auto number = parse_whole<std::uint64_t>(word);
        if (!number) return invalid(elements_[at], fmt::format("holds \"{}\", which is no number", word));
        if (elements_[at].name == "indexes") ends.push_back(device_with_index(*number));
        if (elements_[at].name == "u64values") values.push_back(*number);
      }
    }
    if (ends.size() > kEndpointsMax || values.size() != ends.size() * ends.size()) {
      return invalid(element, fmt::format("has {} values for {} objects", values.size(), ends.size()));
    }
    for (std::size_t from = 0; from < ends.size(); ++from) {
      for (std::size_t to = 0; to < ends.size(); ++to) {
        const std::uint64_t megabytes = values[from * ends.size() + to];
        if (megabytes != 0 && ends[from] && ends[to] && *ends[from] != *ends[to]) add_bandwidth(*ends[from], *ends[to], megabytes, is_xgmi);
      }
    }
    return {};
  }

  [[nodiscard]] std::optional<DeviceIndex> device_with_index(std::uint64_t gp_index) const {
    const auto element = by_gp_index_.find(gp_index);
    if (element == by_gp_index_.end()) return std::nullopt;
    const DeviceKind kind = graph_.devices[device_of_[element->second]].kind;
    return kind == DeviceKind::kGpu || kind == DeviceKind::kCpu ? std::optional(device_of_[element->second]) : std::nullopt;
  }

  void add_bandwidth(DeviceIndex from, DeviceIndex to, std::uint64_t megabytes, bool is_xgmi) {
    // NVLink 1 has 20 GB/s a lane and at most 4 of them; later ones have 25.
    const std::uint64_t lane = megabytes % 20'000 == 0 && megabytes <= 80'000 ? 20'000 : 25'000;
    const std::uint64_t lanes = std::max<std::uint64_t>(1, megabytes / lane);
    if (graph_.devices[from].kind == DeviceKind::kGpu)
      graph_.devices[from].fast_links += static_cast<std::uint32_t>(std::min<std::uint64_t>(lanes, 1000));
    const std::string label = is_xgmi ? "XGMI" : fmt::format("NV{}", lanes);
    graph_.links.push_back({from, to, label, static_cast<double>(megabytes) / 1000, LinkBasis::kStated});
  }

  void report_gaps() {
    if (functions_.empty() && loose_gpus_.empty()) {
      graph_.add_gap("no-io-devices", "file",
                     "the file has no PCI devices: export it on the machine with I/O, `lstopo --whole-io --of xml`");
    } else if (graph_.ngpus() == 0) {
      graph_.add_problem("no-gpus", Severity::kInfo, "file", "none of the PCI devices is a GPU");
    }
  }

  const std::vector<XmlElement>& elements_;
  std::vector<DeviceIndex> device_of_;  // by element: its device, or that of the nearest object around it that has one
  SiteGraph graph_;
  bool has_bits_ = false;
  std::vector<PciFunction> functions_;
  std::map<DeviceIndex, std::size_t> function_of_;
  std::vector<std::size_t> loose_gpus_;
  std::vector<std::size_t> distances_;
  std::map<std::size_t, std::string> model_of_;  // by element
  std::map<std::uint64_t, std::size_t> by_gp_index_;
};

}  // namespace

Result<SiteGraph> read_hwloc_xml(std::string_view text, const std::string& name) {
  SLUICE_TRY(const auto elements, parse_xml_elements(text, name));
  if (elements.front().name != "topology" && elements.front().name != "root") {
    return fail(ErrorCode::kTopologyWrongKind, "read " + name,
                fmt::format("the root is <{}>: hwloc XML opens with <topology>", elements.front().name));
  }
  return HwlocReader(elements, name).read();
}

}  // namespace sluice::topology
