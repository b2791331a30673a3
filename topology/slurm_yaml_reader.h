#pragma once

// Reader of Slurm's topology.yaml: tree, block, ring, torus3d and flat. Pure.

#include <string>
#include <string_view>

#include "base/result.h"
#include "topology/site_graph.h"

namespace sluice::topology {

// The topology that is the cluster's default, or the first; the others are checked and named. Partial, since the file says nothing of GPUs.
// kTopologySyntax; kTopologyInvalid with the line where Slurm refuses the file too; kTopologyTooLarge.
Result<SiteGraph> read_slurm_yaml(std::string_view text, const std::string& name);

}  // namespace sluice::topology
