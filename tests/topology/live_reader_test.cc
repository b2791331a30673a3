// Goal: the machine itself is read from hwloc, the kernel's files and NVML, and from what of these is there.
// Method: NVML is a stand-in that is loaded as the real one is; the kernel's files lie in a folder of the test; hwloc reads the real
// machine, whatever it is.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/topology/graph_text.h"
#include "topology/diagnosis.h"
#include "topology/graph_arrays.h"
#include "topology/live_reader.h"

namespace sluice::topology {
namespace {

TEST(NvmlReader, GpusAndLanesAreRead) {
  const auto graph = read_nvml(SLUICE_NVML_DOUBLE);
  ASSERT_TRUE(graph) << graph.error().to_string();
  EXPECT_EQ(graph->ngpus(), 3U);
  EXPECT_TRUE(has_problem(graph->problems, "gpu-lost", "GPU2"));
  EXPECT_TRUE(has_problem(graph->problems, "nvlink-down", "GPU3"));
  const auto pairs = count_pairs(*graph);
  EXPECT_EQ(pairs.at("GG:NV18"), 1U);
  EXPECT_EQ(pairs.at("GG:NV17"), 2U);
  EXPECT_NEAR(speed_intra(*graph).at(0, 1)->gb_per_second, 18 * 20.6, 1e-9);
  EXPECT_EQ(graph->devices[1].bus_id, "0000:1a:00.0");
  EXPECT_EQ(graph->devices[1].type, "sm90");
}

TEST(NvmlReader, AMissingLibraryIsAnAnswer) {
  const auto graph = read_nvml("libsluice-no-such-library.so.1");
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().code, ErrorCode::kUnavailable);
}

TEST(LiveReader, ThisMachineIsReadWithAndWithoutNvml) {
  const auto alone = read_live_machine({.nvml_library = "libsluice-no-such-library.so.1"});
  ASSERT_TRUE(alone) << alone.error().to_string();
  EXPECT_EQ(alone->nnodes(), 1U);
  EXPECT_GT(alone->counts.at("PU"), 0U);
  EXPECT_TRUE(has_problem(alone->problems, "nvml-missing"));
  const auto with = read_live_machine({.nvml_library = SLUICE_NVML_DOUBLE});
  ASSERT_TRUE(with) << with.error().to_string();
  EXPECT_GE(with->ngpus(), 3U);
  EXPECT_EQ(with->nnodes(), 1U);
}

class KernelFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / fmt::format("sluice_kernel_files_{}", ::getpid());
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path, std::ios::binary) << text;
  }

  std::filesystem::path root_;
};

TEST_F(KernelFiles, PortsNumaNodesAndAcsAreRead) {
  SiteGraph graph = graph_of(
      "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\"><pci busid=\"0000:01:00.0\" class=\"0x060400\">"
      "<pci busid=\"0000:02:00.0\" class=\"0x020700\"><nic><net name=\"mlx5_0\" dev=\"0\"/></nic></pci>"
      "<pci busid=\"0000:03:00.0\" class=\"0x020000\"><nic><net name=\"eth0\" dev=\"1\"/></nic></pci></pci></cpu></system>");
  write("sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
  write("sys/class/net/eth0/speed", "10000\n");
  std::string space(4096, '\0');
  space[0x100] = 0x01;  // another capability first, the next one at 0x140
  space[0x103] = 0x14;
  space[0x140] = 0x0d;
  space[0x146] = 0x1d;
  write("sys/bus/pci/devices/0000:01:00.0/config", space);
  add_kernel_facts(graph, root_.string());
  const auto speed_of = [&](const char* name) {
    return std::ranges::find(graph.devices, name, &Device::name)->network_gb_per_second.value_or(0);
  };
  EXPECT_DOUBLE_EQ(speed_of("mlx5_0"), 50);
  EXPECT_DOUBLE_EQ(speed_of("eth0"), 1.25);
  EXPECT_TRUE(has_problem(graph.problems, "acs-on", "0000:01:00.0"));
  EXPECT_TRUE(has_problem(diagnose(graph), "nic-slow-port", "eth0"));
}

TEST_F(KernelFiles, TheGraphFileOfNcclConfIsHeldAgainstTheMachine) {
  write("etc/nccl.conf", "# site defaults\nNCCL_GRAPH_FILE=/opt/graph.xml\n");
  write("opt/graph.xml", "<graphs version=\"1\"><graph><channel><gpu dev=\"0\"/><gpu dev=\"1\"/></channel></graph></graphs>");
  SiteGraph graph = graph_of("\tGPU0\nGPU0\tX\n");
  add_kernel_facts(graph, root_.string());
  EXPECT_TRUE(has_problem(diagnose(graph), "graph-file-stale"));
  SiteGraph other = graph_of("\tGPU0\nGPU0\tX\n");
  std::filesystem::remove(root_ / "opt/graph.xml");
  add_kernel_facts(other, root_.string());
  EXPECT_TRUE(has_problem(other.problems, "graph-file-unreadable"));
}

TEST_F(KernelFiles, ANameThatLeadsElsewhereIsNoPath) {
  write("sys/class/net/x/speed", "10000\n");
  SiteGraph graph;
  Device node;
  graph.add_device(node);
  Device nic;
  nic.kind = DeviceKind::kNic;
  nic.name = "../net/x";
  graph.add_device(nic);
  add_kernel_facts(graph, root_.string());
  EXPECT_FALSE(graph.devices.back().network_gb_per_second);
}

}  // namespace
}  // namespace sluice::topology
