#pragma once

// Reader of Slurm's topology.conf: topology/tree, topology/block and topology/ring. Pure.

#include <string>
#include <string_view>

#include "base/result.h"
#include "topology/site_graph.h"

namespace sluice::topology {

// Nodes, switches, blocks and rings; the graph is partial, since the file says nothing of GPUs. kTopologyInvalid with the line where Slurm
// refuses the file too; kTopologySyntax for a line that is no list of Key=Value; kTopologyTooLarge.
Result<SiteGraph> read_slurm_conf(std::string_view text, const std::string& name);

}  // namespace sluice::topology
