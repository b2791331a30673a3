#pragma once

// The machine that the program runs on: hwloc, the kernel's files under /sys, and NVML when it is there. The only part of this folder that
// looks at the machine.

#include <string>

#include "base/result.h"
#include "topology/nvml_reader.h"
#include "topology/site_graph.h"

namespace sluice::topology {

struct LiveOptions {
  std::string root = {};  // in front of "/sys" and "/etc"; empty for the machine itself
  std::string nvml_library = kNvmlLibrary;
};

// One node with what each source knows, merged. A source that is missing is a problem of severity "info". Blocks for up to seconds; one
// thread at a time. Fails only when hwloc does.
Result<SiteGraph> read_live_machine(const LiveOptions& options);

// Adds to the first node of the graph what the kernel says under `root`: speed of ports, NUMA nodes, Access Control Services of bridges
// (readable as root only), and the graph file that nccl.conf names. Ports and bridges are found by name and address.
void add_kernel_facts(SiteGraph& graph, const std::string& root);

}  // namespace sluice::topology
