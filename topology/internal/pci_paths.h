#pragma once

// Paths between the GPUs and NICs of each node whose PCI tree and NVLink links are in the graph. Pure.

#include <optional>

#include "topology/site_graph.h"

namespace sluice::topology {

struct PathOptions {
  std::optional<double> socket_gb_per_second = std::nullopt;  // what the CPUs have between them
  // PCI bridges that one switch appears as: NCCL's files show one, a machine's own tree the upstream and a downstream port.
  std::size_t bridges_per_switch = 1;
  FileIndex file = 0;
};

// Adds for every ordered pair of GPUs and NICs of one node that no link joins yet the derived one: through NVLink switches where both hang
// on them, otherwise PIX (at most one switch), PXB (several), PHB (through one host bridge, or through the CPU where the file shows no host
// bridges), NODE (through several of one CPU) or SYS (through several CPUs). Bandwidth is that of the slowest part of the way, absent when
// a part's is unknown. REQUIRES: at most kEndpointsMax GPUs and NICs in a node; parents stand before their children.
void add_derived_links(SiteGraph& graph, const PathOptions& options);

// PCI class of a host bridge; devices of this class with other devices below them stand for one.
inline constexpr const char* kHostBridgeClass = "0x060000";

}  // namespace sluice::topology
