#pragma once

// Types of nodes set by hand, for sites whose files do not tell generations apart. Pure.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "topology/site_graph.h"

namespace sluice::topology {

struct TypeMap {
  std::vector<std::pair<std::string, std::string>> entries;  // list of nodes, type; the first that fits a node counts
};

// YAML: `types:` with a map from lists of nodes ("node[01-16]") to types. kTopologySyntax; kTopologyInvalid with the line.
Result<TypeMap> read_type_map(std::string_view text, const std::string& name);

// Sets the types of the nodes that the map names. Lists that name no node of the graph become problems "type-map-unused".
void apply_type_map(const TypeMap& types, SiteGraph& graph);

}  // namespace sluice::topology
