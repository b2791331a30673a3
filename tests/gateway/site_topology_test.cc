// Goal: what the ranks measure takes the place of what topology.file promises, both are kept, and the measurement outlives the gateway;
// reports that make no sense are refused. Method: reports as the agents send them, files in a temporary directory.

#include "gateway/site_topology.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "tests/support/temporary_directory.h"
#include "topology/graph_arrays.h"
#include "topology/graph_file.h"

namespace sluice::gateway {
namespace {

wire::SiteProbe probe_of(const std::string& machine) {
  wire::SiteProbe probe;
  probe.set_machine(machine);
  probe.set_elapsed_us(210'000);
  probe.set_pairs_planned(1);
  return probe;
}

wire::SiteProbe probe_with_pair(const std::string& machine, std::uint32_t peer, double forward, double backward) {
  wire::SiteProbe probe = probe_of(machine);
  wire::ProbedPair& pair = *probe.add_pairs();
  pair.set_peer(peer);
  pair.set_forward_gb_per_second(forward);
  pair.set_backward_gb_per_second(backward);
  pair.set_latency_us(20.0);
  pair.set_steady(true);
  return probe;
}

// Two machines of one port of 25 GB/s each.
std::filesystem::path write_promised(const std::filesystem::path& directory) {
  topology::SiteGraph graph;
  graph.files.push_back({"hand", "cluster"});
  for (const char* name : {"east", "west"}) {
    topology::Device node;
    node.name = node.hardware = name;
    node.parent = topology::kInNothing;
    topology::Device port;
    port.kind = topology::DeviceKind::kNic;
    port.name = "mlx5_0";
    port.network_gb_per_second = 25.0;
    port.parent = graph.add_device(std::move(node));
    graph.add_device(std::move(port));
  }
  const std::filesystem::path path = directory / "promised.json";
  std::ofstream(path) << topology::write_graph_file(graph);
  return path;
}

SiteTopology open_site(const std::filesystem::path& directory, const std::filesystem::path& promised, std::uint32_t ranks = 2) {
  auto site = SiteTopology::open({promised, directory, ranks, true});
  EXPECT_TRUE(site) << site.error().to_string();
  return std::move(*site);
}

topology::SiteGraph graph_of(const SiteTopology& site) {
  auto graph = topology::read_graph_file(*site.status()->graph, "status");
  EXPECT_TRUE(graph) << graph.error().to_string();
  return std::move(*graph);
}

TEST(SiteTopology, WaitsForAllRanksAndTheMeasuredSpeedReplacesThePromisedOne) {
  const test_support::TemporaryDirectory directory;
  SiteTopology site = open_site(directory.path(), write_promised(directory.path()));
  EXPECT_EQ(site.status()->probe, "waiting");
  EXPECT_EQ(topology::NodeSpeeds(graph_of(site)).at(0, 1)->gb_per_second, 25.0);
  EXPECT_FALSE(site.refresh());
  ASSERT_TRUE(site.take(RankId(0), probe_with_pair("east", 1, 3.0, 2.5)));
  EXPECT_FALSE(site.refresh());
  ASSERT_TRUE(site.take(RankId(1), probe_of("west")));
  EXPECT_TRUE(site.refresh());
  EXPECT_FALSE(site.refresh());
  const TopologyStatus& status = *site.status();
  EXPECT_EQ(status.probe, "done");
  EXPECT_EQ(status.pairs, 1U);
  EXPECT_EQ(status.pairs_planned, 1U);
  EXPECT_EQ(status.machines, 2U);
  EXPECT_EQ(status.gb_per_second.least, 2.5);
  EXPECT_EQ(status.gb_per_second.most, 3.0);
  EXPECT_EQ(status.latency_us.median, 20.0);
  EXPECT_DOUBLE_EQ(status.seconds, 0.21);
  ASSERT_EQ(status.links.size(), 4U);  // between the ranks and between their machines, both ways
  EXPECT_EQ(status.links[1].promised_gb_per_second, 25.0);
  const topology::SiteGraph graph = graph_of(site);
  const auto speed = topology::NodeSpeeds(graph).at(0, 1);
  EXPECT_EQ(speed->gb_per_second, 3.0);
  EXPECT_EQ(speed->basis, topology::LinkBasis::kMeasured);
  EXPECT_EQ(graph.count(topology::DeviceKind::kNic), 2U);
}

TEST(SiteTopology, WhatWasMeasuredOutlivesTheGateway) {
  const test_support::TemporaryDirectory directory;
  const auto promised = write_promised(directory.path());
  {
    SiteTopology site = open_site(directory.path(), promised);
    ASSERT_TRUE(site.take(RankId(0), probe_with_pair("east", 1, 3.0, 2.5)));
    ASSERT_TRUE(site.take(RankId(1), probe_of("west")));
    EXPECT_TRUE(site.refresh());
  }
  const SiteTopology again = open_site(directory.path(), promised);
  EXPECT_EQ(again.status()->probe, "waiting");
  EXPECT_TRUE(again.status()->is_of_earlier_run);
  EXPECT_EQ(again.status()->gb_per_second.most, 3.0);
  EXPECT_EQ(topology::NodeSpeeds(graph_of(again)).at(0, 1)->gb_per_second, 3.0);
  // Without the file too.
  const SiteTopology alone = open_site(directory.path(), {});
  EXPECT_EQ(topology::NodeSpeeds(graph_of(alone)).at(1, 0)->gb_per_second, 2.5);
}

TEST(SiteTopology, AFailedProbeIsShownWithWhatItMeasured) {
  const test_support::TemporaryDirectory directory;
  SiteTopology site = open_site(directory.path(), {}, 3);
  wire::SiteProbe broken = probe_with_pair("east", 1, 3.0, 2.5);
  broken.set_failure("exchange: connection closed");
  ASSERT_TRUE(site.take(RankId(0), broken));
  ASSERT_TRUE(site.take(RankId(1), probe_of("east")));
  EXPECT_TRUE(site.refresh());  // the third is dead and does not report
  EXPECT_EQ(site.status()->probe, "failed");
  EXPECT_EQ(site.status()->failure, "rank 0: exchange: connection closed");
  EXPECT_EQ(site.status()->pairs, 1U);
  // The next probe takes its place.
  for (std::uint32_t rank = 0; rank < 3; ++rank) ASSERT_TRUE(site.take(RankId(rank), probe_of("east")));
  EXPECT_TRUE(site.refresh());
  EXPECT_EQ(site.status()->probe, "done");
}

TEST(SiteTopology, OneMachineWithoutANameIsTheOneThatMeasured) {
  const test_support::TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "machine.xml";
  std::ofstream(file)
      << R"(<system version="1"><cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
  <pci busid="0000:0f:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed="32.0 GT/s PCIe" link_width="16">
  <gpu dev="0" sm="90" rank="0" gdr="1"/></pci></cpu></system>)";
  SiteTopology site = open_site(directory.path(), file);
  ASSERT_TRUE(site.take(RankId(0), probe_with_pair("east", 1, 3.0, 2.5)));
  ASSERT_TRUE(site.take(RankId(1), probe_of("east")));
  EXPECT_TRUE(site.refresh());
  const topology::SiteGraph graph = graph_of(site);
  EXPECT_EQ(graph.nnodes(), 1U);
  EXPECT_EQ(graph.ngpus(), 1U);
  EXPECT_EQ(graph.count(topology::DeviceKind::kRank), 2U);
}

TEST(SiteTopology, ReportsThatMakeNoSenseAreRefused) {
  const test_support::TemporaryDirectory directory;
  SiteTopology site = open_site(directory.path(), {}, 3);
  const auto refuses = [&](RankId rank, const wire::SiteProbe& probe) {
    const Status taken = site.take(rank, probe);
    return !taken && taken.error().code == ErrorCode::kWireBadMessage;
  };
  EXPECT_TRUE(refuses(RankId(1), probe_with_pair("east", 0, 3.0, 2.5)));  // the lower rank leads
  EXPECT_TRUE(refuses(RankId(1), probe_with_pair("east", 1, 3.0, 2.5)));
  EXPECT_TRUE(refuses(RankId(0), probe_with_pair("east", 3, 3.0, 2.5)));
  EXPECT_TRUE(refuses(RankId(0), probe_with_pair("east", 1, -1.0, 2.5)));
  EXPECT_TRUE(refuses(RankId(0), probe_with_pair("east", 1, 3.0, std::numeric_limits<double>::infinity())));
  EXPECT_TRUE(refuses(RankId(0), probe_with_pair("ea\nst", 1, 3.0, 2.5)));
  EXPECT_TRUE(refuses(RankId(0), probe_with_pair(std::string(300, 'x'), 1, 3.0, 2.5)));
  wire::SiteProbe many = probe_with_pair("east", 1, 3.0, 2.5);
  for (int index = 0; index < 3; ++index) *many.add_pairs() = many.pairs(0);
  EXPECT_TRUE(refuses(RankId(0), many));
  EXPECT_FALSE(site.refresh());
}

TEST(SiteTopology, ABrokenFileIsAnErrorAndABrokenLeftoverIsNot) {
  const test_support::TemporaryDirectory directory;
  EXPECT_FALSE(SiteTopology::open({directory.path() / "missing.xml", directory.path(), 2, true}));
  std::ofstream(directory.path() / "bad.xml") << "nothing that we know";
  EXPECT_FALSE(SiteTopology::open({directory.path() / "bad.xml", directory.path(), 2, true}));
  std::ofstream(directory.path() / "topology.json") << "{\"format\":";
  const SiteTopology site = open_site(directory.path(), {});
  EXPECT_EQ(site.status()->graph, nullptr);
  EXPECT_EQ(open_site(directory.path(), {}, 1).status()->probe, "off");
}

}  // namespace
}  // namespace sluice::gateway
