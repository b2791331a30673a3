#include "topology/internal/dimension_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "topology/internal/cluster_builder.h"
#include "topology/limits.h"

namespace sluice::topology {
namespace {

class DimensionBuilder {
 public:
  DimensionBuilder(const std::string& file, std::string kind) : builder_(file, std::move(kind)) {}

  SiteGraph build(std::vector<Dimension> dimensions) {
    if (dimensions.size() == 1) {
      const bool is_node = dimensions[0].size <= kPairedDimensionMax;
      const Dimension alone{DimensionKind::kUnknown, 1, std::nullopt, std::nullopt};
      dimensions.insert(is_node ? dimensions.end() : dimensions.begin(), alone);
    }
    const Dimension between = dimensions.back();
    dimensions.pop_back();
    std::uint64_t per_node = 1;
    for (const Dimension& dimension : dimensions) per_node *= dimension.size;
    for (std::uint64_t node = 0; node < between.size; ++node) add_node(node, per_node, dimensions);
    join_nodes(between, per_node);
    return builder_.take();
  }

 private:
  void add_node(std::uint64_t number, std::uint64_t per_node, const std::vector<Dimension>& dimensions) {
    SiteGraph& graph = builder_.graph();
    const DeviceIndex node = builder_.node(fmt::format("node{}", number));
    nodes_.push_back(node);
    const DeviceIndex first = graph.devices.size();
    for (std::uint64_t gpu = 0; gpu < per_node; ++gpu) {
      Device device;
      device.kind = DeviceKind::kGpu;
      device.name = fmt::format("GPU{}", gpu);
      device.parent = node;
      graph.add_device(std::move(device));
    }
    std::uint64_t stride = 1;
    for (const Dimension& dimension : dimensions) {
      for (std::uint64_t gpu = 0; gpu < per_node; ++gpu) {
        const bool opens_group = gpu / stride % dimension.size == 0;
        if (opens_group && dimension.size > 1) join_group(node, first + gpu, stride, dimension);
      }
      stride *= dimension.size;
    }
  }

  // The members stand `stride` apart.
  void join_group(DeviceIndex node, DeviceIndex first, std::uint64_t stride, const Dimension& dimension) {
    const auto member = [&](std::uint64_t index) { return first + index * stride; };
    if (dimension.kind == DimensionKind::kRing) {
      const std::uint64_t links = dimension.size == 2 ? 1 : dimension.size;
      for (std::uint64_t index = 0; index < links; ++index) {
        add(member(index), member((index + 1) % dimension.size), "RING", dimension, LinkBasis::kStated);
      }
      return;
    }
    if (dimension.kind == DimensionKind::kUnknown) return;
    const bool has_pairs = dimension.size <= kPairedDimensionMax;
    if (dimension.kind == DimensionKind::kSwitch || !has_pairs) {
      Device middle;
      middle.kind = DeviceKind::kNvSwitch;
      middle.name = fmt::format("switch{}", builder_.graph().devices.size());
      middle.parent = node;
      const DeviceIndex at = builder_.graph().add_device(std::move(middle));
      for (std::uint64_t index = 0; index < dimension.size; ++index) add(member(index), at, "SWITCH", dimension, LinkBasis::kStated);
    }
    if (!has_pairs) return;
    const bool is_direct = dimension.kind == DimensionKind::kFullyConnected;
    for (std::uint64_t left = 0; left < dimension.size; ++left) {
      for (std::uint64_t right = left + 1; right < dimension.size; ++right) {
        add(member(left), member(right), is_direct ? "FULL" : "SWITCH", dimension, is_direct ? LinkBasis::kStated : LinkBasis::kDerived);
      }
    }
  }

  void add(DeviceIndex left, DeviceIndex right, std::string label, const Dimension& dimension, LinkBasis basis) {
    builder_.graph().add_both_ways({left, right, std::move(label), dimension.gb_per_second, basis, 0, dimension.latency_us});
  }

  void join_nodes(const Dimension& between, std::uint64_t per_node) {
    if (between.size < 2 || between.kind == DimensionKind::kUnknown) return;
    Dimension node = between;
    if (node.gb_per_second) *node.gb_per_second *= static_cast<double>(per_node);
    if (between.kind == DimensionKind::kRing) {
      const std::uint64_t links = between.size == 2 ? 1 : between.size;
      for (std::uint64_t index = 0; index < links; ++index) {
        add(nodes_[index], nodes_[(index + 1) % between.size], "RING", node, LinkBasis::kStated);
      }
    } else if (between.kind == DimensionKind::kFullyConnected && between.size <= kPairedDimensionMax) {
      for (std::size_t left = 0; left < nodes_.size(); ++left) {
        for (std::size_t right = left + 1; right < nodes_.size(); ++right)
          add(nodes_[left], nodes_[right], "FULL", node, LinkBasis::kStated);
      }
    } else {
      const DeviceIndex middle = builder_.network_switch("network");
      for (const DeviceIndex at : nodes_) add(at, middle, "NET", node, LinkBasis::kStated);
    }
  }

  ClusterBuilder builder_;
  std::vector<DeviceIndex> nodes_;
};

}  // namespace

Result<SiteGraph> build_dimension_graph(const std::vector<Dimension>& dimensions, const std::string& file, std::string kind) {
  std::uint64_t gpus = 1;
  for (const Dimension& dimension : dimensions) {
    if (dimension.size == 0) return fail(ErrorCode::kTopologyInvalid, "read " + file, "a dimension of no accelerators");
    if (dimension.size > kClusterGpusMax || gpus * dimension.size > kClusterGpusMax) {
      return fail(ErrorCode::kTopologyTooLarge, "read " + file, fmt::format("more than {} accelerators", kClusterGpusMax));
    }
    gpus *= dimension.size;
  }
  if (dimensions.empty()) return fail(ErrorCode::kTopologyInvalid, "read " + file, "no dimensions");
  return DimensionBuilder(file, std::move(kind)).build(dimensions);
}

}  // namespace sluice::topology
