// Goal: files of any kinds become one graph in which nothing is counted twice, nothing stated is lost, and every link says its file.
// Method: small files of different kinds of one machine and of two, merged in both orders; the graph is saved, loaded and compared.

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "tests/topology/graph_text.h"
#include "topology/graph_arrays.h"
#include "topology/graph_dot.h"
#include "topology/graph_file.h"
#include "topology/graph_merge.h"
#include "topology/type_map.h"

namespace sluice::topology {
namespace {

constexpr std::string_view kXml =
    "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\">"
    "<pci busid=\"0000:01:00.0\" class=\"0x060400\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">"
    "<pci busid=\"0000:02:00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"0\" sm=\"80\" rank=\"0\" "
    "gdr=\"1\">"
    "<nvlink target=\"0000:03:00.0\" count=\"4\" tclass=\"0x030200\"/></gpu></pci>"
    "<pci busid=\"0000:03:00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"1\" sm=\"80\" rank=\"1\" "
    "gdr=\"1\">"
    "<nvlink target=\"0000:02:00.0\" count=\"4\" tclass=\"0x030200\"/></gpu></pci>"
    "<pci busid=\"0000:04:00.0\" class=\"0x020700\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"><nic>"
    "<net name=\"mlx5_0\" dev=\"0\" speed=\"200000\" port=\"1\"/></nic></pci></pci></cpu></system>";
constexpr std::string_view kTable =
    "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\tPIX\t0-63\t0\nGPU1\tNV4\t X \tPIX\t0-63\t0\nNIC0\tPIX\tPIX\t X \n\n"
    "NIC Legend:\n\n  NIC0: mlx5_0\n";

SiteGraph merged(std::vector<MergeInput> inputs) {
  auto graph = merge_graphs(std::move(inputs));
  EXPECT_TRUE(graph) << graph.error().to_string();
  return graph ? std::move(*graph) : SiteGraph{};
}

TEST(GraphMerge, TwoKindsOfFilesAreOneMachineInEitherOrder) {
  for (const bool is_table_first : {false, true}) {
    std::vector<MergeInput> inputs;
    inputs.push_back({graph_of(is_table_first ? kTable : kXml, "first"), ""});
    inputs.push_back({graph_of(is_table_first ? kXml : kTable, "second"), ""});
    const std::size_t links = inputs[0].graph.links.size() + inputs[1].graph.links.size();
    const SiteGraph graph = merged(std::move(inputs));
    EXPECT_EQ(graph.ngpus(), 2U);
    EXPECT_EQ(graph.count(DeviceKind::kNic), 1U);
    EXPECT_EQ(graph.nnodes(), 1U);
    EXPECT_EQ(graph.links.size(), links);
    EXPECT_EQ(count_pairs(graph), (std::map<std::string, std::size_t>{{"GG:NV4", 1}, {"GN:PIX", 2}}));
    EXPECT_DOUBLE_EQ(speed_intra(graph).at(0, 1)->gb_per_second, 80);
    EXPECT_EQ(speed_intra(graph).at(0, 1)->file, is_table_first ? 1U : 0U);
    EXPECT_TRUE(graph.problems.empty());
  }
}

TEST(GraphMerge, TwoFilesOfOneKindAreTwoMachines) {
  const SiteGraph graph = merged({{graph_of(kXml), ""}, {graph_of(kXml), ""}, {graph_of(kTable), ""}});
  EXPECT_EQ(graph.nnodes(), 2U);
  EXPECT_EQ(graph.ngpus(), 4U);
}

TEST(GraphMerge, OneMachinesFileServesAllNodesOfANetwork) {
  const SiteGraph graph = merged({{graph_of(kXml), "*"}, {graph_of("SwitchName=a Nodes=n[1-5]\n"), ""}});
  EXPECT_EQ(graph.nnodes(), 5U);
  EXPECT_EQ(graph.ngpus(), 10U);
  EXPECT_FALSE(graph.is_partial);
  const NodeSpeeds nodes(graph);
  EXPECT_DOUBLE_EQ(nodes.at(0, 4)->gb_per_second, 25);
  EXPECT_EQ(nodes.at(0, 4)->basis, LinkBasis::kDerived);
  EXPECT_EQ(node_types(graph)[3], "2x sm80");
}

TEST(GraphMerge, AFileIsPutOnTheNodeThatIsNamed) {
  const SiteGraph graph = merged({{graph_of(kXml), "n3"}, {graph_of("SwitchName=a Nodes=n[1-3]\n"), ""}});
  EXPECT_EQ(graph.nnodes(), 3U);
  const std::vector<DeviceIndex> node_of = nodes_of_devices(graph);
  for (DeviceIndex index = 0; index < graph.devices.size(); ++index) {
    if (graph.devices[index].kind != DeviceKind::kGpu) continue;
    EXPECT_EQ(graph.devices[node_of[index]].name, "n3");
  }
  EXPECT_TRUE(graph.is_partial);
  const auto refused = merge_graphs({{graph_of("SwitchName=a Nodes=n[1-3]\n"), "n1"}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
}

TEST(GraphMerge, AMeasuredSpeedCountsAndThePromiseStays) {
  SiteGraph graph = merged({{graph_of(kXml), ""}});
  graph.files.push_back({"probe", "probe"});
  std::vector<DeviceIndex> gpus;
  for (DeviceIndex index = 0; index < graph.devices.size(); ++index) {
    if (graph.devices[index].kind == DeviceKind::kGpu) gpus.push_back(index);
  }
  const std::size_t links = graph.links.size();
  graph.add_measured(gpus[0], gpus[1], 61.5, 8.0, 1);
  EXPECT_EQ(graph.links.size(), links + 1);
  const auto speed = speed_intra(graph).at(0, 1);
  EXPECT_DOUBLE_EQ(speed->gb_per_second, 61.5);
  EXPECT_EQ(speed->basis, LinkBasis::kMeasured);
  EXPECT_DOUBLE_EQ(speed_intra(graph).at(1, 0)->gb_per_second, 80);
  EXPECT_EQ(count_pairs(graph).at("GG:NV4"), 1U);
}

TEST(GraphMerge, ContradictionsAreReported) {
  const std::string three = "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tSYS\tSYS\nGPU1\tSYS\tX\tSYS\nGPU2\tSYS\tSYS\tX\n";
  EXPECT_TRUE(has_problem(merged({{graph_of(kXml), ""}, {graph_of(three), ""}}).problems, "merge-gpu-count"));
  const std::string lanes = "\tGPU0\tGPU1\nGPU0\tX\tNV12\nGPU1\tNV12\tX\n";
  EXPECT_TRUE(has_problem(merged({{graph_of(kXml), ""}, {graph_of(lanes), ""}}).problems, "nvlink-count-differs"));
}

TEST(GraphFile, WhatIsSavedIsLoaded) {
  SiteGraph graph = merged({{graph_of(kXml), "*"}, {graph_of("SwitchName=a Nodes=n[1-3]\n"), ""}});
  graph.add_gap("some-gap", "here", "text with \"quotes\" and \xC3\xA9");
  graph.channel_files.push_back({"g.xml", 1, 2, {0, 1}, {0}});
  const std::string text = write_graph_file(graph);
  const SiteGraph again = graph_of(text);
  EXPECT_EQ(write_graph_file(again), text);
  EXPECT_EQ(count_pairs(again), count_pairs(graph));
  EXPECT_TRUE(again.is_partial);
  EXPECT_NE(write_dot(again).find("cluster_"), std::string::npos);
}

TEST(GraphFile, AStrangersFileIsCheckedBeforeItIsUsed) {
  const auto file = [](const std::string& devices, const std::string& links) {
    return "{\"format\":\"sluice-topology\",\"version\":1,\"partial\":false,\"files\":[{\"name\":\"x\",\"kind\":\"y\"}],\"devices\":[" +
           devices + "],\"labels\":[\"NV1\"],\"links\":[" + links + "],\"problems\":[],\"channel_files\":[],\"counts\":{}}";
  };
  const std::string node = R"({"kind":"node","name":"n"})";
  EXPECT_EQ(graph_of(file(node, "")).nnodes(), 1U);
  expect_refusal(file(R"({"kind":"node","name":"n","colour":1})", ""), ErrorCode::kTopologyInvalid, "colour");
  expect_refusal(file(R"({"kind":"node","name":"n","in":0})", ""), ErrorCode::kTopologyInvalid, ".in");
  expect_refusal(file(R"({"kind":"moon","name":"n"})", ""), ErrorCode::kTopologyInvalid, "kind");
  expect_refusal(file(node, R"([0,1,0,0,0,1])"), ErrorCode::kTopologyInvalid, "to in links");
  expect_refusal(file(node, R"([0,0,0,0,7,1])"), ErrorCode::kTopologyInvalid, "file in links");
  expect_refusal(file(node, R"([0,0,0,0,0,-1])"), ErrorCode::kTopologyInvalid, "speed");
  expect_refusal(file(node, R"([0,0,0,3,0,1])"), ErrorCode::kTopologyInvalid, "basis in links");
  expect_refusal(file(node, R"([0,0,1,0,0,1])"), ErrorCode::kTopologyInvalid, "label in links");
  std::string newer = file(node, "");
  newer.replace(newer.find("\"version\":1"), 11, "\"version\":9");
  expect_refusal(newer, ErrorCode::kTopologyInvalid, "version 9");
  expect_refusal(file(node, "").substr(0, 100), ErrorCode::kTopologySyntax, "byte");
}

TEST(TypeMap, TypesAreSetByHand) {
  SiteGraph graph = graph_of("SwitchName=a Nodes=n[01-04]\n");
  const auto types = read_type_map("types:\n  n[01-02]: a100\n  n03: h100\n  m[1-3]: l4\n", "types.yaml");
  ASSERT_TRUE(types) << types.error().to_string();
  apply_type_map(*types, graph);
  EXPECT_EQ(node_types(graph), (std::vector<std::string>{"a100", "a100", "h100", "unknown"}));
  EXPECT_TRUE(has_problem(graph.problems, "type-map-unused", "m[1-3]"));
  EXPECT_FALSE(read_type_map("types:\n  n[1: x\n", "t"));
  EXPECT_FALSE(read_type_map("type: {}\n", "t"));
  EXPECT_FALSE(read_type_map("types:\n  a: x\n  a: y\n", "t"));
}

}  // namespace
}  // namespace sluice::topology
