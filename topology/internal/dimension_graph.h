#pragma once

// Clusters that simulators describe by dimensions: so many accelerators in a ring, behind a switch, or all joined, and so many of these
// groups again. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "topology/site_graph.h"

namespace sluice::topology {

enum class DimensionKind { kUnknown, kRing, kSwitch, kFullyConnected };

struct Dimension {
  DimensionKind kind = DimensionKind::kUnknown;
  std::uint64_t size = 0;
  std::optional<double> gb_per_second;  // of one accelerator's link, each way
  std::optional<double> latency_us;
};

// With several dimensions the last one is between nodes and the others within; a single one is one node up to kPairedDimensionMax
// accelerators, and a network of nodes with one each beyond. A node's link between nodes is as fast as those of its accelerators together.
// A fully connected dimension of more than kPairedDimensionMax becomes a device in the middle. kTopologyTooLarge beyond kClusterGpusMax.
Result<SiteGraph> build_dimension_graph(const std::vector<Dimension>& dimensions, const std::string& file, std::string kind);

}  // namespace sluice::topology
