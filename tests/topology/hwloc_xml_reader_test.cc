// Goal: hwloc XML of all formats gives CPUs, GPUs and NICs with the paths between them, and counts what the file counts.
// Method: small machines written by hand, one trait each: switches, host bridges, NVLink bandwidths, screens, files without I/O.

#include <gtest/gtest.h>

#include "tests/topology/graph_text.h"
#include "topology/graph_arrays.h"

namespace sluice::topology {
namespace {

std::string machine(const std::string& devices, const std::string& rest = "") {
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"3.0\">\n"
         "<object type=\"Machine\" nodeset=\"0x00000003\"><info name=\"HostName\" value=\"host7\"/>"
         "<object type=\"Package\" nodeset=\"0x00000001\" gp_index=\"3\"><object type=\"NUMANode\"/><object type=\"Core\"><object "
         "type=\"PU\"/></object>"
         "<object type=\"Bridge\" bridge_type=\"0-1\" bridge_pci=\"0000:[00-1f]\">" +
         devices + "</object></object><object type=\"Package\" nodeset=\"0x00000002\"><object type=\"PU\"/></object></object>" + rest +
         "</topology>";
}

std::string port(const std::string& bus, const std::string& inside) {
  return "<object type=\"Bridge\" bridge_type=\"1-1\" pci_busid=\"" + bus + "\" pci_type=\"0604 [1:2]\" pci_link_speed=\"31.5\">" + inside +
         "</object>";
}

std::string gpu(const std::string& bus, const std::string& number) {
  return "<object type=\"PCIDev\" pci_busid=\"" + bus +
         "\" pci_type=\"0302 [10de:2330] [0:0] a1 00\" pci_link_speed=\"31.5\">"
         "<object type=\"OSDev\" name=\"cuda" +
         number + "\" subtype=\"CUDA\" osdev_type=\"12\" gp_index=\"5" + number +
         "\"><info name=\"GPUModel\" value=\"H100\"/></object>"
         "<object type=\"OSDev\" name=\"nvml" +
         number + "\" subtype=\"NVML\" osdev_type=\"12\" gp_index=\"6" + number + "\"/></object>";
}

std::string nic(const std::string& bus) {
  return "<object type=\"PCIDev\" pci_busid=\"" + bus +
         "\" pci_type=\"0207 [15b3:1021]\" pci_link_speed=\"31.5\">"
         "<object type=\"OSDev\" name=\"ib0\" osdev_type=\"16\"/><object type=\"OSDev\" name=\"mlx5_0\" osdev_type=\"48\"/></object>";
}

TEST(HwlocXmlReader, PathsFollowSwitchesAndHostBridges) {
  const std::string inside =
      port("0000:01:00.0", port("0000:02:00.0", gpu("0000:03:00.0", "0")) + port("0000:02:01.0", nic("0000:04:00.0")));
  const SiteGraph graph = graph_of(machine(inside + port("0000:10:00.0", gpu("0000:11:00.0", "1"))));
  EXPECT_EQ(graph.ngpus(), 2U);
  EXPECT_EQ(graph.count(DeviceKind::kNic), 1U);
  EXPECT_EQ(graph.count(DeviceKind::kCpu), 2U);
  EXPECT_FALSE(graph.is_partial);
  EXPECT_EQ(graph.devices.front().name, "host7");
  const auto pairs = count_pairs(graph);
  EXPECT_EQ(pairs.at("GN:PIX"), 1U);
  EXPECT_EQ(pairs.at("GN:PHB"), 1U);
  EXPECT_EQ(pairs.at("GG:PHB"), 1U);
  EXPECT_EQ(graph.counts.at("PU"), 2U);
  EXPECT_EQ(graph.counts.at("OSDev cuda/nvml"), 4U);
  const auto device = std::ranges::find(graph.devices, "mlx5_0", &Device::name);
  ASSERT_NE(device, graph.devices.end());
  EXPECT_EQ(device->numa, 0);
}

TEST(HwlocXmlReader, BandwidthsOfNvlinkAreRead) {
  const std::string distances =
      "<distances2hetero nbobjs=\"3\" name=\"NVLinkBandwidth\"><indexes>OSDev:60 OSDev:61 Package:3 </indexes>"
      "<u64values>1000000 40000 40000 </u64values><u64values>40000 1000000 0 40000 0 1000000</u64values></distances2hetero>";
  const SiteGraph graph =
      graph_of(machine(port("0000:01:00.0", gpu("0000:03:00.0", "0")) + port("0000:02:00.0", gpu("0000:04:00.0", "1")), distances));
  EXPECT_EQ(count_pairs(graph).at("GG:NV2"), 1U);
  EXPECT_DOUBLE_EQ(speed_intra(graph).at(0, 1)->gb_per_second, 40);
  expect_refusal(machine(gpu("0000:03:00.0", "0"),
                         "<distances2 name=\"NVLinkBandwidth\"><indexes>60 61</indexes><u64values>1 2 3</u64values></distances2>"),
                 ErrorCode::kTopologyInvalid, "3 values for 2 objects");
}

TEST(HwlocXmlReader, AScreenIsNoGpuAndAnIdleFunctionNoNic) {
  const std::string screen = "<object type=\"PCIDev\" pci_busid=\"0000:09:00.0\" pci_type=\"0300 [102b:0532]\"/>";
  const std::string idle = "<object type=\"PCIDev\" pci_busid=\"0000:04:00.1\" pci_type=\"0200 [15b3:1021]\"/>";
  const SiteGraph graph = graph_of(machine(screen + nic("0000:04:00.0") + idle));
  EXPECT_EQ(graph.ngpus(), 0U);
  EXPECT_EQ(graph.count(DeviceKind::kNic), 1U);
  EXPECT_FALSE(graph.is_partial);
}

TEST(HwlocXmlReader, AFileWithoutDevicesIsPartial) {
  const SiteGraph graph =
      graph_of("<topology><object type=\"Machine\"><object type=\"Socket\"><object type=\"PU\"/></object></object></topology>");
  EXPECT_TRUE(graph.is_partial);
  EXPECT_TRUE(has_problem(graph.problems, "no-io-devices"));
}

TEST(HwlocXmlReader, BrokenFilesAreRefused) {
  expect_refusal("<topology><object type=\"Machine\"/></topology>", ErrorCode::kTopologyInvalid, "PU");
  expect_refusal(machine("<object type=\"PCIDev\"/>"), ErrorCode::kTopologyInvalid, "pci_busid");
  expect_refusal("<!DOCTYPE topology [<!ENTITY a \"b\">]><topology/>", ErrorCode::kTopologySyntax, "DOCTYPE");
}

}  // namespace
}  // namespace sluice::topology
