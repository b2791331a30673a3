#include "topology/nccl_xml_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <utility>

#include "topology/internal/nvlink_speed.h"
#include "topology/internal/pci_paths.h"
#include "topology/internal/xml_elements.h"
#include "topology/limits.h"

namespace sluice::topology {
namespace {

// More than 1.6 Tbit/s on one port exists nowhere: such a number is in another unit than Mbit/s.
constexpr double kPortMegabitsMax = 1'600'000;
constexpr std::size_t kErrorsShown = 4;

std::optional<int> parse_int(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty() ? std::optional(value) : std::nullopt;
}

bool is_hex(std::string_view text) { return !text.empty() && text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos; }

// A CPU mask in groups of 32 bits, most significant first: only the first group may be shorter than 8 digits.
bool is_cpu_mask(std::string_view text) {
  bool is_first = true;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view group = text.substr(0, comma);
    if (!is_hex(group) || group.size() > 8 || (!is_first && group.size() != 8)) return false;
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
    is_first = false;
  }
}

// "0000:0f:00.0"; the domain may be left out or longer, and clouds use numbers that no bus has ("ffff:ff:01.0").
bool is_bus_id(std::string_view text) {
  return text.size() >= 7 && text.find(':') != std::string_view::npos && text.find('.') != std::string_view::npos &&
         text.find_first_not_of("0123456789abcdefABCDEF:.") == std::string_view::npos;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return result;
}

// Of XGMI it is stated nowhere.
std::optional<double> lane_gb_per_second(std::string_view sm) {
  const auto version = parse_int(sm);
  return version ? nvlink_gb_per_second(*version) : std::nullopt;
}

// Width times speed, as NCCL reckons: Gen4 x16 is 24 GB/s. Nothing when the file does not say.
std::optional<double> pci_gb_per_second(const XmlElement& element) {
  constexpr std::array<std::pair<std::string_view, double>, 6> kSpeeds = {
      {{"2.5", 15}, {"5", 30}, {"8", 60}, {"16", 120}, {"32", 240}, {"64", 480}}};
  std::string_view speed = element.attribute("link_speed");
  const auto width = parse_int(element.attribute("link_width"));
  const std::size_t blank = speed.find(' ');
  if (blank == std::string_view::npos || !speed.substr(blank + 1).starts_with("GT/s") || !width || *width < 0) return std::nullopt;
  speed = speed.substr(0, blank);
  if (speed.ends_with(".0")) speed.remove_suffix(2);
  for (const auto& [name, units] : kSpeeds) {
    if (name == speed) return (*width == 0 ? 16 : *width) * units / 80;
  }
  return std::nullopt;
}

// What NCCL takes for the link between sockets.
std::optional<double> socket_gb_per_second(const XmlElement& cpu) {
  const std::string_view arch = cpu.attribute("arch");
  if (arch.starts_with("arm") || arch == "aarch64") return 6.0;
  if (arch.starts_with("ppc")) return 32.0;
  if (cpu.attribute("vendor") == "AuthenticAMD") return 16.0;
  const auto model = parse_int(cpu.attribute("modelid"));
  if (cpu.attribute("vendor") != "GenuineIntel" || !model) return std::nullopt;
  if (*model >= 0xCF) return 40.0;
  if (*model >= 0x8F) return 22.0;
  return *model >= 0x55 ? 10.0 : 6.0;
}

// "sm90"; RCCL's "gfx942", whose files write the digits.
std::string gpu_type(const XmlElement& gpu) {
  if (gpu.has("gcn"))
    return gpu.attribute("gcn").starts_with("gfx") ? std::string(gpu.attribute("gcn")) : fmt::format("gfx{}", gpu.attribute("gcn"));
  return parse_int(gpu.attribute("sm")) ? fmt::format("sm{}", gpu.attribute("sm")) : std::string();
}

bool is_gpu_class(std::string_view pci_class) { return pci_class.starts_with("0x03") || pci_class.starts_with("0x1200"); }

class XmlReader {
 public:
  XmlReader(const std::vector<XmlElement>& elements, const std::string& name) : elements_(elements), device_of_(elements.size(), 0) {
    graph_.files.push_back({name, "nccl-xml"});
    Device node;
    node.name = "node0";
    graph_.devices.push_back(std::move(node));
  }

  Result<SiteGraph> read() {
    check_version();
    for (std::size_t index = 1; index < elements_.size(); ++index) visit(index);
    infer_endpoints();
    if (!errors_.empty()) return refuse();
    const std::size_t endpoints = graph_.ngpus() + graph_.count(DeviceKind::kNic);
    if (endpoints > kEndpointsMax) {
      return fail(ErrorCode::kTopologyTooLarge, "read " + graph_.files.front().name,
                  fmt::format("{} GPUs and NICs, at most {}", endpoints, kEndpointsMax));
    }
    for (const std::size_t index : fast_links_) add_fast_link(index);
    report_gaps();
    add_derived_links(graph_, {.socket_gb_per_second = socket_});
    return std::move(graph_);
  }

