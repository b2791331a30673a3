#pragma once

// What topology.conf and topology.yaml of Slurm say alike: switches, blocks, rings and tori, checked by Slurm's rules. Pure.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "topology/site_graph.h"

namespace sluice::topology {

using Cell = std::array<std::uint32_t, 3>;  // x, y, z

struct SlurmSwitch {
  std::string name;
  std::string children;  // list of switches
  std::string nodes;     // list of nodes
  std::size_t line = 0;
};

// A block or a ring.
struct SlurmGroup {
  std::string name;
  std::string nodes;
  std::size_t line = 0;
};

struct SlurmRegion {
  Cell anchor = {0, 0, 0};
  Cell size = {0, 0, 0};
  std::string nodes;
};

struct SlurmTorus {
  std::string name;
  Cell size = {0, 0, 0};
  std::string nodes;
  std::vector<SlurmRegion> regions;
  std::vector<Cell> placements;
  std::size_t line = 0;
};

// One of the lists is used.
struct SlurmTopology {
  std::string name;
  bool is_flat = false;
  std::vector<SlurmSwitch> switches;
  std::vector<SlurmGroup> blocks;
  std::vector<std::uint64_t> block_sizes;
  std::vector<SlurmGroup> rings;
  std::vector<SlurmTorus> tori;
};

// Nodes, switches and groups with the links between them. kTopologyInvalid with the line where Slurm refuses the file too: names that
// repeat, children that are not there or go in a circle, block sizes that are no powers of two times the first, rings of more than 16
// nodes, tori whose cells are not filled exactly once. kTopologyTooLarge.
Result<SiteGraph> build_slurm_graph(const SlurmTopology& topology, const std::string& file, std::string kind);

}  // namespace sluice::topology
