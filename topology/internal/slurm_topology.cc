#include "topology/internal/slurm_topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <utility>

#include "topology/internal/cluster_builder.h"
#include "topology/internal/hostlist.h"
#include "topology/limits.h"

namespace sluice::topology {
namespace {

constexpr std::size_t kSwitchNameMax = 64;
constexpr std::size_t kRingNodesMax = 16;
// Networks have three to five levels.
constexpr std::size_t kTreeDepthMax = 64;

class SlurmBuilder {
 public:
  SlurmBuilder(const std::string& file, std::string kind) : operation_("read " + file), builder_(file, std::move(kind)) {}

  Result<SiteGraph> build(const SlurmTopology& topology) {
    SLUICE_CHECK_OK(add_tree(topology.switches));
    SLUICE_CHECK_OK(add_blocks(topology));
    for (const SlurmGroup& ring : topology.rings) SLUICE_CHECK_OK(add_ring(ring));
    for (const SlurmTorus& torus : topology.tori) SLUICE_CHECK_OK(add_torus(torus));
    if (topology.is_flat) {
      builder_.graph().add_problem("flat", Severity::kInfo, topology.name, "a flat topology: nodes are joined by nothing that is named");
    }
    return builder_.take();
  }

 private:
  [[nodiscard]] tl::unexpected<Error> invalid(std::size_t line, std::string_view text) const {
    return fail(ErrorCode::kTopologyInvalid, operation_, fmt::format("line {}: {}", line, text));
  }

  Result<std::vector<std::string>> names(const std::string& list, std::size_t line) {
    SLUICE_TRY(auto result, expand_hostlist(list, kNodesMax - std::min(names_, kNodesMax), operation_, fmt::format("line {}", line)));
    names_ += result.size();
    return result;
  }

  Status check_new_name(std::string_view what, const std::string& name, std::size_t line) {
    if (name.empty()) return invalid(line, fmt::format("a {} without a name", what));
    if (name.size() > kSwitchNameMax)
      return invalid(line, fmt::format("the name of a {} is longer than {} characters", what, kSwitchNameMax));
    if (!group_names_.emplace(std::string(what) + name, line).second)
      return invalid(line, fmt::format("{} {} stands there twice", what, name));
    return {};
  }

  Status add_tree(const std::vector<SlurmSwitch>& switches) {
    for (const SlurmSwitch& entry : switches) {
      SLUICE_CHECK_OK(check_new_name("switch", entry.name, entry.line));
      if (entry.children.empty() == entry.nodes.empty()) {
        return invalid(entry.line,
                       fmt::format("switch {} has {} child switches and nodes", entry.name, entry.nodes.empty() ? "neither" : "both"));
      }
      builder_.network_switch(entry.name);
    }
    std::map<DeviceIndex, DeviceIndex> above;
    for (const SlurmSwitch& entry : switches) SLUICE_CHECK_OK(add_children(entry, above));
    return check_tree(switches, above);
  }

  Status add_children(const SlurmSwitch& entry, std::map<DeviceIndex, DeviceIndex>& above) {
    const DeviceIndex own = builder_.network_switch(entry.name);
    SLUICE_TRY(const auto children, names(entry.children, entry.line));
    for (const std::string& child : children) {
      const auto known = builder_.find(DeviceKind::kSwitch, child);
      if (!known) return invalid(entry.line, fmt::format("switch {} has the child {}, which is no switch of the file", entry.name, child));
      if (*known == own) return invalid(entry.line, fmt::format("switch {} is its own child", entry.name));
      builder_.join(*known, own, "NET");
      if (!above.emplace(*known, own).second) {
        builder_.graph().add_problem("several-parents", Severity::kInfo, child, "a child of more than one switch");
      }
    }
    SLUICE_TRY(const auto nodes, names(entry.nodes, entry.line));
    for (const std::string& node : nodes) {
      if (!leaf_of_.emplace(node, entry.name).second && leaf_of_[node] != entry.name) {
        builder_.graph().add_problem("several-leaves", Severity::kWarning, node,
                                     fmt::format("a node of switch {} and of {}", leaf_of_[node], entry.name));
      }
      builder_.join(builder_.node(node), own, "NET");
    }
    return {};
  }

