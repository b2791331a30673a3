// The listing has a block for each switch and adapter:
//     Switch  65 "S-2c5e..."  # "MF0;LEAF-04:MQM9701/U1" enhanced port 0 lid 73 lmc 0
//     [1]     "H-e09d..."[1](e09d...)   # "node-04 mlx5_5" lid 647 4xNDR
//     Ca      1 "H-e09d..."   # "node-04 mlx5_5"
//     [1](e09d...)  "S-2c5e..."[17]     # lid 657 lmc 0 "MF0;LEAF-04:MQM9701/U1" lid 73 4xNDR
// Every cable between two listed devices stands there twice, once in the block of each end: it counts by its end in the listing. Adapters
// inside switches ("Aggregation Node") belong to no node.

#include "topology/ibnetdiscover_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "topology/internal/cluster_builder.h"
#include "topology/internal/text_fields.h"
#include "topology/limits.h"

namespace sluice::topology {
namespace {

struct Port {
  std::string owner;  // GUID name, "S-..." or "H-..."
  std::string peer;
  std::size_t line = 0;
  std::optional<double> gb_per_second;
};

struct Block {
  std::string description;
  bool is_switch = false;
  bool is_router = false;
};

// The text between the first pair of quotes at or after `from`; moves `from` behind it.
std::optional<std::string_view> next_quoted(std::string_view line, std::size_t& from) {
  const std::size_t open = line.find('"', from);
  if (open == std::string_view::npos) return std::nullopt;
  const std::size_t close = line.find('"', open + 1);
  if (close == std::string_view::npos) return std::nullopt;
  from = close + 1;
  return line.substr(open + 1, close - open - 1);
}

// GB/s of "4xNDR": data rate of a lane times the width.
std::optional<double> parse_rate(std::string_view word) {
  constexpr std::array<std::pair<std::string_view, double>, 9> kLanes = {{{"SDR", 2.0},
                                                                          {"DDR", 4.0},
                                                                          {"QDR", 8.0},
                                                                          {"FDR10", 10.0},
                                                                          {"FDR", 13.64},
                                                                          {"EDR", 25.0},
                                                                          {"HDR", 50.0},
                                                                          {"NDR", 100.0},
                                                                          {"XDR", 200.0}}};
  const std::size_t times = word.find('x');
  if (times == std::string_view::npos) return std::nullopt;
  const auto width = parse_whole<int>(word.substr(0, times));
  const auto lane = std::ranges::find(kLanes, word.substr(times + 1), &std::pair<std::string_view, double>::first);
  if (!width || *width < 1 || *width > 12 || lane == kLanes.end()) return std::nullopt;
  return *width * lane->second / 8;
}

// "MF0;A09-LEAF-04:MQM9701/U1" is the switch A09-LEAF-04.
std::string switch_name(std::string_view description, const std::string& guid) {
  if (description.starts_with("MF0;")) description.remove_prefix(4);
  const std::string_view name = trim_blanks(description.substr(0, description.find(':')));
  return name.empty() || name == "Quantum Mellanox Technologies" ? guid : std::string(name);
}

class FabricReader {
 public:
  explicit FabricReader(const std::string& name) : operation_("read " + name), builder_(name, "ibnetdiscover") {}

  Result<SiteGraph> read(std::string_view text) {
    Status status;
    for_each_line(text, kFabricLinesMax, [&](std::size_t number, std::string_view line) {
      if (status) status = add_line(number, line);
    });
    SLUICE_CHECK_OK(std::move(status));
    if (blocks_.empty()) return fail(ErrorCode::kTopologyUnrecognized, operation_, "no line of a switch or adapter in the text");
    add_devices();
    add_cables();
    report_gaps();
    return builder_.take();
  }

 private:
  Status add_line(std::size_t number, std::string_view line) {
    const auto invalid = [&](std::string_view why) {
      return fail(ErrorCode::kTopologyInvalid, operation_, fmt::format("line {}: {}", number, why));
    };
    const bool is_switch = line.starts_with("Switch");
    const bool is_router = line.starts_with("Rt");
    std::size_t at = 0;
    if (is_switch || is_router || line.starts_with("Ca")) {
      const auto guid = next_quoted(line, at);
      const auto description = next_quoted(line, at);
      if (!guid || guid->empty()) return invalid("the device has no name in quotes");
      if (blocks_.size() >= kNodesMax)
        return fail(ErrorCode::kTopologyTooLarge, operation_, fmt::format("more than {} devices", kNodesMax));
      owner_ = *guid;
      if (!blocks_.emplace(owner_, Block{std::string(description.value_or("")), is_switch, is_router}).second) {
        return invalid(fmt::format("the device {} stands there twice", owner_));
      }
      order_.push_back(owner_);
    } else if (line.starts_with('[')) {
      const auto peer = next_quoted(line, at);
      if (owner_.empty()) return invalid("a port before any device");
      if (!peer) return invalid("the port has no peer in quotes");
      const std::vector<std::string_view> words = split_words(line.substr(at));
      ports_.push_back({owner_, std::string(*peer), number, words.empty() ? std::nullopt : parse_rate(words.back())});
    }
    return {};
  }

