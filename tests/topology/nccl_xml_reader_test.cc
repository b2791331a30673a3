// Goal: NCCL topology XML becomes the graph that it describes, and what is wrong with a file is named.
// Method: a file of the project's own, then one small text for each trait of real files: classes only, RCCL, other roots, hostile XML.

#include "topology/nccl_xml_reader.h"
#include "topology/graph_arrays.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "topology/graph_json.h"
#include "topology/topology_reader.h"

namespace sluice::topology {
namespace {

using Pairs = std::map<std::string, std::size_t>;
using testing::HasSubstr;

std::string system_of(const std::string& inside) { return "<system version=\"1\">\n" + inside + "\n</system>"; }

void expect_refused(const std::string& text, ErrorCode code, const std::string& part) {
  const auto graph = read_topology_file(text, "test");
  ASSERT_FALSE(graph) << text;
  EXPECT_EQ(graph.error().code, code) << graph.error().to_string();
  EXPECT_THAT(graph.error().to_string(), HasSubstr(part));
}

TEST(NcclXmlReader, SwitchedPairHasItsLinksAndSpeeds) {
  std::ifstream file(SLUICE_SOURCE_DIR "/tests/testdata/topology/switched_pair.xml");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto graph = read_topology_file(text, "pair");
  ASSERT_TRUE(graph) << graph.error().to_string();
  EXPECT_EQ(count_pairs(*graph), (Pairs{{"GG:NV12", 1}, {"GN:PIX", 2}, {"GN:SYS", 2}, {"NN:PIX", 1}}));
  EXPECT_FALSE(graph->is_partial);
  EXPECT_EQ(graph->count(DeviceKind::kPci), 4u);
  EXPECT_EQ(graph->count(DeviceKind::kNvSwitch), 2u);
  EXPECT_DOUBLE_EQ(speed_intra(*graph).at(0, 1).value_or(Speed{}).gb_per_second, 240.0);
  ASSERT_EQ(graph->problems.size(), 1u);
  EXPECT_EQ(graph->problems[0].id, "net-speed-unit");
  const auto json = summary_to_json(*graph, {});
  EXPECT_EQ(json["gpus"], 2);
  EXPECT_EQ(json["nics"], 2);
  EXPECT_EQ(json["nodes"], 1);
  EXPECT_EQ(json["links"]["GG:NV12"], 1);
  EXPECT_EQ(json["partial"], false);
}

TEST(NcclXmlReader, ClassesAloneGiveAPartialGraph) {
  const auto graph = read_nccl_xml(system_of(R"(<cpu numaid="0"><pci busid="ffff:ff:01.0" class="0x060400">
    <pci busid="0000:10:1c.0" class="0x030200"/><pci busid="0000:10:1b.0" class="0x020000"/></pci></cpu>)"),
                                   "cloud");
  ASSERT_TRUE(graph) << graph.error().to_string();
  EXPECT_TRUE(graph->is_partial);
  EXPECT_EQ(count_pairs(*graph), (Pairs{{"GN:PIX", 1}}));
}

TEST(NcclXmlReader, NoClassIsNotAMachineWithoutGpus) {
  const auto graph = read_nccl_xml(system_of(R"(<cpu numaid="0"><pci busid="0000:00:16.0"/><pci busid="0000:00:17.0"/></cpu>)"), "cloud");
  ASSERT_TRUE(graph) << graph.error().to_string();
  EXPECT_TRUE(graph->is_partial);
  EXPECT_EQ(graph->problems[0].id, "no-pci-class");
}

TEST(NcclXmlReader, RcclLinksCarryTheirCount) {
  const auto graph = read_nccl_xml(R"(<system version="2"><cpu numaid="0">
    <pci busid="0000:1d:00.0" class="0x038000"><gpu dev="0" sm="120"><xgmi target="0000:20:00.0" count="2" tclass="0x038000"/></gpu></pci>
    <pci busid="0000:20:00.0" class="0x038000"><gpu dev="1" sm="120"><xgmi target="0000:1D:00.0" count="2" tclass="0x038000"/></gpu></pci>
    <nic><net name="eth0" dev="0" speed="10000"/></nic></cpu></system>)",
                                   "rccl");
  ASSERT_TRUE(graph) << graph.error().to_string();
  EXPECT_EQ(count_pairs(*graph), (Pairs{{"GG:XGMI2", 1}, {"GN:PHB", 2}}));
  EXPECT_EQ(graph->problems[0].id, "rccl-version");
}

TEST(NcclXmlReader, WrongElementsAreNamed) {
  expect_refused(system_of(R"(<gpu dev="0"/>)"), ErrorCode::kTopologyInvalid, "line 2: <gpu> stands in <system>");
  expect_refused(system_of(R"(<cpu numaid="0" affinity="0-23"/>)"), ErrorCode::kTopologyInvalid, "affinity=\"0-23\"");
  expect_refused(system_of(R"(<cpu numaid="0" affinity="0x00ff"/>)"), ErrorCode::kTopologyInvalid, "affinity=\"0x00ff\"");
  expect_refused(system_of(R"(<cpu numaid="0"><pci busid="0000:01:00.0"><gpu dev="0"><nvlink target="1" count="2"/></gpu></pci></cpu>)"),
                 ErrorCode::kTopologyInvalid, "target=\"1\"");
}

TEST(NcclXmlReader, OtherRootsAreRefusedWithAHint) {
  for (const auto& [text, part] : {std::pair("<graphs version=\"1\"><graph id=\"0\"><channel/></graph></graphs>", "graphs=1 channels=1"),
                                   std::pair("<topology/>", "hwloc")}) {
    const auto graph = read_nccl_xml(text, "test");
    ASSERT_FALSE(graph);
    EXPECT_EQ(graph.error().code, ErrorCode::kTopologyWrongKind);
    EXPECT_THAT(graph.error().to_string(), HasSubstr(part));
  }
}

TEST(NcclGraphReader, AGraphFileSaysWhatItUsesAndThatItIsNoMachine) {
  const auto graph = read_topology_file(
      "<graphs version=\"1\"><graph id=\"0\"><channel><gpu dev=\"3\"/><gpu dev=\"1\"/><net dev=\"0\"/></channel></graph></graphs>", "test");
  ASSERT_TRUE(graph) << graph.error().to_string();
  EXPECT_TRUE(graph->is_partial);
  ASSERT_EQ(graph->channel_files.size(), 1u);
  EXPECT_EQ(graph->channel_files[0].gpus, (std::vector<int>{1, 3}));
  EXPECT_EQ(graph->problems[0].id, "graph-file");
  expect_refused("<graphs><graph><channel><gpu dev=\"x\"/></channel></graph></graphs>", ErrorCode::kTopologyInvalid, "dev");
}

TEST(NcclXmlReader, HostileXmlIsRefused) {
  expect_refused("<!DOCTYPE s [<!ENTITY a \"aaaa\">]><system version=\"1\">&a;</system>", ErrorCode::kTopologySyntax, "DOCTYPE");
  expect_refused("<system version=\"1\"><cpu numaid=\"0\">", ErrorCode::kTopologySyntax, "line 1");
  std::string deep;
  for (int depth = 0; depth < 100; ++depth) deep += "<pci>";
  expect_refused(deep, ErrorCode::kTopologyTooLarge, "deeper");
}

}  // namespace
}  // namespace sluice::topology