  Status check_tree(const std::vector<SlurmSwitch>& switches, const std::map<DeviceIndex, DeviceIndex>& above) {
    std::vector<std::string> roots;
    for (const SlurmSwitch& entry : switches) {
      DeviceIndex at = builder_.network_switch(entry.name);
      if (!above.contains(at)) roots.push_back(entry.name);
      for (std::size_t steps = 0; above.contains(at); at = above.at(at), ++steps) {
        if (steps >= kTreeDepthMax) {
          return invalid(entry.line,
                         fmt::format("above switch {} the switches go in a circle, or deeper than {}", entry.name, kTreeDepthMax));
        }
      }
    }
    if (roots.size() > 1) {
      builder_.graph().add_problem(
          "several-roots", Severity::kWarning, "file",
          fmt::format("{} switches have none above ({}, {}, ...): not all nodes reach each other", roots.size(), roots[0], roots[1]));
    }
    return {};
  }

  Status add_blocks(const SlurmTopology& topology) {
    SLUICE_CHECK_OK(check_block_sizes(topology));
    std::map<std::string, std::string> block_of;
    for (const SlurmGroup& block : topology.blocks) {
      SLUICE_CHECK_OK(check_new_name("block", block.name, block.line));
      SLUICE_TRY(const auto nodes, names(block.nodes, block.line));
      if (nodes.empty()) return invalid(block.line, fmt::format("block {} has no nodes", block.name));
      if (!topology.block_sizes.empty() && nodes.size() < topology.block_sizes.front()) {
        builder_.graph().add_problem("block-small", Severity::kWarning, block.name,
                                     fmt::format("{} nodes, fewer than the planning size {}", nodes.size(), topology.block_sizes.front()));
      }
      const DeviceIndex own = builder_.group(block.name);
      for (const std::string& node : nodes) {
        if (!block_of.emplace(node, block.name).second) {
          builder_.graph().add_problem("several-blocks", Severity::kWarning, node,
                                       fmt::format("in block {} and {}", block_of[node], block.name));
        }
        builder_.join(builder_.node(node), own, "BLOCK");
      }
    }
    return {};
  }

  [[nodiscard]] Status check_block_sizes(const SlurmTopology& topology) const {
    const auto& sizes = topology.block_sizes;
    const std::size_t line = topology.blocks.empty() ? 1 : topology.blocks.front().line;
    for (std::size_t index = 0; index < sizes.size(); ++index) {
      const bool is_multiple = sizes[0] != 0 && sizes[index] % sizes[0] == 0 && std::has_single_bit(sizes[index] / sizes[0]);
      const bool is_larger = index == 0 || sizes[index] > sizes[index - 1];
      if (!is_multiple || !is_larger) {
        return invalid(line, fmt::format("block size {} is no power of two times {}, larger than the one before", sizes[index], sizes[0]));
      }
    }
    return {};
  }

  Status add_ring(const SlurmGroup& ring) {
    SLUICE_CHECK_OK(check_new_name("ring", ring.name, ring.line));
    SLUICE_TRY(const auto nodes, names(ring.nodes, ring.line));
    if (nodes.empty()) return invalid(ring.line, fmt::format("ring {} has no nodes", ring.name));
    if (nodes.size() > kRingNodesMax) {
      return invalid(ring.line, fmt::format("ring {} has {} nodes, at most {}", ring.name, nodes.size(), kRingNodesMax));
    }
    const DeviceIndex own = builder_.group(ring.name);
    for (std::size_t index = 0; index < nodes.size(); ++index) {
      const DeviceIndex node = builder_.node(nodes[index]);
      builder_.join(node, own, "RING");
      if (nodes.size() > 1) builder_.join(node, builder_.node(nodes[(index + 1) % nodes.size()]), "RING");
    }
    return {};
  }

  static std::uint64_t volume(const Cell& size) { return std::uint64_t{size[0]} * size[1] * size[2]; }
  static std::size_t place(const Cell& cell, const Cell& size) {
    return cell[0] + std::size_t{size[0]} * (cell[1] + std::size_t{size[1]} * cell[2]);
  }

