#pragma once

// Any topology text: finds out which kind it is and reads it. Pure: the caller reads the file.

#include <string>
#include <string_view>

#include "base/result.h"
#include "topology/site_graph.h"

namespace sluice::topology {

// Any of the kinds of docs/reference/topology.md, by the content. Fails as the reader of the kind does, with kTopologyWrongKind for what is
// known and no topology, and with kTopologyUnrecognized.
Result<SiteGraph> read_topology_file(std::string_view text, const std::string& name);

}  // namespace sluice::topology
