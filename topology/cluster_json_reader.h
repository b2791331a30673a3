#pragma once

// Readers of clusters described in JSON: profiles of TACCL, network graphs of NetQ, node lists of an NVLink manager, logical dimensions of
// ASTRA-sim's ns-3 backend, and Sluice's own graph files. Pure.

#include <string>
#include <string_view>

#include "base/result.h"
#include "topology/site_graph.h"

namespace sluice::topology {

// Which of them it is follows from the keys. kTopologySyntax; kTopologyInvalid with the key; kTopologyWrongKind for JSON that describes no
// topology; kTopologyTooLarge.
Result<SiteGraph> read_cluster_json(std::string_view text, const std::string& name);

}  // namespace sluice::topology
