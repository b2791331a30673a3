#pragma once

// Reader of what `nvidia-smi topo -m` prints, in the state in which people paste it: with colours, wrapped, quoted, as a Markdown table,
// cut off, with columns missing or blank, of any driver's age. Pure.

#include <string>
#include <string_view>

#include "base/result.h"
#include "topology/site_graph.h"

namespace sluice::topology {

// One node with its GPUs and NICs in the order of the header, and a link for every cell that is there. Rows and cells that are missing make
// the graph partial and are named. A second table in the text is not read. `name` stands in messages.
// kTopologyUnrecognized; kTopologyWrongKind for a table of `topo -p2p`; kTopologyInvalid with the row or cell that contradicts the format;
// kTopologyTooLarge.
Result<SiteGraph> read_topo_matrix(std::string_view text, const std::string& name);

}  // namespace sluice::topology
