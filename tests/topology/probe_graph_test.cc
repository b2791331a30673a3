// Goal: what a probe measured counts before what files promise, both are kept, and the measured part can be told apart again. Method:
// reports of ranks on two machines, merged with a network that promises 25 GB/s.

#include "topology/probe_graph.h"

#include <gtest/gtest.h>

#include "topology/graph_arrays.h"
#include "topology/graph_file.h"
#include "topology/graph_merge.h"

namespace sluice::topology {
namespace {

ProbedPair pair_of(std::uint32_t leader, std::uint32_t follower, double forward, double backward) {
  ProbedPair pair;
  pair.leader = RankId(leader);
  pair.follower = RankId(follower);
  pair.forward_gb_per_second = forward;
  pair.backward_gb_per_second = backward;
  pair.latency_us = 12.5;
  return pair;
}

std::vector<ProbeReport> two_machines() {
  return {{RankId(0), "east", {pair_of(0, 1, 5.0, 4.0), pair_of(0, 2, 1.5, 1.25)}}, {RankId(1), "east", {}}, {RankId(2), "west", {}}};
}

SiteGraph promised_network() {
  SiteGraph graph;
  graph.files.push_back({"cluster.yaml", "slurm-yaml"});
  for (const char* name : {"east", "west"}) {
    Device node;
    node.name = node.hardware = name;
    node.parent = kInNothing;
    const DeviceIndex at = graph.add_device(std::move(node));
    Device port;
    port.kind = DeviceKind::kNic;
    port.name = "mlx5_0";
    port.parent = at;
    port.network_gb_per_second = 25.0;
    graph.add_device(std::move(port));
  }
  return graph;
}

TEST(ProbeGraph, RanksAreInTheirMachinesAndPairsAreLinks) {
  const SiteGraph graph = make_probe_graph(two_machines());
  EXPECT_EQ(graph.nnodes(), 2U);
  EXPECT_EQ(graph.count(DeviceKind::kRank), 3U);
  const SpeedRows ranks(graph, DeviceKind::kRank);
  EXPECT_EQ(ranks.at(0, 1)->gb_per_second, 5.0);
  EXPECT_EQ(ranks.at(1, 0)->gb_per_second, 4.0);
  EXPECT_EQ(ranks.at(0, 1)->latency_us, 12.5);
  EXPECT_FALSE(ranks.at(1, 2));
  const NodeSpeeds nodes(graph);
  EXPECT_EQ(nodes.at(0, 1)->gb_per_second, 1.5);
  EXPECT_EQ(nodes.at(1, 0)->gb_per_second, 1.25);
  EXPECT_EQ(nodes.at(0, 1)->basis, LinkBasis::kMeasured);
}

TEST(ProbeGraph, PairsOfARankThatHasNotReportedAreLeftOut) {
  auto reports = two_machines();
  reports.pop_back();
  const SiteGraph graph = make_probe_graph(reports);
  EXPECT_EQ(graph.nnodes(), 1U);
  EXPECT_EQ(graph.links.size(), 2U);
}

TEST(ProbeGraph, AMeasuredSpeedReplacesAPromisedOneAndBothAreKept) {
  EXPECT_EQ(NodeSpeeds(promised_network()).at(0, 1)->gb_per_second, 25.0);
  const auto merged = merge_graphs({{promised_network(), ""}, {make_probe_graph(two_machines()), ""}});
  ASSERT_TRUE(merged);
  EXPECT_EQ(merged->nnodes(), 2U);
  EXPECT_EQ(NodeSpeeds(*merged).at(0, 1)->gb_per_second, 1.5);
  std::size_t between_nodes = 0;
  for (const MeasuredLink& link : measured_links(*merged)) {
    if (merged->devices[link.from].kind != DeviceKind::kNode) {
      EXPECT_FALSE(link.promised_gb_per_second);
      continue;
    }
    ++between_nodes;
    EXPECT_EQ(link.promised_gb_per_second, 25.0);
  }
  EXPECT_EQ(between_nodes, 2U);
}

TEST(ProbeGraph, TheMeasuredPartIsFoundAgainInASavedGraph) {
  const auto merged = merge_graphs({{promised_network(), ""}, {make_probe_graph(two_machines()), ""}});
  ASSERT_TRUE(merged);
  const auto saved = read_graph_file(write_graph_file(*merged), "saved");
  ASSERT_TRUE(saved) << saved.error().to_string();
  const SiteGraph part = measured_part(*saved);
  EXPECT_EQ(part.count(DeviceKind::kNic), 0U);
  EXPECT_EQ(part.count(DeviceKind::kRank), 3U);
  EXPECT_EQ(part.links.size(), 6U);
  EXPECT_EQ(NodeSpeeds(part).at(1, 0)->gb_per_second, 1.25);
  // Merged once more with what is promised, the same stands there.
  const auto again = merge_graphs({{promised_network(), ""}, {part, ""}});
  ASSERT_TRUE(again);
  EXPECT_EQ(measured_links(*again).size(), 6U);
  EXPECT_EQ(NodeSpeeds(*again).at(0, 1)->gb_per_second, 1.5);
  EXPECT_TRUE(measured_part(promised_network()).devices.empty());
}

}  // namespace
}  // namespace sluice::topology
