// Goal: the ranks of a site measure what joins them before they train, and their gateway shows it and still knows it after a restart.
// Method: real gateways and training processes on loopback.

#include <cstdio>

#include "tests/e2e/e2e_fixture.h"

namespace sluice::e2e {
namespace {

class SiteProbeTest : public FleetTest {
 protected:
  static support::FleetOptions site_of(std::uint32_t ranks, const std::string& window) {
    support::FleetOptions options;
    options.sites = 2;
    options.ranks = ranks;
    options.extra = fmt::format("topology: {{probe: true, probe_window: {}}}\n", window);
    return options;
  }

  nlohmann::json wait_probe(std::uint16_t site, const std::string& outcome) {
    nlohmann::json found;
    const Status seen = fleet_->wait_status(site, "probe " + outcome, kAnswerTimeout, [&](const nlohmann::json& status) {
      found = status["topology"];
      return found["probe"] == outcome;
    });
    EXPECT_TRUE(seen) << seen.error().to_string();
    return found;
  }
};

TEST_F(SiteProbeTest, FourRanksMeasureTheirSixPairsAndTrain) {
  ASSERT_NO_FATAL_FAILURE(start(site_of(4, "5s")));
  const nlohmann::json probe = wait_probe(0, "done");
  EXPECT_EQ(probe["pairs"], 6);
  EXPECT_EQ(probe["pairs_planned"], 6);
  EXPECT_EQ(probe["machines"], 1);
  EXPECT_LT(probe["seconds"].get<double>(), 5.0);
  EXPECT_GT(probe["gb_per_second"]["min"].get<double>(), 0.001);
  EXPECT_GT(probe["latency_us"]["median"].get<double>(), 0.0);
  std::printf("probe of four ranks: %s\n", probe.dump().c_str());
  const auto answer = fleet_->get(0, "/api/v1/topology");
  ASSERT_TRUE(answer) << answer.error().to_string();
  const auto topology = nlohmann::json::parse(*answer);
  EXPECT_EQ(topology["links"].size(), 12U);
  EXPECT_EQ(topology["graph"]["format"], "sluice-topology");
  const auto metrics = fleet_->get(0, "/metrics");
  ASSERT_TRUE(metrics);
  EXPECT_NE(metrics->find("sluice_site_probe_pairs{site=\"dc-a\"} 6"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(directory_ / "state-dc-a" / "topology.json"));
  EXPECT_TRUE(step_until_together({0, 1}, 3));
  // Started again, the gateway still knows it; the ranks do not measure again.
  fleet_->kill_site(0);
  ASSERT_TRUE(fleet_->start_site(0));
  wait_together();
  const auto status = fleet_->status(0);
  ASSERT_TRUE(status);
  EXPECT_EQ((*status)["topology"]["earlier_run"], true) << status->dump();
  EXPECT_EQ((*status)["topology"]["pairs"], 6);
  EXPECT_TRUE(step_until_together({0, 1}, 12));
}

}  // namespace
}  // namespace sluice::e2e
