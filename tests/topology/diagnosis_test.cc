// Goal: each check finds its fault, does not find it where it is not, and the reference page has a row for each check.
// Method: graphs with one fault each, made from small texts or by hand; the table of checks against docs/reference/topology.md.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "tests/topology/graph_text.h"
#include "topology/diagnosis.h"
#include "topology/graph_merge.h"
#include "topology/nccl_graph_reader.h"

namespace sluice::topology {
namespace {

// A table of `topo -m` with GPUs first: cells by `label(row, column)`, NUMA nodes by `numa(gpu)`.
template <typename Label, typename Numa>
std::string table(std::size_t gpus, std::size_t nics, Label&& label, Numa&& numa) {
  const auto name = [&](std::size_t index) { return index < gpus ? fmt::format("GPU{}", index) : fmt::format("NIC{}", index - gpus); };
  std::string text;
  for (std::size_t column = 0; column < gpus + nics; ++column) text += "\t" + name(column);
  text += "\tCPU Affinity\tNUMA Affinity\n";
  for (std::size_t row = 0; row < gpus + nics; ++row) {
    text += name(row);
    for (std::size_t column = 0; column < gpus + nics; ++column)
      text += "\t" + (row == column ? std::string("X") : std::string(label(row, column)));
    text += row < gpus ? fmt::format("\t0-63\t{}\n", numa(row)) : "\n";
  }
  return text;
}

std::vector<Problem> findings_of(const SiteGraph& graph) { return diagnose(graph); }

const auto kNoNuma = [](std::size_t) { return 0; };

TEST(Diagnosis, AGpuWithoutNvlinkIsFound) {
  const auto label = [](std::size_t row, std::size_t column) { return row == 2 || column == 2 ? "SYS" : "NV18"; };
  EXPECT_TRUE(has_problem(findings_of(graph_of(table(8, 0, label, kNoNuma))), "gpu-without-nvlink", "GPU2"));
  const auto pairs = [](std::size_t row, std::size_t column) { return row / 2 == column / 2 ? "NV4" : "SYS"; };
  EXPECT_FALSE(has_problem(findings_of(graph_of(table(8, 0, pairs, kNoNuma))), "gpu-without-nvlink"));
}

TEST(Diagnosis, UnevenLanesBehindASwitchAreFound) {
  const auto label = [](std::size_t row, std::size_t column) { return row == 1 || column == 1 ? "NV10" : "NV12"; };
  const auto findings = findings_of(graph_of(table(4, 0, label, kNoNuma)));
  EXPECT_TRUE(has_problem(findings, "nvlink-uneven", "GPU1"));
  EXPECT_FALSE(has_problem(findings, "nvlink-uneven", "GPU0"));
}

TEST(Diagnosis, AFlatTreeIsFound) {
  EXPECT_TRUE(has_problem(findings_of(graph_of(table(
                              4, 2, [](std::size_t, std::size_t) { return "PIX"; }, kNoNuma))),
                          "vm-flat-tree"));
  EXPECT_TRUE(has_problem(findings_of(graph_of(table(
                              4, 1, [](std::size_t, std::size_t) { return "PHB"; }, kNoNuma))),
                          "vm-flat-tree"));
  const auto real = [](std::size_t row, std::size_t column) { return row % 4 == column % 4 ? "PIX" : "SYS"; };
  EXPECT_FALSE(has_problem(findings_of(graph_of(table(4, 4, real, kNoNuma))), "vm-flat-tree"));
}

TEST(Diagnosis, UnevenNumaNodesAndImpossibleLabelsAreFound) {
  const auto numa = [](std::size_t gpu) { return gpu < 6 ? 0 : 1; };
  const auto by_numa = [&](std::size_t row, std::size_t column) { return numa(row) == numa(column) ? "NODE" : "SYS"; };
  const auto findings = findings_of(graph_of(table(8, 0, by_numa, numa)));
  EXPECT_TRUE(has_problem(findings, "numa-gpu-imbalance"));
  EXPECT_FALSE(has_problem(findings, "label-contradicts-numa"));
  const auto wrong = findings_of(graph_of(table(
      8, 0, [](std::size_t, std::size_t) { return "PHB"; }, numa)));
  EXPECT_TRUE(has_problem(wrong, "label-contradicts-numa", "GPU0/GPU6"));
  EXPECT_LE(std::ranges::count(wrong, "label-contradicts-numa", &Problem::id), 10);
  const auto even = [](std::size_t gpu) { return static_cast<int>(gpu) / 4; };
  EXPECT_FALSE(has_problem(findings_of(graph_of(table(8, 0, by_numa, even))), "numa-gpu-imbalance"));
}

TEST(Diagnosis, DistanceBetweenGpusAndNicsIsFound) {
  // GPU3 has no NIC behind its switch; NIC3 is far from every GPU.
  const auto label = [](std::size_t row, std::size_t column) {
    const bool is_pair = row != column && row % 4 == column % 4 && row % 4 != 3;
    return is_pair ? "PIX" : "SYS";
  };
  const auto findings = findings_of(graph_of(table(4, 4, label, kNoNuma)));
  EXPECT_TRUE(has_problem(findings, "gpu-far-from-nics", "GPU3"));
  EXPECT_TRUE(has_problem(findings, "nic-far-from-gpus", "NIC3"));
  EXPECT_FALSE(has_problem(findings, "gpu-far-from-nics", "GPU0"));
}

// An XML machine: a line for each GPU, NIC and what differs.
std::string xml(const std::string& numa, const std::string& inside) {
  return "<system version=\"1\"><cpu numaid=\"" + numa + "\" arch=\"x86_64\">" + inside + "</cpu></system>";
}
std::string xml_gpu(int number, const std::string& width = "16", const std::string& sm = "80") {
  return fmt::format(
      "<pci busid=\"0000:0{}:00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" link_width=\"{}\"><gpu dev=\"{}\" sm=\"{}\"/></pci>",
      number, width, number, sm);
}
std::string xml_nic(int number, const std::string& name, const std::string& speed, const std::string& more = "") {
  return fmt::format("<pci busid=\"0000:1{}:00.0\" class=\"0x020700\"><nic><net name=\"{}\" dev=\"{}\" speed=\"{}\" {}/></nic></pci>",
                     number, name, number, speed, more);
}

TEST(Diagnosis, FaultsOfOneMachinesPartsAreFound) {
  EXPECT_TRUE(has_problem(findings_of(graph_of(xml("-1", xml_gpu(0)))), "numa-unknown", "cpu-1"));
  const auto slow = findings_of(graph_of(xml("0", xml_gpu(0) + xml_gpu(1) + xml_gpu(2, "4"))));
  EXPECT_TRUE(has_problem(slow, "pci-link-slow", "GPU2"));
  EXPECT_FALSE(has_problem(slow, "pci-link-slow", "GPU0"));
  EXPECT_TRUE(has_problem(findings_of(graph_of(xml("0", xml_nic(0, "a0", "200000") + xml_nic(1, "a1", "10000")))), "nic-slow-port", "a1"));
  EXPECT_TRUE(has_problem(findings_of(graph_of(xml("0", xml_gpu(0) + xml_gpu(1, "16", "90")))), "gpu-types-differ"));
  const SiteGraph no_gdr = graph_of(xml("0", xml_nic(0, "a0", "1000", "gdr=\"0\"")));
  EXPECT_TRUE(has_problem(no_gdr.problems, "gdr-off", "a0"));
  SiteGraph consumer = graph_of(table(
      2, 0, [](std::size_t, std::size_t) { return "PIX"; }, kNoNuma));
  for (Device& device : consumer.devices) device.model = "NVIDIA GeForce RTX 4090";
  EXPECT_TRUE(has_problem(findings_of(consumer), "geforce-p2p"));
}

TEST(Diagnosis, AGraphFileForOtherGpusIsFound) {
  const auto channels = read_nccl_graph(
      "<graphs version=\"1\"><graph id=\"0\"><channel><gpu dev=\"0\"/><gpu dev=\"3\"/></channel></graph></graphs>", "g.xml");
  ASSERT_TRUE(channels);
  SiteGraph graph = graph_of(xml("0", xml_gpu(0) + xml_gpu(1)));
  graph.channel_files = channels->channel_files;
  EXPECT_TRUE(has_problem(findings_of(graph), "graph-file-stale"));
  graph.channel_files.front().gpus = {0, 1};
  EXPECT_FALSE(has_problem(findings_of(graph), "graph-file-stale"));
}

SiteGraph site(const std::vector<std::string>& machines) {
  std::vector<MergeInput> inputs;
  for (std::size_t index = 0; index < machines.size(); ++index) inputs.push_back({graph_of(machines[index]), fmt::format("n{}", index)});
  auto graph = merge_graphs(std::move(inputs));
  EXPECT_TRUE(graph);
  return graph ? std::move(*graph) : SiteGraph{};
}

TEST(Diagnosis, MachinesThatDifferAreFound) {
  const std::string usual = xml("0", xml_gpu(0) + xml_gpu(1) + xml_nic(0, "mlx5_0", "200000"));
  EXPECT_TRUE(diagnose(site({usual, usual, usual})).empty());
  const auto other_nic = findings_of(site({usual, usual, xml("0", xml_gpu(0) + xml_gpu(1) + xml_nic(0, "mlx5_3", "200000"))}));
  EXPECT_TRUE(has_problem(other_nic, "nic-sets-differ", "n2"));
  EXPECT_TRUE(
      has_problem(findings_of(site({usual, usual, xml("0", xml_gpu(0) + xml_nic(0, "mlx5_0", "200000"))})), "gpu-counts-differ", "n2"));
  SiteGraph models = site({usual, usual});
  bool is_first = true;
  for (Device& device : models.devices) {
    if (device.kind != DeviceKind::kNode) continue;
    device.model = is_first ? "Server A" : "Server B";
    is_first = false;
  }
  EXPECT_TRUE(has_problem(findings_of(models), "server-models-differ"));
}

TEST(Diagnosis, ASwappedNearestNicIsFound) {
  const auto straight = [](std::size_t row, std::size_t column) { return row % 2 == column % 2 ? "PIX" : "SYS"; };
  const auto crossed = [](std::size_t row, std::size_t column) {
    return row / 2 == column / 2 ? "SYS" : row % 2 != column % 2 ? "PIX" : "SYS";
  };
  const std::string usual = table(2, 2, straight, kNoNuma);
  EXPECT_TRUE(has_problem(findings_of(site({usual, usual, table(2, 2, crossed, kNoNuma)})), "gpu-nic-map-differs", "n2"));
}

std::string fabric_switch(const std::string& name, const std::vector<std::pair<std::string, std::string>>& ports) {
  std::string text = fmt::format("Switch\t65 \"S-{}\"\t\t# \"MF0;{}:Q/U1\" enhanced port 0\n", name, name);
  std::size_t number = 0;
  for (const auto& [guid, rate] : ports) text += fmt::format("[{}]\t\"{}\"[1]\t\t# \"x\" lid 1 {}\n", ++number, guid, rate);
  return text;
}

TEST(Diagnosis, FaultsOfTheNetworkAreFound) {
  std::string text =
      fabric_switch("l1", {{"H-1", "4xNDR"}, {"H-2", "4xNDR"}, {"H-3", "4xNDR"}, {"H-4", "4xNDR"}, {"H-5", "4xNDR"}, {"S-top", "4xNDR"}});
  text +=
      fabric_switch("l2", {{"H-6", "4xNDR"}, {"H-7", "4xNDR"}, {"H-8", "4xNDR"}, {"H-9", "4xNDR"}, {"S-top", "4xNDR"}, {"S-top", "4xNDR"}});
  text += fabric_switch("top", {{"S-l1", "4xNDR"}, {"S-l2", "4xNDR"}, {"S-l2", "4xNDR"}});
  for (int host = 1; host <= 9; ++host) {
    text += fmt::format("Ca\t1 \"H-{}\"\t\t# \"n{} {}\"\n", host, host, host == 5 ? "mlx5_1" : "mlx5_0");
  }
  text += "Ca\t1 \"H-10\"\t\t# \"n10 mlx5_0\"\n";
  const auto findings = findings_of(graph_of(text));
  EXPECT_TRUE(has_problem(findings, "leaf-oversubscribed", "l1"));
  EXPECT_FALSE(has_problem(findings, "leaf-oversubscribed", "l2"));
  EXPECT_TRUE(has_problem(findings, "rail-mixed", "l1"));
  EXPECT_TRUE(has_problem(findings, "node-outside-network", "n10"));
}

TEST(Diagnosis, AMachineThatIsNotAsItWasIsFound) {
  const SiteGraph before = graph_of(xml("0", xml_gpu(0) + xml_gpu(1)));
  EXPECT_TRUE(compare_with_baseline(before, before).empty());
  const auto findings = compare_with_baseline(graph_of(xml("0", xml_gpu(0))), before);
  EXPECT_TRUE(has_problem(findings, "topology-changed"));
  EXPECT_TRUE(has_problem(findings, "gpu-not-visible"));
}

TEST(Diagnosis, ThePageHasARowForEachCheckAndNoOther) {
  std::ifstream page(std::string(SLUICE_SOURCE_DIR) + "/docs/reference/topology.md");
  ASSERT_TRUE(page);
  std::set<std::string> documented;
  bool is_section = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) is_section = line == "## Diagnosis";
    if (is_section && line.starts_with("| `"))
      documented.insert(line.substr(3, line.find('`', 3) - 3) + "|" +
                        (line.find("| error |") != std::string::npos     ? "error"
                         : line.find("| warning |") != std::string::npos ? "warning"
                                                                         : "info"));
  }
  std::set<std::string> checks;
  for (const Check& check : diagnosis_checks()) {
    checks.insert(fmt::format("{}|{}", check.id, severity_name(check.severity)));
    EXPECT_FALSE(check.advice.empty());
  }
  EXPECT_EQ(documented, checks);
}

}  // namespace
}  // namespace sluice::topology
