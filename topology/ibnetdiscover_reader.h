#pragma once

// Reader of what `ibnetdiscover` prints: the switches, host adapters and cables of an InfiniBand network. Pure.

#include <string>
#include <string_view>

#include "base/result.h"
#include "topology/site_graph.h"

namespace sluice::topology {

// Switches, nodes and their NICs by the names in the descriptions ("host mlx5_0"), with a link for each pair that cables join, as fast as
// these together. Partial, since the listing says nothing of GPUs. kTopologyUnrecognized, kTopologyInvalid with the line,
// kTopologyTooLarge.
Result<SiteGraph> read_ibnetdiscover(std::string_view text, const std::string& name);

}  // namespace sluice::topology
