#include "topology/cluster_yaml_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "topology/internal/cluster_builder.h"
#include "topology/internal/dimension_graph.h"
#include "topology/internal/hostlist.h"
#include "topology/internal/text_fields.h"
#include "topology/internal/yaml_value.h"
#include "topology/limits.h"

namespace sluice::topology {
namespace {

tl::unexpected<Error> invalid(const std::string& name, const YamlValue& at, std::string_view text) {
  return fail(ErrorCode::kTopologyInvalid, "read " + name, fmt::format("line {}: {}", at.line, text));
}

// The single values of a list, or a single one as a list of one.
Result<std::vector<const YamlValue*>> scalars(const std::string& name, const YamlValue& map, std::string_view key) {
  const YamlValue* value = map.find(key);
  if (value == nullptr) return invalid(name, map, fmt::format("{} is missing", key));
  std::vector<const YamlValue*> result;
  if (value->is_scalar()) result.push_back(value);
  for (const YamlValue& item : value->items) {
    if (!item.is_scalar()) return invalid(name, item, fmt::format("{} must hold single values", key));
    result.push_back(&item);
  }
  if (result.empty()) return invalid(name, *value, fmt::format("{} must be a list", key));
  return result;
}

std::optional<DimensionKind> parse_dimension_kind(std::string_view text) {
  const std::string kind = to_lower(text);
  if (kind == "ring") return DimensionKind::kRing;
  if (kind == "switch") return DimensionKind::kSwitch;
  if (kind == "fullyconnected") return DimensionKind::kFullyConnected;
  return std::nullopt;
}

// ASTRA-sim: topology, npus_count, bandwidth in GB/s and latency in ns, a list each with one entry for each dimension.
Result<SiteGraph> read_astra(const YamlValue& root, const std::string& name) {
  SLUICE_TRY(const auto kinds, scalars(name, root, "topology"));
  SLUICE_TRY(const auto sizes, scalars(name, root, "npus_count"));
  SLUICE_TRY(const auto speeds, scalars(name, root, "bandwidth"));
  SLUICE_TRY(const auto latencies, scalars(name, root, "latency"));
  if (sizes.size() != kinds.size() || speeds.size() != kinds.size() || latencies.size() != kinds.size()) {
    return invalid(name, root,
                   fmt::format("{} topologies, {} npus_count, {} bandwidths and {} latencies: one of each for every dimension",
                               kinds.size(), sizes.size(), speeds.size(), latencies.size()));
  }
  std::vector<Dimension> dimensions;
  for (std::size_t index = 0; index < kinds.size(); ++index) {
    const auto kind = parse_dimension_kind(kinds[index]->text);
    const auto size = parse_whole<std::uint64_t>(sizes[index]->text);
    const auto speed = parse_real(speeds[index]->text);
    const auto latency = parse_real(latencies[index]->text);
    if (!kind)
      return invalid(name, *kinds[index], fmt::format("topology \"{}\" is none of Ring, Switch, FullyConnected", kinds[index]->text));
    if (!size || *size == 0) return invalid(name, *sizes[index], fmt::format("npus_count \"{}\" is no number of NPUs", sizes[index]->text));
    if (!speed || *speed <= 0)
      return invalid(name, *speeds[index], fmt::format("bandwidth \"{}\" is no number of GB/s", speeds[index]->text));
    if (!latency || *latency < 0)
      return invalid(name, *latencies[index], fmt::format("latency \"{}\" is no number of ns", latencies[index]->text));
    dimensions.push_back({*kind, *size, speed, *latency / 1000});
  }
  return build_dimension_graph(dimensions, name, "astra-sim");
}

// topograph's models: switches as a map or as a list with names, and blocks of nodes (capacity_blocks in older ones).
class ModelReader {
 public:
  explicit ModelReader(const std::string& name) : name_(name), builder_(name, "topograph-model") {}

  Result<SiteGraph> read(const YamlValue& root) {
    if (const YamlValue* switches = root.find("switches")) SLUICE_CHECK_OK(add_switches(*switches));
    for (const std::string_view key : {"blocks", "capacity_blocks"}) {
      if (const YamlValue* blocks = root.find(key)) SLUICE_CHECK_OK(add_blocks(*blocks));
    }
    return builder_.take();
  }

