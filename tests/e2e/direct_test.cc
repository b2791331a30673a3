// Goal: direct rounds, in which every member sums for itself, hold the same bits everywhere, are opened where they are faster, and outlive
// a gateway that is lost in their middle. Method: real gateways over the relay in this process; two sites, and three with BF16 and a long
// round trip: sums of BF16 are twice as long, so that the links carry the same and direct saves half a round trip.

#include <csignal>

#include "tests/e2e/e2e_fixture.h"

namespace sluice::e2e {
namespace {

constexpr std::uint16_t kTwo[] = {0, 1};
constexpr std::uint16_t kThree[] = {0, 1, 2};

class DirectTest : public FleetTest {
 protected:
  static support::FleetOptions wan_of(std::uint16_t sites, double rate, const std::string& bits) {
    support::FleetOptions options;
    options.sites = sites;
    options.has_wan = true;
    options.link.delay = std::chrono::milliseconds(20);
    options.link.rate = BitsPerSecond{rate};
    options.link.queue_bytes = 64 * 1024;
    options.streams = 1;
    options.compression = "{mode: fixed, bits: " + bits + ", warmup_rounds: 0}";
    options.round = "{deadline: 4s, open_grace: 4s, commit_deadline: 4s}";
    options.heartbeat = "{interval: 300ms, misses: 4}";
    return options;
  }

  // The round as the site's page shows it, which is a moment later than the agents know.
  nlohmann::json shown_round(std::uint16_t site, std::uint64_t round) {
    nlohmann::json shown;
    const Status seen = fleet_->wait_status(site, fmt::format("round {}", round), kAnswerTimeout, [&](const nlohmann::json& status) {
      for (const auto& each : status["rounds"]) {
        if (each["round"] == round && each["outcome"] == "committed") shown = each;
      }
      return !shown.is_null();
    });
    EXPECT_TRUE(seen) << seen.error().to_string();
    return seen ? shown : nlohmann::json{{"rate", {{"plan", ""}}}};
  }

  // A round of all these sites, as the first one shows it.
  nlohmann::json round_of(const std::vector<std::uint16_t>& sites, int tries) {
    std::vector<nlohmann::json> answers;
    EXPECT_TRUE(step_until_together(sites, tries, &answers)) << nlohmann::json(answers).dump();
    return shown_round(sites.front(), answers.front().value("round", std::uint64_t{0}));
  }
};

TEST_F(DirectTest, TwoSitesSendNoSumsAndALostGatewayComesBack) {
  ASSERT_NO_FATAL_FAILURE(start(wan_of(2, 40e6, "3"), 2'000'000));
  for (int round = 0; round < 2; ++round) EXPECT_EQ(round_of({0, 1}, 1)["rate"]["plan"], "direct");
  const nlohmann::json last = round_of({0, 1}, 1);
  // 3 bits of each value and what carries them; with owners it would be half of that and of a sum of 3.5 bits or more.
  EXPECT_LT(8.0 * last["sent_bytes"].get<double>() / 2e6, last["bits_per_value"].get<double>() + 0.1) << last.dump();
  for (const std::uint16_t site : kTwo) tell(site, "step");
  wait_phase(0, "open");
  fleet_->kill_site(1);
  for (const std::uint16_t site : kTwo) EXPECT_NE(hear(site)["outcome"], SLUICE_STEP_COMMITTED);
  ASSERT_TRUE(fleet_->start_site(1));
  wait_together();
  // With or without owners: that follows what coding takes on this machine, which has been measured by now.
  EXPECT_EQ(round_of({0, 1}, 12)["sites"].size(), 2U);
}

TEST_F(DirectTest, ThreeSitesGoDirectWhereItIsFasterAndOutliveALostGateway) {
  support::FleetOptions options = wan_of(3, 40e6, "8, codec: bf16");
  options.link.delay = std::chrono::milliseconds(100);
  ASSERT_NO_FATAL_FAILURE(start(options, 2'000'000));
  nlohmann::json last;
  for (int round = 0; round < 8 && (last.is_null() || last["rate"]["plan"] != "direct"); ++round) last = round_of({0, 1, 2}, 2);
  ASSERT_EQ(last["rate"]["plan"], "direct") << last.dump();
  for (const std::uint16_t site : kThree) tell(site, "step");
  wait_phase(0, "open");
  fleet_->kill_site(2);
  hear_two_commit_without_the_third();
  ASSERT_TRUE(fleet_->start_site(2));
  wait_together();
  round_of({0, 1, 2}, 12);
}

}  // namespace
}  // namespace sluice::e2e