  void add_devices() {
    for (const std::string& guid : order_) {
      const Block& block = blocks_.at(guid);
      if (block.is_switch || block.is_router) {
        std::string name = switch_name(block.description, guid);
        if (builder_.find(DeviceKind::kSwitch, name)) name += " " + guid;
        device_of_[guid] = builder_.network_switch(name);
      } else if (block.description.find("Aggregation Node") == std::string::npos) {
        device_of_[guid] = add_adapter(guid, block.description);
      }
    }
  }

  // "host mlx5_0"; the host's name can hold blanks in it, the adapter's cannot.
  DeviceIndex add_adapter(const std::string& guid, std::string_view description) {
    const std::size_t blank = description.rfind(' ');
    const std::string host(trim_blanks(description.substr(0, blank)));
    const std::string adapter(blank == std::string_view::npos ? std::string_view(guid) : description.substr(blank + 1));
    const DeviceIndex node = builder_.node(host.empty() ? guid : host);
    if (!adapters_.emplace(std::pair(node, adapter), guid).second) {
      builder_.graph().add_problem("repeated-adapter", Severity::kWarning, host, fmt::format("two adapters are called {}", adapter));
    }
    Device nic;
    nic.kind = DeviceKind::kNic;
    nic.name = adapter;
    nic.parent = node;
    return builder_.graph().add_device(std::move(nic));
  }

  // Cables of one pair are added up; a pair that only the other end lists counts by that.
  void add_cables() {
    struct Bundle {
      std::size_t cables = 0;
      std::size_t known = 0;
      double gb_per_second = 0;
    };
    std::map<std::pair<DeviceIndex, DeviceIndex>, Bundle> bundles;
    std::unordered_map<std::string, std::size_t> lone;
    for (const Port& port : ports_) {
      const auto from = device_of_.find(port.owner);
      const auto to = device_of_.find(port.peer);
      if (from == device_of_.end()) continue;
      if (to == device_of_.end()) {
        if (!blocks_.contains(port.peer)) ++lone[port.peer];
        continue;
      }
      Bundle& bundle = bundles[{from->second, to->second}];
      ++bundle.cables;
      if (!port.gb_per_second) continue;
      ++bundle.known;
      bundle.gb_per_second += *port.gb_per_second;
    }
    if (!lone.empty()) {
      builder_.graph().add_gap("missing-device", lone.begin()->first,
                               fmt::format("{} devices at the end of a cable are not listed: the listing is cut", lone.size()));
    }
    std::vector<std::size_t> degree(builder_.graph().devices.size(), 0);
    for (const auto& [ends, bundle] : bundles) {
      const auto back = bundles.find({ends.second, ends.first});
      if (ends.first > ends.second && back != bundles.end()) continue;
      const bool is_known = bundle.known == bundle.cables;
      ++degree[ends.first];
      ++degree[ends.second];
      builder_.join(ends.first, ends.second, "NET", is_known ? std::optional(bundle.gb_per_second) : std::nullopt);
    }
    note_ports(degree);
  }

  void note_ports(const std::vector<std::size_t>& degree) {
    SiteGraph& graph = builder_.graph();
    for (const Link& link : graph.links) {
      Device& device = graph.devices[link.from];
      if (device.kind == DeviceKind::kNic && link.gb_per_second) device.network_gb_per_second = link.gb_per_second;
    }
    for (DeviceIndex index = 0; index < graph.devices.size(); ++index) {
      if (graph.devices[index].kind != DeviceKind::kNic || degree[index] != 0) continue;
      graph.add_gap("port-unlinked", fmt::format("{} {}", graph.devices[graph.devices[index].parent].name, graph.devices[index].name),
                    "the adapter has no cable in the listing");
    }
  }

  void report_gaps() {
    if (builder_.graph().count(DeviceKind::kSwitch) == 0) builder_.graph().add_gap("no-switches", "file", "the listing names no switch");
  }

  std::string operation_;
  ClusterBuilder builder_;
  std::string owner_;
  std::unordered_map<std::string, Block> blocks_;
  std::vector<std::string> order_;
  std::vector<Port> ports_;
  std::unordered_map<std::string, DeviceIndex> device_of_;
  std::map<std::pair<DeviceIndex, std::string>, std::string> adapters_;
};

}  // namespace

Result<SiteGraph> read_ibnetdiscover(std::string_view text, const std::string& name) { return FabricReader(name).read(text); }

}  // namespace sluice::topology
