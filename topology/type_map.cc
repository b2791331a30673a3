#include "topology/type_map.h"

#include <fmt/format.h>

#include "topology/internal/hostlist.h"
#include "topology/internal/yaml_value.h"
#include "topology/limits.h"

namespace sluice::topology {
namespace {

constexpr std::size_t kTypesMax = 1000;

}  // namespace

Result<TypeMap> read_type_map(std::string_view text, const std::string& name) {
  SLUICE_TRY(const auto documents, parse_yaml(text, name));
  const auto invalid = [&](const YamlValue& at, std::string_view why) {
    return fail(ErrorCode::kTopologyInvalid, "read " + name, fmt::format("line {}: {}", at.line, why));
  };
  if (documents.size() != 1) return fail(ErrorCode::kTopologyInvalid, "read " + name, "a type map is one YAML document");
  const YamlValue& root = documents.front();
  const YamlValue* types = root.find("types");
  if (types == nullptr || !types->is_map() || root.entries.size() != 1)
    return invalid(root, "a type map has the one key `types`, a map from nodes to types");
  if (types->entries.size() > kTypesMax) return invalid(*types, fmt::format("more than {} entries", kTypesMax));
  TypeMap map;
  for (const auto& [nodes, type] : types->entries) {
    if (!type.is_scalar() || type.text.empty()) return invalid(type, fmt::format("the type of {} must be a word", nodes));
    SLUICE_CHECK_OK(expand_hostlist(nodes, kNodesMax, "read " + name, fmt::format("line {}", type.line)));
    map.entries.emplace_back(nodes, type.text);
  }
  return map;
}

void apply_type_map(const TypeMap& types, SiteGraph& graph) {
  std::vector<bool> is_used(types.entries.size(), false);
  for (Device& device : graph.devices) {
    if (device.kind != DeviceKind::kNode) continue;
    for (std::size_t index = 0; index < types.entries.size(); ++index) {
      if (!hostlist_contains(types.entries[index].first, device.name)) continue;
      device.type = types.entries[index].second;
      is_used[index] = true;
      break;
    }
  }
  for (std::size_t index = 0; index < is_used.size(); ++index) {
    if (!is_used[index])
      graph.add_problem("type-map-unused", Severity::kWarning, types.entries[index].first, "no node of the graph is in this list");
  }
}

}  // namespace sluice::topology
