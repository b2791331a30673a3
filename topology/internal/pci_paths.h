#pragma once

// Paths between the GPUs and NICs of one machine whose PCI tree and NVLink links are in the graph. Pure.

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "topology/site_graph.h"

namespace sluice::topology {

// Adds for every ordered pair of GPUs and NICs that no link joins yet the derived one: through NVLink switches where both hang on them,
// otherwise PIX (at most one bridge), PXB (several), PHB (through the CPU) or SYS (through several CPUs). Bandwidth is that of the slowest
// part of the way, absent when a part's is unknown. `socket_gb_per_second` is what the CPUs have between them.
// REQUIRES: at most kEndpointsMax GPUs and NICs.
void add_derived_links(SiteGraph& graph, std::optional<double> socket_gb_per_second);

}  // namespace sluice::topology
