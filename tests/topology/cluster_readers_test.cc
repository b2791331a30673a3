// Goal: descriptions of clusters become nodes, switches and links, and those that their own programs refuse are refused with the line.
// Method: small texts with the traits of real ones, one for each rule.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/topology/graph_text.h"
#include "topology/graph_arrays.h"

namespace sluice::topology {
namespace {

TEST(SlurmConfReader, TreeOfSwitchesIsRead) {
  const SiteGraph graph = graph_of(
      "# a comment\nSwitchName=top Switches=leaf[1-2] LinkSpeed=100\nswitchname=leaf1 nodes=n[01-03]\n"
      "SwitchName=leaf2 \\\n  Nodes=n04,n[05-06]x\n");
  EXPECT_EQ(graph.nnodes(), 6U);
  EXPECT_EQ(graph.count(DeviceKind::kSwitch), 3U);
  EXPECT_TRUE(graph.is_partial);
  EXPECT_TRUE(has_problem(graph.problems, "no-gpus"));
  EXPECT_TRUE(std::ranges::any_of(graph.devices, [](const Device& device) { return device.name == "n06x"; }));
}

TEST(SlurmConfReader, WhatSlurmRefusesIsRefused) {
  expect_refusal("SwitchName=a Switches=b[1-2]\nSwitchName=b1 Nodes=n1\n", ErrorCode::kTopologyInvalid, "b2");
  expect_refusal("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n", ErrorCode::kTopologyInvalid, "twice");
  expect_refusal("SwitchName=a Switches=b\nSwitchName=b Switches=a\n", ErrorCode::kTopologyInvalid, "circle");
  expect_refusal("SwitchName=a Nodes=n1 Switches=b\nSwitchName=b Nodes=n2\n", ErrorCode::kTopologyInvalid, "both");
  expect_refusal("SwitchName=a\n", ErrorCode::kTopologyInvalid, "neither");
  expect_refusal("SwitchName=a Nodes=n[1-2\n", ErrorCode::kTopologyInvalid, "brackets");
  expect_refusal("SwitchName=a Nodes=n[1-999999999]\n", ErrorCode::kTopologyTooLarge, "names");
  expect_refusal("BlockName=a Nodes=n[1-4]\nBlockSizes=4,12\n", ErrorCode::kTopologyInvalid, "12");
  expect_refusal("RingName=a Nodes=n[1-17]\n", ErrorCode::kTopologyInvalid, "17 nodes");
  expect_refusal("SwitchName=a Nodes=n1\nBlockName=b Nodes=n2\n", ErrorCode::kTopologyInvalid, "exclude");
  expect_refusal("SwitchName=a oops\n", ErrorCode::kTopologySyntax, "line 1");
}

TEST(SlurmConfReader, SeveralRootsAreReported) {
  EXPECT_TRUE(has_problem(graph_of("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n2\n").problems, "several-roots"));
}

std::string slurm_yaml(const std::string& body) { return "---\n- topology: one\n  cluster_default: true\n" + body; }

TEST(SlurmYamlReader, EachKindIsRead) {
  EXPECT_EQ(graph_of(slurm_yaml("  tree:\n    switches:\n      - {switch: top, children: 's[1-2]'}\n      - {switch: s1, nodes: 'n[1-4]'}\n"
                                "      - {switch: s2, nodes: 'n[5-8]'}\n"))
                .nnodes(),
            8U);
  EXPECT_EQ(graph_of(slurm_yaml("  block:\n    block_sizes: [4, 8]\n    blocks:\n      - {block: b1, nodes: 'n[1-4]'}\n")).nnodes(), 4U);
  EXPECT_EQ(graph_of(slurm_yaml("  ring:\n    rings: {ring: r, nodes: 'n[1-8]'}\n")).nnodes(), 8U);
  const SiteGraph torus = graph_of(slurm_yaml("  torus3d:\n    toruses:\n      - {name: t, dims: {x: 4, y: 2, z: 2}, nodes: 'n[1-16]'}\n"));
  EXPECT_EQ(torus.nnodes(), 16U);
  // Two neighbours along x, one along y and z each; and the group.
  EXPECT_EQ(torus.links.size(), 2U * (16 + 16 + 8 + 8));
  EXPECT_TRUE(has_problem(graph_of(slurm_yaml("  flat: true\n")).problems, "no-nodes"));
}

TEST(SlurmYamlReader, WhatSlurmRefusesIsRefused) {
  const std::string blocks = "  block:\n    blocks:\n      - {block: b1, nodes: 'n[1-4]'}\n";
  expect_refusal(slurm_yaml(blocks + "  flat: true\n"), ErrorCode::kTopologyInvalid, "exclude");
  expect_refusal(slurm_yaml(blocks + "  flat: {alpha_step_rank: true}\n"), ErrorCode::kTopologyInvalid, "exclude");
  expect_refusal(slurm_yaml("  flat: false\n"), ErrorCode::kTopologyInvalid, "no kind");
  expect_refusal(slurm_yaml("  tree: SwitchName=s1\n"), ErrorCode::kTopologyInvalid, "must be a map");
  expect_refusal(slurm_yaml("  tree:\n    switches: s1\n"), ErrorCode::kTopologyInvalid, "must be a list");
  expect_refusal(slurm_yaml("  block:\n    - blocks: 1\n"), ErrorCode::kTopologyInvalid, "must be a map");
  expect_refusal(slurm_yaml("  tree:\n    switches:\n      - {switch: a, children: 's[1-3]'}\n      - {switch: s1, nodes: n1}\n"),
                 ErrorCode::kTopologyInvalid, "s2");
  const auto torus = [](const std::string& rest) {
    return slurm_yaml("  torus3d:\n    toruses:\n      - {name: t, dims: {x: 2, y: 2, z: 2}" + rest + "}\n");
  };
  expect_refusal(torus(", nodes: 'n[1-7]'"), ErrorCode::kTopologyInvalid, "7 nodes for 8 cells");
  expect_refusal(torus(", nodes: 'n[1-8]', placements: 2x2x1"), ErrorCode::kTopologyInvalid, "must be a list");
  expect_refusal(torus(", nodes: 'n[1-8]', placements: [{dims: {x: 3, y: 1, z: 1}}]"), ErrorCode::kTopologyInvalid, "fit");
  expect_refusal(torus(", regions: 'r=n[1-8]'"), ErrorCode::kTopologyInvalid, "must be a list");
  expect_refusal(torus(", regions: [{anchor: {x: 0, y: 0, z: 0}, dims: {x: 2, y: 2, z: 1}, nodes: 'n[1-4]'}]"), ErrorCode::kTopologyInvalid,
                 "has no node");
}

TEST(ClusterYamlReader, DimensionsBecomeNodesAndLinks) {
  const SiteGraph graph =
      graph_of("topology: [ Switch, Ring ] # two\nnpus_count: [ 8, 4 ]\nbandwidth: [ 400, 50 ]\nlatency: [ 936.25, 1000 ]\n");
  EXPECT_EQ(graph.ngpus(), 32U);
  EXPECT_EQ(graph.nnodes(), 4U);
  EXPECT_FALSE(graph.is_partial);
  EXPECT_EQ(count_pairs(graph).at("GG:SWITCH"), 4U * 28);
  EXPECT_DOUBLE_EQ(speed_intra(graph).at(0, 7)->gb_per_second, 400);
  const NodeSpeeds nodes(graph);
  EXPECT_DOUBLE_EQ(nodes.at(0, 1)->gb_per_second, 400);
  EXPECT_FALSE(nodes.at(0, 2));
}

TEST(ClusterYamlReader, ALargeDimensionHasNoLinkForEachPair) {
  const SiteGraph graph = graph_of("topology: [ FullyConnected ]\nnpus_count: [ 10000 ]\nbandwidth: [ 50 ]\nlatency: [ 1 ]\n");
  EXPECT_EQ(graph.ngpus(), 10'000U);
  EXPECT_LT(graph.links.size(), 50'000U);
  EXPECT_DOUBLE_EQ(NodeSpeeds(graph).at(0, 9999)->gb_per_second, 50);
}

TEST(ClusterYamlReader, WrongDimensionsAreRefused) {
  const auto astra = [](const std::string& speed, const std::string& count) {
    return fmt::format("topology: [ Ring ]\nnpus_count: [ {} ]\nbandwidth: [ {} ]\nlatency: [ 1 ]\n", count, speed);
  };
  expect_refusal(astra("tbd", "8"), ErrorCode::kTopologyInvalid, "bandwidth \"tbd\"");
  expect_refusal(astra("50", "0"), ErrorCode::kTopologyInvalid, "npus_count");
  expect_refusal(astra("50, 50", "8"), ErrorCode::kTopologyInvalid, "2 bandwidths");
  expect_refusal(astra("50", "99999999"), ErrorCode::kTopologyTooLarge, "accelerators");
  expect_refusal("topology: [ Moebius ]\nnpus_count: [ 8 ]\nbandwidth: [ 1 ]\nlatency: [ 1 ]\n", ErrorCode::kTopologyInvalid, "Moebius");
}

TEST(ClusterYamlReader, ModelsOfSwitchesAndBlocksAreRead) {
  const SiteGraph graph = graph_of(
      "switches:\n  top:\n    switches: [a, b]\nblocks:\n- switch: a\n  nodes: ['n[1-4]']\n  annotations:\n"
      "    x.test/domain: nvl1\n- switch: b\n  nodes: ['n[5-6]', n9]\n");
  EXPECT_EQ(graph.nnodes(), 7U);
  EXPECT_EQ(graph.count(DeviceKind::kSwitch), 3U);
  EXPECT_EQ(graph.count(DeviceKind::kGroup), 1U);
  const SiteGraph old =
      graph_of("switches:\n- name: a\n  capacity_blocks: [cb]\ncapacity_blocks:\n- name: cb\n  type: H100\n  nodes: [n1, n2]\n");
  EXPECT_EQ(old.nnodes(), 2U);
  EXPECT_EQ(node_types(old)[0], "H100");
}

TEST(ClusterYamlReader, HyperNodesAreRead) {
  const SiteGraph graph = graph_of(
      "kind: HyperNode\nname: s0\nspec:\n  tier: 1\n  members:\n  - name: n0\n  - name: n1\n---\nkind: HyperNode\n"
      "metadata:\n  name: s1\nspec:\n  tier: 2\n  members:\n  - type: HyperNode\n    selector:\n      exactMatch:\n        name: s0\n");
  EXPECT_EQ(graph.nnodes(), 2U);
  EXPECT_EQ(graph.count(DeviceKind::kSwitch), 2U);
}

TEST(ClusterJsonReader, ProfilesAndNodeListsAreRead) {
  const SiteGraph profile = graph_of(R"({"name":"X","gpus_per_node":8,"nics_per_node":2,"node_invbws_list":[23,46],"remote_invbw":100})");
  EXPECT_EQ(profile.ngpus(), 8U);
  EXPECT_DOUBLE_EQ(profile.devices.back().network_gb_per_second.value_or(0), 10.0);
  EXPECT_TRUE(has_problem(profile.problems, "links-not-named"));
  const SiteGraph nodes = graph_of(R"([{"Name":"n1","GpuIDList":["a","b"],"DomainUUID":"d","Health":"DEGRADED"}])");
  EXPECT_EQ(nodes.ngpus(), 2U);
  EXPECT_TRUE(has_problem(nodes.problems, "node-unhealthy", "n1"));
  expect_refusal(R"({"provider":{},"engine":{}})", ErrorCode::kTopologyWrongKind, "topograph");
  expect_refusal("{\"a\":" + std::string(100'000, '[') + "}", ErrorCode::kTopologyTooLarge, "deeper");
}

constexpr std::string_view kFabric =
    "vendid=0x2c9\nSwitch\t65 \"S-1\"\t\t# \"MF0;leaf1:Q/U1\" enhanced port 0 lid 1 lmc 0\n"
    "[1]\t\"H-a\"[1](a) \t\t# \"node1 mlx5_0\" lid 2 4xNDR\n[2]\t\"H-b\"[1](b) \t\t# \"node2 mlx5_0\" lid 3 4xNDR\n"
    "[3]\t\"S-2\"[1]\t\t# \"MF0;spine:Q/U1\" lid 4 4xNDR\n[4]\t\"S-2\"[2]\t\t# \"MF0;spine:Q/U1\" lid 4 4xNDR\n"
    "Switch\t65 \"S-2\"\t\t# \"MF0;spine:Q/U1\" enhanced port 0 lid 4 lmc 0\n"
    "[1]\t\"S-1\"[3]\t\t# \"MF0;leaf1:Q/U1\" lid 1 4xNDR\n[2]\t\"S-1\"[4]\t\t# \"MF0;leaf1:Q/U1\" lid 1 4xNDR\n"
    "Ca\t1 \"H-a\"\t\t# \"node1 mlx5_0\"\n[1](a) \t\"S-1\"[1]\t\t# lid 2 lmc 0 \"MF0;leaf1:Q/U1\" lid 1 4xNDR\n"
    "Ca\t1 \"H-b\"\t\t# \"node2 mlx5_0\"\n[1](b) \t\"S-1\"[2]\t\t# lid 3 lmc 0 \"MF0;leaf1:Q/U1\" lid 1 4xNDR\n"
    "Ca\t1 \"H-c\"\t\t# \"Mellanox Technologies Aggregation Node\"\n";

TEST(IbnetdiscoverReader, CablesBecomeLinksWithTheirSpeed) {
  const SiteGraph graph = graph_of(kFabric);
  EXPECT_EQ(graph.nnodes(), 2U);
  EXPECT_EQ(graph.count(DeviceKind::kNic), 2U);
  EXPECT_EQ(graph.count(DeviceKind::kSwitch), 2U);
  EXPECT_EQ(graph.links.size(), 6U);
  EXPECT_DOUBLE_EQ(NodeSpeeds(graph).at(0, 1)->gb_per_second, 50);
  const auto uplink = std::ranges::find_if(
      graph.links, [&](const Link& link) { return graph.devices[link.from].name == "leaf1" && graph.devices[link.to].name == "spine"; });
  ASSERT_NE(uplink, graph.links.end());
  EXPECT_DOUBLE_EQ(uplink->gb_per_second.value_or(0), 100);
}

TEST(IbnetdiscoverReader, ACutListingIsPartialAndSaysWhy) {
  const SiteGraph graph = graph_of("Ca\t1 \"H-a\"\t\t# \"node1 HCA-1\"\n");
  EXPECT_TRUE(has_problem(graph.problems, "port-unlinked", "node1 HCA-1"));
  EXPECT_TRUE(has_problem(graph.problems, "no-switches"));
  EXPECT_TRUE(has_problem(graph_of(kFabric.substr(0, kFabric.find("Ca\t1 \"H-b\""))).problems, "missing-device"));
}

TEST(HostTextReader, SmallTextsAreRead) {
  const SiteGraph numa = graph_of("available: 2 nodes (0-1)\nnode 0 cpus: 0 1 2\nnode 0 size: 5 MB\n");
  EXPECT_EQ(numa.counts.at("PU"), 3U);
  EXPECT_TRUE(has_problem(numa.problems, "missing-row"));
  const SiteGraph rocm = graph_of("==== Numa Nodes ====\nGPU[0]\t\t: (Topology) Numa Node: 0\nGPU[4]\t\t: (Topology) Numa Node: 1\n");
  EXPECT_EQ(rocm.ngpus(), 2U);
  EXPECT_EQ(rocm.devices.back().numa, 1);
  const SiteGraph links = graph_of("==== Link Type between two GPUs ====\n       GPU0  GPU1\nGPU0   0     XGMI\nGPU1   XGMI  0\n");
  EXPECT_EQ(count_pairs(links).at("GG:XGMI"), 1U);
  const SiteGraph htsim = graph_of(
      "Nodes 8\nTiers 2\nPodsize 4\n\nTier 0\nDownlink_speed_Gbps 200\nRadix_Down 2\nRadix_Up 2\n\nTier 1\nDownlink_speed_Gbps 100\n");
  EXPECT_EQ(htsim.nnodes(), 8U);
  EXPECT_DOUBLE_EQ(NodeSpeeds(htsim).at(0, 7)->gb_per_second, 25);
}

TEST(TopologyReader, OtherKindsAreNamed) {
  expect_refusal("BZh91AY&SY", ErrorCode::kTopologyWrongKind, "bzip2");
  expect_refusal(".TH \"topology.conf\" \"5\"\n", ErrorCode::kTopologyWrongKind, "manual page");
  expect_refusal("-+-[0000:00]-+-00.0  Bridge\n", ErrorCode::kTopologyWrongKind, "lspci");
  expect_refusal("kind: Topology\nspec:\n  levels: []\n", ErrorCode::kTopologyWrongKind, "Kueue");
  expect_refusal("just words\n", ErrorCode::kTopologyUnrecognized, "no row");
}

}  // namespace
}  // namespace sluice::topology