 private:
  Result<std::vector<std::string>> names(const YamlValue* value) {
    std::vector<std::string> result;
    if (value == nullptr) return result;
    std::vector<const YamlValue*> lists;
    if (value->is_scalar()) lists.push_back(value);
    for (const YamlValue& item : value->items) lists.push_back(&item);
    for (const YamlValue* list : lists) {
      if (!list->is_scalar()) return invalid(name_, *list, "a name must be a single value");
      SLUICE_TRY(auto some,
                 expand_hostlist(list->text, kNodesMax - std::min(names_, kNodesMax), "read " + name_, fmt::format("line {}", list->line)));
      names_ += some.size();
      std::ranges::move(some, std::back_inserter(result));
    }
    return result;
  }

  // Calls visit(name, map) for each entry of a map of maps, or of a list of maps that say their name under `name_key`.
  template <typename Visit>
  Status for_each_entry(const YamlValue& value, std::string_view name_key, Visit&& visit) {
    for (const auto& [key, entry] : value.entries) {
      if (!entry.is_map() && !entry.is_null())
        return invalid(name_, entry, fmt::format("{} must be a map, not {}", key, entry.kind_name()));
      SLUICE_CHECK_OK(visit(key, entry));
    }
    for (const YamlValue& entry : value.items) {
      if (!entry.is_map()) return invalid(name_, entry, fmt::format("an entry must be a map, not {}", entry.kind_name()));
      const YamlValue* own = entry.find(name_key);
      SLUICE_CHECK_OK(visit(own != nullptr && own->is_scalar() ? own->text : std::string(), entry));
    }
    if (value.is_scalar()) return invalid(name_, value, "must be a list or a map, not a single value");
    return {};
  }

  Status add_switches(const YamlValue& switches) {
    return for_each_entry(switches, "name", [&](const std::string& name, const YamlValue& entry) -> Status {
      if (name.empty()) return invalid(name_, entry, "a switch without a name");
      const DeviceIndex own = builder_.network_switch(name);
      SLUICE_TRY(const auto children, names(entry.find("switches")));
      for (const std::string& child : children) {
        if (child == name) return invalid(name_, entry, fmt::format("switch {} is its own child", name));
        builder_.join(builder_.network_switch(child), own, "NET");
      }
      SLUICE_TRY(const auto nodes, names(entry.find("nodes")));
      for (const std::string& node : nodes) builder_.join(builder_.node(node), own, "NET");
      SLUICE_TRY(const auto blocks, names(entry.find("capacity_blocks")));
      for (const std::string& block : blocks) switch_of_block_.emplace(block, own);
      return {};
    });
  }

  Status add_blocks(const YamlValue& blocks) {
    return for_each_entry(blocks, "name", [&](const std::string& name, const YamlValue& entry) -> Status {
      SLUICE_TRY(const auto nodes, names(entry.find("nodes")));
      const YamlValue* leaf = entry.find("switch");
      const auto above = switch_of_block_.find(name);
      const YamlValue* type = entry.find("type");
      std::string domain = text_at(entry.find("nvlink"));
      if (const YamlValue* notes = entry.find("annotations")) domain = domain_in(*notes);
      for (const std::string& node : nodes) {
        const DeviceIndex own = builder_.node(node);
        if (type != nullptr && type->is_scalar()) builder_.graph().devices[own].type = type->text;
        if (leaf != nullptr && leaf->is_scalar()) builder_.join(own, builder_.network_switch(leaf->text), "NET");
        if (above != switch_of_block_.end()) builder_.join(own, above->second, "NET");
        if (!domain.empty()) builder_.join(own, builder_.group(domain), "NVLINK-DOMAIN");
      }
      return {};
    });
  }

  static std::string text_at(const YamlValue* value) { return value != nullptr && value->is_scalar() ? value->text : std::string(); }

  // "accelerator.topology.test/domain: nvl-1"
  static std::string domain_in(const YamlValue& notes) {
    for (const auto& [key, value] : notes.entries) {
      if (key.ends_with("/domain") && value.is_scalar()) return value.text;
    }
    return {};
  }