 private:
  tl::unexpected<Error> refuse() const {
    const std::size_t shown = std::min(errors_.size(), kErrorsShown);
    std::string text = fmt::format("{}", fmt::join(errors_.begin(), errors_.begin() + static_cast<std::ptrdiff_t>(shown), "; "));
    if (shown < errors_.size()) text += fmt::format("; and {} more", errors_.size() - shown);
    return fail(ErrorCode::kTopologyInvalid, "read " + graph_.files.front().name, std::move(text));
  }

  void error(const XmlElement& element, std::string_view text) {
    errors_.push_back(fmt::format("line {}: <{}> {}", element.line, element.name, text));
  }

  static std::string where(const XmlElement& element) { return fmt::format("line {}", element.line); }

  void check_version() {
    const std::string_view version = elements_.front().attribute("version");
    if (version == "2") {
      graph_.add_problem("rccl-version", Severity::kInfo, where(elements_.front()), "version 2 is RCCL's: NCCL refuses this file");
    } else if (version != "1") {
      graph_.add_problem("version", Severity::kWarning, where(elements_.front()),
                         fmt::format("version \"{}\": NCCL takes only 1", version));
    }
  }

  void visit(std::size_t index) {
    const XmlElement& element = elements_[index];
    device_of_[index] = device_of_[element.parent];
    if (element.name == "cpu") return add_cpu(index);
    if (element.name == "pci") return add_pci(index);
    if (element.name == "gpu") return add_gpu(index);
    if (element.name == "net") return add_net(index);
    if (element.name == "nic") return check_nic(element);
    if (element.name == "nvlink" || element.name == "xgmi") return check_fast_link(index);
    if (element.name == "c2c" || element.name == "pcilink") return;
    graph_.add_problem("unknown-element", Severity::kInfo, where(element), fmt::format("<{}> is not known and was left out", element.name));
  }

  [[nodiscard]] std::string_view parent_name(std::size_t index) const { return elements_[elements_[index].parent].name; }

  DeviceIndex add_device(std::size_t index, Device device, std::optional<double> gb_per_second) {
    const DeviceIndex at = graph_.devices.size();
    device.parent = device_of_[elements_[index].parent];
    if (!device.numa) device.numa = graph_.devices[device.parent].numa;
    device_of_[index] = at;
    graph_.links.push_back({at, device.parent, "PCI", gb_per_second, LinkBasis::kStated});
    graph_.links.push_back({device.parent, at, "PCI", gb_per_second, LinkBasis::kStated});
    graph_.devices.push_back(std::move(device));
    return at;
  }

  void add_cpu(std::size_t index) {
    const XmlElement& element = elements_[index];
    Device cpu;
    cpu.kind = DeviceKind::kCpu;
    cpu.numa = parse_int(element.attribute("numaid"));
    if (parent_name(index) != "system") error(element, "stands outside <system>");
    if (!cpu.numa) error(element, "has no number in numaid");
    if (element.has("affinity") && !is_cpu_mask(element.attribute("affinity"))) {
      error(element, fmt::format("affinity=\"{}\" is no hexadecimal mask in groups of 8 digits", element.attribute("affinity")));
    }
    cpu.name = fmt::format("cpu{}", element.attribute("numaid"));
    const auto socket = socket_gb_per_second(element);
    if (socket) socket_ = socket_ ? std::min(*socket_, *socket) : *socket;
    add_device(index, std::move(cpu), std::nullopt);
    graph_.links.resize(graph_.links.size() - 2);  // a CPU is in its node, not linked to it
  }

  void add_pci(std::size_t index) {
    const XmlElement& element = elements_[index];
    Device pci;
    pci.kind = DeviceKind::kPci;
    pci.bus_id = lower(element.attribute("busid"));
    pci.name = pci.bus_id;
    pci.pci_class = lower(element.attribute("class"));
    if (parent_name(index) != "cpu" && parent_name(index) != "pci") error(element, "belongs in <cpu> or <pci>");
    if (!is_bus_id(pci.bus_id)) error(element, fmt::format("busid=\"{}\" is no PCI address", element.attribute("busid")));
    const std::string_view speed = element.attribute("link_speed");
    const auto gb_per_second = pci_gb_per_second(element);
    if (!speed.empty() && !gb_per_second) {
      graph_.add_problem("link-speed", Severity::kWarning, pci.bus_id,
                         fmt::format("link_speed=\"{}\" link_width=\"{}\" is no PCI speed", speed, element.attribute("link_width")));
    }
    const std::string bus_id = pci.bus_id;
    const DeviceIndex at = add_device(index, std::move(pci), gb_per_second);
    if (!by_bus_id_.emplace(bus_id, at).second) {
      graph_.add_problem("repeated-bus-id", Severity::kWarning, where(element), fmt::format("busid=\"{}\" stands there again", bus_id));
    }
  }

