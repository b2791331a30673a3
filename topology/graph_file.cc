#include "topology/graph_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "topology/internal/json_text.h"
#include "topology/limits.h"

namespace sluice::topology {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kNameBytesMax = 4096;

// A string of the file; what is not UTF-8 is replaced.
std::string json_string(std::string_view text) { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); }

void append_text(std::string& out, std::string_view key, std::string_view value) {
  if (!value.empty()) fmt::format_to(std::back_inserter(out), ",\"{}\":{}", key, json_string(value));
}

void append_device(std::string& out, const Device& device, DeviceIndex index) {
  fmt::format_to(std::back_inserter(out), "{{\"kind\":\"{}\",\"name\":{}", device_kind_name(device.kind), json_string(device.name));
  if (device.parent != index) fmt::format_to(std::back_inserter(out), ",\"in\":{}", device.parent);
  append_text(out, "hardware", device.hardware);
  append_text(out, "bus_id", device.bus_id);
  append_text(out, "pci_class", device.pci_class);
  append_text(out, "type", device.type);
  append_text(out, "model", device.model);
  if (device.numa) fmt::format_to(std::back_inserter(out), ",\"numa\":{}", *device.numa);
  if (device.network_gb_per_second) fmt::format_to(std::back_inserter(out), ",\"network_gb_per_second\":{}", *device.network_gb_per_second);
  if (device.fast_links != 0) fmt::format_to(std::back_inserter(out), ",\"fast_links\":{}", device.fast_links);
  out += '}';
}

// [from, to, label, basis, file, GB/s or null, latency]: the label by its place in "labels", the basis as a number. A site has hundreds of
// thousands of links and a few dozen labels.
void append_link(std::string& out, const Link& link, std::size_t label) {
  fmt::format_to(std::back_inserter(out), "[{},{},{},{},{},", link.from, link.to, label, static_cast<int>(link.basis), link.file);
  if (link.gb_per_second) {
    fmt::format_to(std::back_inserter(out), "{}", *link.gb_per_second);
  } else {
    out += "null";
  }
  if (link.latency_us) fmt::format_to(std::back_inserter(out), ",{}", *link.latency_us);
  out += ']';
}

Json problems_to_json(const SiteGraph& graph) {
  Json problems = Json::array();
  for (const Problem& problem : graph.problems) {
    problems.push_back({{"id", problem.id},
                        {"severity", severity_name(problem.severity)},
                        {"where", problem.where},
                        {"text", problem.text},
                        {"gap", problem.is_gap}});
  }
  return problems;
}

Json channel_files_to_json(const SiteGraph& graph) {
  Json files = Json::array();
  for (const ChannelFile& file : graph.channel_files) {
    files.push_back({{"name", file.name}, {"graphs", file.graphs}, {"channels", file.channels}, {"gpus", file.gpus}, {"nics", file.nics}});
  }
  return files;
}

// The readers below throw this; read_graph_file turns it into an Error.
struct Wrong {
  std::string text;
};

class FileReader {
 public:
  explicit FileReader(const Json& root) : root_(root) {}

  SiteGraph read() {
    check_keys(root_, "the file",
               {"format", "version", "partial", "files", "devices", "labels", "links", "problems", "channel_files", "counts"});
    SiteGraph graph;
    graph.is_partial = boolean(root_, "partial");
    for (const Json& entry : list("files")) {
      check_keys(entry, "files", {"name", "kind"});
      graph.files.push_back({text(entry, "name"), text(entry, "kind")});
    }
    if (graph.files.empty()) throw Wrong{"files is empty"};
    const Json& devices = list("devices");
    if (devices.size() > kSiteDevicesMax) throw Wrong{fmt::format("more than {} devices", kSiteDevicesMax)};
    graph.devices.reserve(devices.size());
    for (const Json& entry : devices) graph.devices.push_back(read_device(entry, graph.devices.size()));
    for (const Json& entry : list("labels")) labels_.push_back(as_text(entry, "a label"));
    const Json& links = list("links");
    if (links.size() > kSiteLinksMax) throw Wrong{fmt::format("more than {} links", kSiteLinksMax)};
    graph.links.reserve(links.size());
    for (const Json& entry : links) graph.links.push_back(read_link(entry, graph));
    read_rest(graph);
    return graph;
  }

