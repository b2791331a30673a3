#pragma once

// A site graph as a file: JSON with a version, as `sluice topo merge` and `export` write it and gateways exchange it. Pure: the caller
// reads and writes the file. The format is in docs/reference/topology.md.

#include <string>
#include <string_view>

#include "base/result.h"
#include "topology/site_graph.h"

namespace sluice::topology {

inline constexpr int kGraphFileVersion = 1;

// Everything the graph holds. The same graph gives the same bytes.
std::string write_graph_file(const SiteGraph& graph);

// What write_graph_file wrote, checked as a stranger's: unknown keys, wrong types, devices that are not there, parents behind their
// children are refused. kTopologySyntax; kTopologyInvalid with the place; kTopologyTooLarge.
Result<SiteGraph> read_graph_file(std::string_view text, const std::string& name);

}  // namespace sluice::topology
