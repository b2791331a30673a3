#pragma once

// One site graph out of several: files of machines, of the network between them, and probes. Pure.

#include <string>
#include <vector>

#include "base/result.h"
#include "topology/site_graph.h"

namespace sluice::topology {

struct MergeInput {
  SiteGraph graph;
  // The node that the file describes; "*" for every node that has no GPUs after the other files; empty for what the file itself says.
  std::string node;
};

// Devices that several files name become one: nodes, switches and groups by name; GPUs, NICs, CPUs and PCI devices within their node by PCI
// address, otherwise by name. A file that does not name its node describes the first one that no file of its kind describes yet, so that
// two files of different kinds are one machine and two of the same kind are two. Every link stays, with the number of its file.
// What one file leaves out and another has is no gap any more. Contradictions become problems "merge-...".
// kInvalidArgument when a node's name is given for a file of several nodes; kTopologyTooLarge.
Result<SiteGraph> merge_graphs(std::vector<MergeInput> inputs);

}  // namespace sluice::topology
