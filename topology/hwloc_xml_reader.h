#pragma once

// Reader of hwloc XML (`lstopo --of xml`, hwloc_topology_export_xml), formats 1, 2 and 3. Pure.

#include <string>
#include <string_view>

#include "base/result.h"
#include "topology/site_graph.h"

namespace sluice::topology {

// One node with its packages as CPUs, PCI tree, GPUs and NICs, NVLink or XGMI bandwidths where the file has them, and derived paths.
// `counts` gets NUMANode, Package, Core, PU, PCIDev and the OSDev of CUDA and NVML. A file without I/O devices is partial.
// kTopologySyntax, kTopologyWrongKind, kTopologyTooLarge, and kTopologyInvalid with the object that is wrong.
Result<SiteGraph> read_hwloc_xml(std::string_view text, const std::string& name);

}  // namespace sluice::topology
