#pragma once

// Reader of NCCL graph XML (NCCL_GRAPH_FILE, NCCL_GRAPH_DUMP_FILE): rings and trees for certain GPUs. Pure.

#include <string>
#include <string_view>

#include "base/result.h"
#include "topology/site_graph.h"

namespace sluice::topology {

// A graph without devices whose `channel_files` holds what the file uses. It is partial: such a file says nothing of the machine, but
// merged with the machine's own files it shows whether it fits them. kTopologySyntax, kTopologyWrongKind, kTopologyInvalid,
// kTopologyTooLarge.
Result<SiteGraph> read_nccl_graph(std::string_view text, const std::string& name);

}  // namespace sluice::topology