  void add_gpu(std::size_t index) {
    const XmlElement& element = elements_[index];
    const auto number = parse_int(element.attribute("dev"));
    if (parent_name(index) != "pci")
      error(element, fmt::format("stands in <{}>, and belongs in the <pci> of its device", parent_name(index)));
    if (!number) error(element, "has no number in dev");
    Device gpu;
    gpu.kind = DeviceKind::kGpu;
    gpu.name = fmt::format("GPU{}", element.attribute("dev"));
    gpu.bus_id = graph_.devices[device_of_[element.parent]].bus_id;
    gpu.type = gpu_type(element);
    const DeviceIndex at = add_device(index, std::move(gpu), std::nullopt);
    gpu_of_pci_.emplace(graph_.devices[at].parent, at);
  }

  void check_nic(const XmlElement& element) {
    if (!element.attributes.empty() && element.has("net"))
      error(element, "names its port in an attribute: ports are <net> elements inside");
  }

  void add_net(std::size_t index) {
    const XmlElement& element = elements_[index];
    Device nic;
    nic.kind = DeviceKind::kNic;
    nic.name = element.attribute("name");
    nic.bus_id = graph_.devices[device_of_[element.parent]].bus_id;
    if (parent_name(index) != "nic") error(element, fmt::format("stands in <{}>, and belongs in a <nic>", parent_name(index)));
    if (nic.name.empty()) nic.name = fmt::format("net{}", element.attribute("dev"));
    const double megabits = static_cast<double>(parse_int(element.attribute("speed")).value_or(0));
    if (megabits > kPortMegabitsMax) {
      graph_.add_problem("net-speed-unit", Severity::kWarning, nic.name,
                         fmt::format("speed=\"{}\" cannot be Mbit/s, and was left out", element.attribute("speed")));
    } else if (megabits > 0) {
      nic.network_gb_per_second = megabits / 8000;
    }
    if (element.attribute("gdr") == "0") graph_.add_problem("gdr-off", Severity::kInfo, nic.name, "the file says gdr=\"0\"");
    add_device(index, std::move(nic), std::nullopt);
  }

  void check_fast_link(std::size_t index) {
    const XmlElement& element = elements_[index];
    const auto count = parse_int(element.attribute("count"));
    if (parent_name(index) != "gpu") return error(element, "belongs in a <gpu>");
    if (!is_bus_id(element.attribute("target"))) {
      return error(element, fmt::format("target=\"{}\" is no PCI address", element.attribute("target")));
    }
    if (!count || *count <= 0 || *count > 1000) {
      return error(element, fmt::format("count=\"{}\" is no number of links", element.attribute("count")));
    }
    fast_links_.push_back(index);
  }

  // A file without <gpu> or <net>: what the classes of its PCI devices say.
  void infer_endpoints() {
    const bool has_gpus = graph_.ngpus() != 0;
    const bool has_nics = graph_.count(DeviceKind::kNic) != 0;
    const std::size_t pci_end = graph_.devices.size();
    std::size_t gpus = 0;
    std::size_t nics = 0;
    for (DeviceIndex index = 0; index < pci_end; ++index) {
      if (graph_.devices[index].kind != DeviceKind::kPci) continue;
      const std::string& pci_class = graph_.devices[index].pci_class;
      if (!has_gpus && is_gpu_class(pci_class)) infer(index, DeviceKind::kGpu, fmt::format("GPU{}", gpus++));
      if (!has_nics && pci_class.starts_with("0x02")) infer(index, DeviceKind::kNic, fmt::format("NIC{}", nics++));
    }
    if (gpus != 0)
      graph_.add_gap("no-gpu-elements", "file", "no <gpu>: GPUs were taken from the PCI class; NVLink and ranks need the live machine");
    if (nics != 0)
      graph_.add_gap("no-net-elements", "file", "no <net>: NICs were taken from the PCI class; names and speeds need the live machine");
  }

  void infer(DeviceIndex pci, DeviceKind kind, std::string name) {
    Device device;
    device.kind = kind;
    device.name = std::move(name);
    device.bus_id = graph_.devices[pci].bus_id;
    device.parent = pci;
    device.numa = graph_.devices[pci].numa;
    graph_.devices.push_back(std::move(device));
  }

