#pragma once

// Readers of clusters described in YAML: network files of ASTRA-sim, models of topograph, HyperNodes of Volcano. Pure.

#include <string>
#include <string_view>

#include "base/result.h"
#include "topology/site_graph.h"

namespace sluice::topology {

// Which of them it is follows from the keys. kTopologySyntax; kTopologyInvalid with the line; kTopologyWrongKind for YAML of other kinds;
// kTopologyTooLarge.
Result<SiteGraph> read_cluster_yaml(std::string_view text, const std::string& name);

}  // namespace sluice::topology
