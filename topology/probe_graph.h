#pragma once

// The site graph that a probe of the ranks makes (site_probe.h), beside what files promise. Pure.

#include <optional>
#include <span>
#include <vector>

#include "topology/site_graph.h"
#include "topology/site_probe.h"

namespace sluice::topology {

// The measured graph: a node for each machine, its ranks in it, a link for each direction of a pair, and for pairs of two machines the same
// between the nodes, where it counts before what ports and switches promise. Ranks that have not reported are left out with their pairs.
SiteGraph make_probe_graph(std::span<const ProbeReport> reports);

// Machines, ranks and measured links of a graph without the rest, as make_probe_graph made them: what outlives a restart of the gateway.
SiteGraph measured_part(const SiteGraph& graph);

// A measured link and what was promised for it.
struct MeasuredLink {
  DeviceIndex from = 0;
  DeviceIndex to = 0;
  double gb_per_second = 0.0;
  std::optional<double> latency_us;
  std::optional<double> promised_gb_per_second;  // by the best statement that was not measured
};
// In the order of the graph's links.
std::vector<MeasuredLink> measured_links(const SiteGraph& graph);

}  // namespace sluice::topology