  void add_fast_link(std::size_t index) {
    const XmlElement& element = elements_[index];
    const DeviceIndex gpu = device_of_[element.parent];
    const int count = parse_int(element.attribute("count")).value_or(0);
    const std::string target = lower(element.attribute("target"));
    const bool is_xgmi = element.name == "xgmi";
    graph_.devices[gpu].fast_links += static_cast<std::uint32_t>(count);
    const auto each = is_xgmi ? std::nullopt : lane_gb_per_second(elements_[element.parent].attribute("sm"));
    const auto gb_per_second = each ? std::optional(*each * count) : std::nullopt;
    const auto peer = target_of(element, target);
    if (!peer) {
      return graph_.add_gap("nvlink-target", graph_.devices[gpu].name,
                            fmt::format("{} to {}, which is neither a GPU of the file nor a switch", element.name, target));
    }
    graph_.links.push_back({gpu, *peer, fmt::format("{}{}", is_xgmi ? "XGMI" : "NV", count), gb_per_second, LinkBasis::kStated});
  }

  std::optional<DeviceIndex> target_of(const XmlElement& element, const std::string& target) {
    const auto known = by_bus_id_.find(target);
    if (known != by_bus_id_.end()) {
      const auto gpu = gpu_of_pci_.find(known->second);
      if (gpu != gpu_of_pci_.end()) return gpu->second;
      if (graph_.devices[known->second].kind == DeviceKind::kNvSwitch) return known->second;
    }
    if (!element.attribute("tclass").starts_with("0x0680")) return std::nullopt;
    Device nv_switch;
    nv_switch.kind = DeviceKind::kNvSwitch;
    nv_switch.name = target;
    nv_switch.bus_id = target;
    graph_.devices.push_back(std::move(nv_switch));
    by_bus_id_[target] = graph_.devices.size() - 1;
    return graph_.devices.size() - 1;
  }

  void report_gaps() {
    std::size_t unknown = 0;
    for (std::size_t index = 1; index < elements_.size(); ++index) {
      const bool is_leaf = index + 1 == elements_.size() || elements_[index + 1].parent != index;
      if (elements_[index].name == "pci" && is_leaf && elements_[index].attribute("class").empty()) ++unknown;
    }
    if (unknown != 0) {
      graph_.add_gap("no-pci-class", "file",
                     fmt::format("{} PCI devices have no class: what they are needs the live machine or another file", unknown));
    }
    if (graph_.ngpus() == 0)
      graph_.add_gap("no-gpus", "file", "the file does not say where the GPUs are: this is not a machine without GPUs");
    if (graph_.count(DeviceKind::kNic) == 0) graph_.add_gap("no-nics", "file", "the file names no NIC");
    if (graph_.count(DeviceKind::kCpu) == 0) graph_.add_gap("no-cpus", "file", "the file names no CPU");
  }

  const std::vector<XmlElement>& elements_;
  std::vector<DeviceIndex> device_of_;  // by element: its device, or that of the nearest element around it that has one
  SiteGraph graph_;
  std::vector<std::string> errors_;
  std::vector<std::size_t> fast_links_;  // elements
  std::map<std::string, DeviceIndex> by_bus_id_;
  std::map<DeviceIndex, DeviceIndex> gpu_of_pci_;
  std::optional<double> socket_;  // the slowest that is stated
};

tl::unexpected<Error> refuse_root(const std::vector<XmlElement>& elements, const std::string& name) {
  const std::string& root = elements.front().name;
  if (root == "graphs") {
    const auto graphs = std::ranges::count(elements, "graph", &XmlElement::name);
    const auto channels = std::ranges::count(elements, "channel", &XmlElement::name);
    return fail(
        ErrorCode::kTopologyWrongKind, "read " + name,
        fmt::format("an NCCL graph file (NCCL_GRAPH_FILE) with graphs={} channels={}: rings and trees, not what the machine is made of; "
                    "give the topology file (NCCL_TOPO_FILE or NCCL_TOPO_DUMP_FILE)",
                    graphs, channels));
  }
  const std::string_view hint = root == "topology" ? "this looks like hwloc XML; " : "";
  return fail(ErrorCode::kTopologyWrongKind, "read " + name,
              fmt::format("the root is <{}>: {}NCCL topology XML opens with <system>", root, hint));
}

}  // namespace

Result<SiteGraph> read_nccl_xml(std::string_view text, const std::string& name) {
  SLUICE_TRY(const auto elements, parse_xml_elements(text, name));
  if (elements.front().name != "system") return refuse_root(elements, name);
  return XmlReader(elements, name).read();
}

}  // namespace sluice::topology