 private:
  static void check_keys(const Json& object, std::string_view where, std::initializer_list<std::string_view> known) {
    if (!object.is_object()) throw Wrong{fmt::format("{} must be an object", where)};
    for (const auto& [key, value] : object.items()) {
      if (std::ranges::find(known, key) == known.end()) throw Wrong{fmt::format("unknown key {} in {}", key.substr(0, 80), where)};
    }
  }

  static const Json& at(const Json& object, const char* key) {
    const auto found = object.find(key);
    if (found == object.end()) throw Wrong{fmt::format("{} is missing", key)};
    return *found;
  }

  const Json& list(const char* key) const {
    const Json& value = at(root_, key);
    if (!value.is_array()) throw Wrong{fmt::format("{} must be a list", key)};
    return value;
  }

  static std::string as_text(const Json& value, std::string_view where) {
    if (!value.is_string()) throw Wrong{fmt::format("{} must be a string", where)};
    const auto& result = value.get_ref<const std::string&>();
    if (result.size() > kNameBytesMax) throw Wrong{fmt::format("{} is longer than {} bytes", where, kNameBytesMax)};
    return result;
  }
  static std::string text(const Json& object, const char* key) { return as_text(at(object, key), key); }
  static std::string optional_text(const Json& object, const char* key) {
    const auto found = object.find(key);
    return found == object.end() ? std::string() : as_text(*found, key);
  }

  static bool boolean(const Json& object, const char* key) {
    const Json& value = at(object, key);
    if (!value.is_boolean()) throw Wrong{fmt::format("{} must be true or false", key)};
    return value.get<bool>();
  }

