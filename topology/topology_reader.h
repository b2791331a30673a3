#pragma once

// Any topology text: finds out which kind it is and reads it. Pure: the caller reads the file.

#include <string>
#include <string_view>

#include "base/result.h"
#include "topology/site_graph.h"

namespace sluice::topology {

// NCCL topology XML or the output of `nvidia-smi topo -m`. Fails as the reader of the kind does, and with kTopologyUnrecognized.
Result<SiteGraph> read_topology_file(std::string_view text, const std::string& name);

}  // namespace sluice::topology