  std::string name_;
  ClusterBuilder builder_;
  std::size_t names_ = 0;
  std::unordered_map<std::string, DeviceIndex> switch_of_block_;
};

const YamlValue* find_in(const YamlValue* map, std::string_view key) { return map == nullptr ? nullptr : map->find(key); }

// Volcano: each HyperNode has a tier and members, which are nodes unless they are HyperNodes of the file or say so.
Result<SiteGraph> read_hyper_nodes(const std::vector<YamlValue>& documents, const std::string& name) {
  ClusterBuilder builder(name, "volcano-hypernode");
  std::vector<std::pair<std::string, const YamlValue*>> hyper_nodes;
  for (const YamlValue& document : documents) {
    const YamlValue* kind = document.find("kind");
    if (kind == nullptr || kind->text != "HyperNode") continue;
    const YamlValue* own = document.find("name");
    if (own == nullptr) own = find_in(document.find("metadata"), "name");
    if (own == nullptr || own->text.empty()) return invalid(name, document, "a HyperNode without a name");
    if (builder.find(DeviceKind::kSwitch, own->text))
      return invalid(name, document, fmt::format("HyperNode {} stands there twice", own->text));
    builder.network_switch(own->text);
    hyper_nodes.emplace_back(own->text, &document);
  }
  std::size_t missing = 0;
  for (const auto& [own, document] : hyper_nodes) {
    const YamlValue* members = find_in(document->find("spec"), "members");
    if (members == nullptr || !members->is_list()) return invalid(name, *document, fmt::format("HyperNode {} has no list of members", own));
    for (const YamlValue& member : members->items) {
      const YamlValue* selected = find_in(find_in(member.find("selector"), "exactMatch"), "name");
      const YamlValue* named = selected == nullptr ? member.find("name") : selected;
      if (named == nullptr || !named->is_scalar()) return invalid(name, member, "a member without a name");
      const YamlValue* type = member.find("type");
      const bool is_known = builder.find(DeviceKind::kSwitch, named->text).has_value();
      const bool is_hyper = is_known || (type != nullptr && type->text == "HyperNode");
      if (is_hyper && !is_known) ++missing;
      const DeviceIndex below = is_hyper ? builder.network_switch(named->text) : builder.node(named->text);
      builder.join(below, builder.network_switch(own), "NET");
    }
  }
  if (missing != 0) {
    builder.graph().add_gap("missing-hypernode", "file",
                            fmt::format("{} members of type HyperNode are described nowhere in the file", missing));
  }
  return builder.take();
}

// What stands between the first fences of a Markdown page; the text itself without any.
std::string_view first_fenced(std::string_view text, bool& has_more) {
  const std::size_t open = text.find("```yaml\n");
  if (open == std::string_view::npos) return text;
  const std::string_view inside = text.substr(open + 8);
  const std::size_t close = inside.find("\n```");
  has_more = close != std::string_view::npos && inside.substr(close + 4).find("```yaml\n") != std::string_view::npos;
  return inside.substr(0, close == std::string_view::npos ? close : close + 1);
}

}  // namespace

Result<SiteGraph> read_cluster_yaml(std::string_view text, const std::string& name) {
  bool has_more = false;
  SLUICE_TRY(const auto documents, parse_yaml(first_fenced(text, has_more), name));
  if (documents.empty() || !documents.front().is_map()) {
    return fail(ErrorCode::kTopologyUnrecognized, "read " + name, "the YAML is not a map of keys");
  }
  const YamlValue& root = documents.front();
  const YamlValue* kind = root.find("kind");
  if (kind != nullptr && kind->text == "HyperNode") {
    SLUICE_TRY(auto graph, read_hyper_nodes(documents, name));
    if (has_more) graph.add_problem("second-table", Severity::kWarning, "file", "another example follows and was not read");
    return graph;
  }
  if (kind != nullptr && kind->text == "Topology") {
    return fail(
        ErrorCode::kTopologyWrongKind, "read " + name,
        "a Topology of Kueue names the labels of the levels, not which node is where; give the nodes with their labels, or topology.conf");
  }
  if (root.find("npus_count") != nullptr) return read_astra(root, name);
  if (root.find("blocks") != nullptr || root.find("capacity_blocks") != nullptr || root.find("switches") != nullptr) {
    return ModelReader(name).read(root);
  }
  return fail(ErrorCode::kTopologyUnrecognized, "read " + name,
              "YAML without the keys of a known kind: npus_count (ASTRA-sim), switches and blocks (topograph), kind: HyperNode (Volcano)");
}

}  // namespace sluice::topology
