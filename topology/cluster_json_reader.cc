#include "topology/cluster_json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "topology/graph_file.h"
#include "topology/internal/cluster_builder.h"
#include "topology/internal/dimension_graph.h"
#include "topology/internal/json_text.h"
#include "topology/internal/text_fields.h"
#include "topology/limits.h"

namespace sluice::topology {
namespace {

using Json = nlohmann::json;

tl::unexpected<Error> invalid(const std::string& name, std::string text) {
  return fail(ErrorCode::kTopologyInvalid, "read " + name, std::move(text));
}

std::optional<std::uint64_t> count_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<std::uint64_t>();
}

std::string text_at(const Json& object, const char* key) {
  if (!object.is_object()) return {};
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// A profile of TACCL: so many GPUs and NICs in a node, and for each kind of link the microseconds that a MB takes ("invbw").
Result<SiteGraph> read_taccl(const Json& root, const std::string& name) {
  const auto gpus = count_at(root, "gpus_per_node");
  const auto nics = count_at(root, "nics_per_node");
  if (!gpus || *gpus == 0 || *gpus > kEndpointsMax)
    return invalid(name, fmt::format("gpus_per_node must be a number from 1 to {}", kEndpointsMax));
  if (!nics || *nics > kEndpointsMax) return invalid(name, fmt::format("nics_per_node must be a number up to {}", kEndpointsMax));
  const auto remote = root.find("remote_invbw");
  const bool has_remote = remote != root.end() && remote->is_number() && remote->get<double>() > 0;
  SiteGraph graph;
  graph.files.push_back({name, "taccl-profile"});
  Device node;
  node.name = text_at(root, "name").empty() ? "node0" : text_at(root, "name");
  graph.add_device(std::move(node));
  const auto add = [&](DeviceKind kind, std::string device_name) {
    Device device;
    device.kind = kind;
    device.name = std::move(device_name);
    // 1 MB = 10^6 bytes in so many microseconds.
    if (kind == DeviceKind::kNic && has_remote) device.network_gb_per_second = 1000.0 / remote->get<double>();
    graph.add_device(std::move(device));
  };
  for (std::uint64_t index = 0; index < *gpus; ++index) add(DeviceKind::kGpu, fmt::format("GPU{}", index));
  for (std::uint64_t index = 0; index < *nics; ++index) add(DeviceKind::kNic, fmt::format("NIC{}", index));
  const auto speeds = root.find("node_invbws_list");
  if (speeds == root.end() || !speeds->is_array()) return invalid(name, "node_invbws_list must be a list");
  for (const Json& speed : *speeds) {
    if (!speed.is_number() || speed.get<double>() <= 0) return invalid(name, "node_invbws_list must hold positive numbers");
  }
  graph.add_gap("links-not-named", "node_invbws_list",
                fmt::format("the profile has {} kinds of links, and does not say which GPUs they join", speeds->size()));
  return graph;
}

// NetQ: nodes in tiers, links between the ids of nodes, "size" cables each.
Result<SiteGraph> read_netq(const Json& root, const std::string& name) {
  ClusterBuilder builder(name, "netq-graph");
  std::map<std::string, DeviceIndex> device_of;
  for (const Json& part : root) {
    if (!part.is_object() || !part.contains("nodes") || !part["nodes"].is_array()) return invalid(name, "nodes must be a list");
    for (const Json& tier : part["nodes"]) {
      if (!tier.is_object() || !tier.contains("compounded_nodes") || !tier["compounded_nodes"].is_array()) continue;
      for (const Json& device : tier["compounded_nodes"]) {
        const std::string own = text_at(device, "name");
        if (own.empty()) return invalid(name, "a node without a name");
        if (device_of.size() >= kNodesMax)
          return fail(ErrorCode::kTopologyTooLarge, "read " + name, fmt::format("more than {} nodes", kNodesMax));
        device_of[text_at(device, "id")] = text_at(device, "device_type") == "switch" ? builder.network_switch(own) : builder.node(own);
      }
    }
  }
  for (const Json& part : root) {
    if (!part.contains("links") || !part["links"].is_array()) return invalid(name, "links must be a list");
    for (const Json& link : part["links"]) {
      const auto from = device_of.find(text_at(link, "src"));
      const auto to = device_of.find(text_at(link, "target"));
      if (from == device_of.end() || to == device_of.end())
        return invalid(name, fmt::format("link {} joins a node that is not listed", text_at(link, "id").substr(0, 80)));
      builder.join(from->second, to->second, "NET");
    }
  }
  return builder.take();
}

// Nodes of an NVLink manager: the GPUs of each and the domain that joins them.
Result<SiteGraph> read_compute_nodes(const Json& root, const std::string& name) {
  ClusterBuilder builder(name, "nvlink-nodes");
  std::uint64_t gpus = 0;
  for (const Json& entry : root) {
    const std::string own = text_at(entry, "Name");
    if (own.empty() || !entry.contains("GpuIDList") || !entry["GpuIDList"].is_array())
      return invalid(name, "a node without Name or GpuIDList");
    if (builder.find(DeviceKind::kNode, own)) return invalid(name, fmt::format("node {} stands there twice", own.substr(0, 80)));
    const DeviceIndex node = builder.node(own);
    gpus += entry["GpuIDList"].size();
    if (gpus > kClusterGpusMax)
      return fail(ErrorCode::kTopologyTooLarge, "read " + name, fmt::format("more than {} GPUs", kClusterGpusMax));
    for (std::size_t index = 0; index < entry["GpuIDList"].size(); ++index) {
      Device gpu;
      gpu.kind = DeviceKind::kGpu;
      gpu.name = fmt::format("GPU{}", index);
      gpu.parent = node;
      builder.graph().add_device(std::move(gpu));
    }
    if (const std::string domain = text_at(entry, "DomainUUID"); !domain.empty())
      builder.join(node, builder.group(domain), "NVLINK-DOMAIN");
    const std::string health = text_at(entry, "Health");
    if (!health.empty() && health != "HEALTHY") {
      builder.graph().add_problem("node-unhealthy", Severity::kError, own, fmt::format("the NVLink manager calls the node {}", health));
    }
  }
  builder.graph().add_gap("no-links", "file", "the list does not say how the GPUs are connected");
  return builder.take();
}

// ["8", "2"]: sizes without kinds or speeds.
Result<SiteGraph> read_logical_dimensions(const Json& root, const std::string& name) {
  std::vector<Dimension> dimensions;
  if (!root["logical-dims"].is_array()) return invalid(name, "logical-dims must be a list");
  for (const Json& entry : root["logical-dims"]) {
    const std::string text = entry.is_string() ? entry.get<std::string>() : entry.dump();
    const auto size = parse_whole<std::uint64_t>(text);
    if (!size) return invalid(name, fmt::format("logical-dims holds {}, which is no number", text.substr(0, 80)));
    dimensions.push_back({DimensionKind::kUnknown, *size, std::nullopt, std::nullopt});
  }
  SLUICE_TRY(auto graph, build_dimension_graph(dimensions, name, "ns3-dimensions"));
  graph.add_gap("no-links", "file", "the file has the sizes of the dimensions, and not how they are connected");
  return graph;
}

}  // namespace

Result<SiteGraph> read_cluster_json(std::string_view text, const std::string& name) {
  // Only a graph file is ever this large, and it is not parsed twice.
  if (text.substr(0, 200).find("\"sluice-topology\"") != std::string_view::npos) return read_graph_file(text, name);
  if (text.size() > kYamlBytesMax) {
    return fail(ErrorCode::kTopologyTooLarge, "read " + name, fmt::format("{} bytes of JSON, at most {}", text.size(), kYamlBytesMax));
  }
  SLUICE_TRY(const Json root, parse_json(text, name));
  if (root.is_object() && root.contains("format")) return read_graph_file(text, name);
  if (root.is_object() && root.contains("gpus_per_node")) return read_taccl(root, name);
  if (root.is_object() && root.contains("logical-dims")) return read_logical_dimensions(root, name);
  const bool is_list = root.is_array() && !root.empty() && root.front().is_object();
  if (is_list && root.front().contains("GpuIDList")) return read_compute_nodes(root, name);
  if (is_list && root.front().contains("links") && root.front().contains("nodes")) return read_netq(root, name);
  if (root.is_object() && root.contains("provider") && root.contains("engine")) {
    return fail(ErrorCode::kTopologyWrongKind, "read " + name,
                "a request to topograph: give the topology.conf or the model that it leads to");
  }
  return fail(ErrorCode::kTopologyUnrecognized, "read " + name, "JSON without the keys of a known kind");
}

}  // namespace sluice::topology