  Status add_torus(const SlurmTorus& torus) {
    SLUICE_CHECK_OK(check_new_name("torus", torus.name, torus.line));
    const auto wrong = [&](std::string_view text) { return invalid(torus.line, fmt::format("torus {}: {}", torus.name, text)); };
    if (std::ranges::any_of(torus.size, [](std::uint32_t side) { return side == 0 || side > kNodesMax; }) ||
        volume(torus.size) > kNodesMax) {
      return wrong(fmt::format("the sides must be positive, and their product at most {}", kNodesMax));
    }
    for (const Cell& placement : torus.placements) {
      for (std::size_t axis = 0; axis < 3; ++axis) {
        if (placement[axis] == 0 || placement[axis] > torus.size[axis]) return wrong("a placement does not fit into it");
      }
    }
    if (torus.nodes.empty() == torus.regions.empty()) return wrong("give either its nodes or its regions");
    std::vector<SlurmRegion> regions = torus.regions;
    if (regions.empty()) regions.push_back({{0, 0, 0}, torus.size, torus.nodes});
    std::vector<std::string> nodes(volume(torus.size));
    for (const SlurmRegion& region : regions) SLUICE_CHECK_OK(fill_region(torus, region, nodes));
    if (std::ranges::find(nodes, std::string{}) != nodes.end()) return wrong("a cell of it has no node");
    join_torus(torus, nodes);
    return {};
  }

  Status fill_region(const SlurmTorus& torus, const SlurmRegion& region, std::vector<std::string>& nodes) {
    const auto wrong = [&](std::string_view text) { return invalid(torus.line, fmt::format("torus {}: {}", torus.name, text)); };
    for (std::size_t axis = 0; axis < 3; ++axis) {
      if (region.size[axis] == 0 || region.anchor[axis] >= torus.size[axis] || region.size[axis] > torus.size[axis] - region.anchor[axis]) {
        return wrong("a region does not fit into it");
      }
    }
    SLUICE_TRY(const auto members, names(region.nodes, torus.line));
    if (members.size() != volume(region.size)) {
      return wrong(fmt::format("{} nodes for {} cells: every cell must be filled", members.size(), volume(region.size)));
    }
    std::size_t next = 0;
    for (std::uint32_t z = 0; z < region.size[2]; ++z) {
      for (std::uint32_t y = 0; y < region.size[1]; ++y) {
        for (std::uint32_t x = 0; x < region.size[0]; ++x) {
          std::string& node = nodes[place({region.anchor[0] + x, region.anchor[1] + y, region.anchor[2] + z}, torus.size)];
          if (!node.empty()) return wrong("two regions share a cell");
          node = members[next++];
        }
      }
    }
    return {};
  }

  void join_torus(const SlurmTorus& torus, const std::vector<std::string>& nodes) {
    const DeviceIndex own = builder_.group(torus.name);
    for (std::uint32_t z = 0; z < torus.size[2]; ++z) {
      for (std::uint32_t y = 0; y < torus.size[1]; ++y) {
        for (std::uint32_t x = 0; x < torus.size[0]; ++x) {
          const Cell cell = {x, y, z};
          const DeviceIndex node = builder_.node(nodes[place(cell, torus.size)]);
          builder_.join(node, own, "TORUS");
          for (std::size_t axis = 0; axis < 3; ++axis) {
            Cell next = cell;
            next[axis] = (next[axis] + 1) % torus.size[axis];
            if (next != cell) builder_.join(node, builder_.node(nodes[place(next, torus.size)]), "TORUS");
          }
        }
      }
    }
  }

  std::string operation_;
  ClusterBuilder builder_;
  std::size_t names_ = 0;
  std::map<std::string, std::size_t> group_names_;
  std::map<std::string, std::string> leaf_of_;
};

}  // namespace

Result<SiteGraph> build_slurm_graph(const SlurmTopology& topology, const std::string& file, std::string kind) {
  return SlurmBuilder(file, std::move(kind)).build(topology);
}

}  // namespace sluice::topology