  static std::uint64_t as_count(const Json& value, std::string_view where, std::uint64_t end) {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= end)
      throw Wrong{fmt::format("{} must be a number below {}", where, end)};
    return value.get<std::uint64_t>();
  }

  static std::optional<double> as_speed(const Json& value, std::string_view where) {
    if (value.is_null()) return std::nullopt;
    if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0) {
      throw Wrong{fmt::format("{} must be null or a number that is not negative", where)};
    }
    return value.get<double>();
  }

  static Device read_device(const Json& entry, DeviceIndex index) {
    const std::string where = fmt::format("devices[{}]", index);
    check_keys(entry, where,
               {"kind", "name", "in", "hardware", "bus_id", "pci_class", "type", "model", "numa", "network_gb_per_second", "fast_links"});
    Device device;
    const auto kind = parse_device_kind(text(entry, "kind"));
    if (!kind) throw Wrong{where + " is of an unknown kind"};
    device.kind = *kind;
    device.name = text(entry, "name");
    device.hardware = optional_text(entry, "hardware");
    device.bus_id = optional_text(entry, "bus_id");
    device.pci_class = optional_text(entry, "pci_class");
    device.type = optional_text(entry, "type");
    device.model = optional_text(entry, "model");
    const auto parent = entry.find("in");
    device.parent = parent == entry.end() ? index : as_count(*parent, where + ".in", index);
    if (const auto numa = entry.find("numa"); numa != entry.end()) {
      if (!numa->is_number_integer() || numa->get<std::int64_t>() < -1 || numa->get<std::int64_t>() > 65'535) {
        throw Wrong{where + ".numa is no number of a NUMA node"};
      }
      device.numa = numa->get<int>();
    }
    if (const auto speed = entry.find("network_gb_per_second"); speed != entry.end()) {
      device.network_gb_per_second = as_speed(*speed, where + ".network_gb_per_second");
    }
    if (const auto lanes = entry.find("fast_links"); lanes != entry.end()) {
      device.fast_links = static_cast<std::uint32_t>(as_count(*lanes, where + ".fast_links", 1'000'000));
    }
    return device;
  }

  Link read_link(const Json& entry, const SiteGraph& graph) const {
    if (!entry.is_array() || entry.size() < 6 || entry.size() > 7) {
      throw Wrong{fmt::format("links[{}] must be a list of 6 or 7", graph.links.size())};
    }
    Link link;
    const std::size_t devices = graph.devices.size();
    link.from = as_count(entry[0], "from in links", devices);
    link.to = as_count(entry[1], "to in links", devices);
    link.label = labels_[as_count(entry[2], "label in links", labels_.size())];
    link.basis = static_cast<LinkBasis>(as_count(entry[3], "basis in links", 3));
    link.file = static_cast<FileIndex>(as_count(entry[4], "file in links", graph.files.size()));
    link.gb_per_second = as_speed(entry[5], "speed in links");
    if (entry.size() == 7) link.latency_us = as_speed(entry[6], "latency in links");
    return link;
  }

  void read_rest(SiteGraph& graph) const {
    for (const Json& entry : list("problems")) {
      check_keys(entry, "problems", {"id", "severity", "where", "text", "gap"});
      const auto severity = parse_severity(text(entry, "severity"));
      if (!severity) throw Wrong{"a severity in problems is not known"};
      graph.add_problem(text(entry, "id"), *severity, text(entry, "where"), text(entry, "text"));
      if (!graph.problems.empty()) graph.problems.back().is_gap = boolean(entry, "gap");
    }
    for (const Json& entry : list("channel_files")) {
      check_keys(entry, "channel_files", {"name", "graphs", "channels", "gpus", "nics"});
      ChannelFile file{text(entry, "name"),
                       as_count(at(entry, "graphs"), "graphs", kXmlElementsMax),
                       as_count(at(entry, "channels"), "channels", kXmlElementsMax),
                       {},
                       {}};
      for (const Json& gpu : at(entry, "gpus")) file.gpus.push_back(static_cast<int>(as_count(gpu, "gpus", 65'536)));
      for (const Json& nic : at(entry, "nics")) file.nics.push_back(static_cast<int>(as_count(nic, "nics", 65'536)));
      graph.channel_files.push_back(std::move(file));
    }
    const Json& counts = at(root_, "counts");
    if (!counts.is_object()) throw Wrong{"counts must be an object"};
    for (const auto& [key, value] : counts.items()) graph.counts[key] = as_count(value, "a count", std::uint64_t{1} << 53U);
  }

  const Json& root_;
  std::vector<std::string> labels_;
};

}  // namespace

std::string write_graph_file(const SiteGraph& graph) {
  std::string out =
      fmt::format("{{\"format\":\"sluice-topology\",\"version\":{},\"partial\":{},\n\"files\":[", kGraphFileVersion, graph.is_partial);
  for (const SourceFile& file : graph.files) {
    fmt::format_to(std::back_inserter(out), "{}{{\"name\":{},\"kind\":{}}}", out.back() == '[' ? "" : ",", json_string(file.name),
                   json_string(file.kind));
  }
  out += "],\n\"devices\":[";
  for (DeviceIndex index = 0; index < graph.devices.size(); ++index) {
    out += index == 0 ? "\n" : ",\n";
    append_device(out, graph.devices[index], index);
  }
  std::map<std::string_view, std::size_t> place;
  std::vector<std::string_view> labels;
  for (const Link& link : graph.links) {
    if (place.emplace(link.label, labels.size()).second) labels.push_back(link.label);
  }
  out += "],\n\"labels\":[";
  for (std::size_t index = 0; index < labels.size(); ++index) out += (index == 0 ? "" : ",") + json_string(labels[index]);
  out += "],\n\"links\":[";
  for (std::size_t index = 0; index < graph.links.size(); ++index) {
    out += index == 0 ? "\n" : ",\n";
    append_link(out, graph.links[index], place.at(graph.links[index].label));
  }
  const auto dump = [](const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); };
  out += fmt::format("],\n\"problems\":{},\n\"channel_files\":{},\n\"counts\":{}}}\n", dump(problems_to_json(graph)),
                     dump(channel_files_to_json(graph)), dump(Json(graph.counts)));
  return out;
}

Result<SiteGraph> read_graph_file(std::string_view text, const std::string& name) {
  if (text.size() > kFileBytesMax) {
    return fail(ErrorCode::kTopologyTooLarge, "read " + name, fmt::format("{} bytes, at most {}", text.size(), kFileBytesMax));
  }
  SLUICE_TRY(const Json root, parse_json(text, name));
  if (!root.is_object() || root.value("format", Json()) != "sluice-topology") {
    return fail(ErrorCode::kTopologyWrongKind, "read " + name, "JSON that is no graph file: \"format\" must be \"sluice-topology\"");
  }
  if (root.value("version", Json()) != kGraphFileVersion) {
    return fail(ErrorCode::kTopologyInvalid, "read " + name,
                fmt::format("version {} of the format: this program reads {}", root.value("version", Json()).dump().substr(0, 40),
                            kGraphFileVersion));
  }
  try {
    return FileReader(root).read();
  } catch (const Wrong& wrong) {
    return fail(ErrorCode::kTopologyInvalid, "read " + name, wrong.text);
  }
}

}  // namespace sluice::topology
