// Goal: the table of `nvidia-smi topo -m` is read as people paste it, and what is missing or contradictory is named by row and cell.
// Method: a file of the project's own, then one small text for each trait of real pastes.

#include "topology/topo_matrix_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "topology/topology_reader.h"

namespace sluice::topology {
namespace {

using Pairs = std::map<std::string, std::size_t>;
using testing::HasSubstr;

SiteGraph read_or_fail(const std::string& text) {
  auto graph = read_topology_file(text, "test");
  EXPECT_TRUE(graph) << text << graph.error().to_string();
  return graph ? std::move(*graph) : SiteGraph{};
}

void expect_refused(const std::string& text, ErrorCode code, const std::string& part) {
  const auto graph = read_topology_file(text, "test");
  ASSERT_FALSE(graph) << text;
  EXPECT_EQ(graph.error().code, code) << graph.error().to_string();
  EXPECT_THAT(graph.error().to_string(), HasSubstr(part));
}

std::vector<std::string> gaps(const SiteGraph& graph) {
  std::vector<std::string> result;
  for (const Problem& problem : graph.problems) result.push_back(problem.id + " " + problem.where);
  return result;
}

TEST(TopoMatrixReader, QuotedTableWithABlankAffinityAndAMissingRow) {
  std::ifstream file(SLUICE_SOURCE_DIR "/tests/testdata/topology/pasted_table.txt");
  const SiteGraph graph = read_or_fail({std::istreambuf_iterator<char>(file), {}});
  EXPECT_EQ(count_pairs(graph), (Pairs{{"GG:NV4", 1}, {"GN:PIX", 1}, {"GN:SYS", 2}, {"NN:SYS", 1}}));
  EXPECT_TRUE(graph.is_partial);
  EXPECT_THAT(gaps(graph), testing::ElementsAre("short-row GPU1", "missing-row NIC1"));
  EXPECT_EQ(graph.devices[1].numa, 0);
  EXPECT_EQ(graph.devices[4].hardware, "mlx5_bond_7");
}

TEST(TopoMatrixReader, ColoursTabsAndOldLegendsAreRead) {
  const SiteGraph graph =
      read_or_fail("\x1b[4m\tGPU0\tGPU1\tCPU Affinity\x1b[0m\r\nGPU0\t x \tSOC\t0-0,8-8\r\n\r\nGPU1\tSOC\t X \t16-16,24-24\r\n");
  EXPECT_EQ(count_pairs(graph), (Pairs{{"GG:SOC", 1}}));
  EXPECT_FALSE(graph.is_partial);
}

TEST(TopoMatrixReader, MarkdownWithAffinityFirstIsRead) {
  const SiteGraph graph = read_or_fail(
      "| CPU Affinity | NUMA Affinity | | GPU0 | GPU1 | mlx5_0 |\n|---|---|---|---|---|---|\n| 0-7 | 3 | GPU0 | X | NV4 | SYS |\n"
      "| 8-15 | 1 | GPU1 | NV4 | X | PHB |\n| | | mlx5_0 | SYS | PHB | X |\n");
  EXPECT_EQ(count_pairs(graph), (Pairs{{"GG:NV4", 1}, {"GN:PHB", 1}, {"GN:SYS", 1}}));
  EXPECT_FALSE(graph.is_partial);
  EXPECT_EQ(graph.devices[1].numa, 3);
}

TEST(TopoMatrixReader, WrappedAndGluedCellsAreRead) {
  const SiteGraph graph = read_or_fail(
      "  GPU0 GPU1 GPU2\n  GPU3 CPU Affinity\nGPU0 X NODENODE\nSYS 0-3\nGPU1 NODE X NODE SYS 0-3\n"
      "GPU2 NODE NODE X SYS 0-3\nGPU3 SYS SYS SYS X 4-7\n");
  EXPECT_EQ(count_pairs(graph), (Pairs{{"GG:NODE", 3}, {"GG:SYS", 3}}));
  EXPECT_FALSE(graph.is_partial);
}

TEST(TopoMatrixReader, MissingHeaderIsFilledInFromTheDiagonal) {
  const SiteGraph graph = read_or_fail("GPU0 X NV2 SYS\nGPU1 NV2 X PIX\n");
  EXPECT_EQ(count_pairs(graph), (Pairs{{"GG:NV2", 1}}));
  EXPECT_TRUE(graph.is_partial);
  EXPECT_THAT(gaps(graph), testing::ElementsAre("no-header file"));
}

TEST(TopoMatrixReader, AsymmetryIsReportedByCell) {
  const SiteGraph graph = read_or_fail(" GPU0 GPU1\nGPU0 X PIX\nGPU1 SYS X\n");
  EXPECT_THAT(gaps(graph), testing::ElementsAre("asymmetric GPU0/GPU1"));
}

TEST(TopoMatrixReader, ContradictoryAndOtherTablesAreRefused) {
  expect_refused(" GPU0 GPU1\nGPU0 X PIX\nGPU1 PIX X\nGPU2 PIX PIX\n", ErrorCode::kTopologyInvalid, "row GPU2");
  expect_refused(" GPU0 GPU1\nGPU0 PIX X\nGPU1 X PIX\n", ErrorCode::kTopologyInvalid, "GPU0/GPU0");
  expect_refused(" GPU0 GPU1\nGPU0 X OK\nGPU1 OK X\n", ErrorCode::kTopologyWrongKind, "topo -p2p");
  expect_refused("hello\n", ErrorCode::kTopologyUnrecognized, "no row");
  expect_refused("", ErrorCode::kTopologyUnrecognized, "empty");
}

}  // namespace
}  // namespace sluice::topology
