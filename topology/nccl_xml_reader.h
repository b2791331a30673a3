#pragma once

// Reader of NCCL topology XML (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE, files that clouds ship), version 1, and RCCL's version 2. Pure.

#include <string>
#include <string_view>

#include "base/result.h"
#include "topology/site_graph.h"

namespace sluice::topology {

// One node with its CPUs, PCI tree, GPUs and NICs, NVLink or XGMI links, and the derived path between every two of the GPUs and NICs.
// Files of clouds often hold no <gpu> and <net>: GPUs and NICs are then taken from the PCI class, and the graph is partial.
// `name` stands in messages. kTopologySyntax, kTopologyWrongKind, kTopologyTooLarge, and kTopologyInvalid with the elements that are wrong.
Result<SiteGraph> read_nccl_xml(std::string_view text, const std::string& name);

}  // namespace sluice::topology
