// Goal: two sites whose own link is dead train on with the others over a third site, in every round and within its predicted time, whether
// one of them holds the store or not; when the link heals, it is used again. Method: real gateways over the relay in this process, which
// holds everything back between two of the sites; no root.

#include <csignal>

#include "tests/e2e/e2e_fixture.h"

namespace sluice::e2e {
namespace {

constexpr std::uint16_t kSites[] = {0, 1, 2};

class RelayTest : public FleetTest {
 protected:
  static support::FleetOptions wan_of(std::uint16_t sites) {
    support::FleetOptions options;
    options.sites = sites;
    options.has_wan = true;
    options.link = shape();
    options.round = "{deadline: 20s, open_grace: 20s, commit_deadline: 20s}";
    options.heartbeat = "{interval: 300ms, misses: 3}";
    return options;
  }
  static support::LinkShape shape() {
    support::LinkShape link;
    link.delay = std::chrono::milliseconds(10);
    link.rate = BitsPerSecond{100e6};
    return link;
  }

  void set_link(std::uint16_t a, std::uint16_t b, const support::LinkShape& link) {
    fleet_->relay()->set_link(SiteId(a), SiteId(b), link);
    fleet_->relay()->set_link(SiteId(b), SiteId(a), link);
  }
  void cut(std::uint16_t a, std::uint16_t b) {
    support::LinkShape link = shape();
    link.is_blackhole = true;
    set_link(a, b, link);
  }

  void wait_via(std::uint16_t site, std::uint16_t peer, const std::string& via) {
    const std::string name = support::GatewayFleet::site_name(peer);
    const Status seen = fleet_->wait_status(site, name + " over " + via, kAnswerTimeout, [&](const nlohmann::json& status) {
      for (const auto& link : status["links"]) {
        if (link["peer"] == name) return link["via"] == via && link["up"] == via.empty();
      }
      return false;
    });
    ASSERT_TRUE(seen) << seen.error().to_string();
  }

  // The last round as the site saw it.
  nlohmann::json last_round(std::uint16_t site) {
    const auto status = fleet_->status(site);
    EXPECT_TRUE(status);
    return status ? (*status)["rounds"].back() : nlohmann::json();
  }

  // Links that a round fills, so that their rates are known and the round's time can be predicted.
  static support::FleetOptions filled_wan(std::uint16_t sites = 3) {
    support::FleetOptions options = wan_of(sites);
    options.link = filled(1.0);
    options.streams = 1;
    options.compression = "{mode: fixed, bits: 8, warmup_rounds: 0}";
    return options;
  }
  static support::LinkShape filled(double share) {
    support::LinkShape link = shape();
    link.rate = BitsPerSecond{40e6 * share};
    link.queue_bytes = 64 * 1024;
    return link;
  }

  double median_seconds(int rounds, const std::vector<std::uint16_t>& sites = {0, 1, 2}) {
    std::vector<double> seconds;
    for (int round = 0; round < rounds; ++round) {
      EXPECT_TRUE(step_until_together(sites, 1));
      const nlohmann::json last = last_round(0);
      seconds.push_back(last["seconds"].get<double>() - last["phase_seconds"]["open"].get<double>());
    }
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
  }
};

TEST_F(RelayTest, TwoSitesWhoseLinkIsDeadGoOnOverTheThird) {
  ASSERT_NO_FATAL_FAILURE(start(filled_wan(), 4'000'000));
  ASSERT_TRUE(step_until_together({0, 1, 2}, 4));
  const double whole = median_seconds(4);
  cut(1, 2);
  ASSERT_NO_FATAL_FAILURE(wait_via(1, 2, "dc-a"));
  ASSERT_NO_FATAL_FAILURE(wait_via(2, 1, "dc-a"));
  ASSERT_TRUE(step_until_together({0, 1, 2}, 3));  // still shared out for three links; from the next on the third site sums
  const double over_third = median_seconds(4);
  const nlohmann::json last = last_round(0);
  const double predicted = last["rate"]["predicted_seconds"].get<double>();
  std::printf("round %.3f s with all links, %.3f s over the third site, predicted %.3f s\n", whole, over_third, predicted);
  EXPECT_EQ(last["sites"].size(), 3U);
  EXPECT_GT(predicted, 0.0);
  EXPECT_LE(over_third, 2.0 * predicted) << "the machine may be busy";
  // What crossed three pairs of links crosses two of them.
  EXPECT_LE(over_third, 3.0 * whole);
  const auto metrics = fleet_->get(0, "/metrics");
  ASSERT_TRUE(metrics);
  EXPECT_EQ(metrics->find("sluice_passed_on_total{site=\"dc-a\"} 0\n"), std::string::npos);
  set_link(1, 2, filled(1.0));
  ASSERT_NO_FATAL_FAILURE(wait_via(1, 2, ""));
  EXPECT_TRUE(step_until_together({0, 1, 2}, 4));
}

// Here nothing is passed on: chunks that would cross the slow link are summed at the third site, which is faster than any way over it.
TEST_F(RelayTest, ALinkAtATenthIsAvoidedByTheOwners) {
  ASSERT_NO_FATAL_FAILURE(start(filled_wan(), 4'000'000));
  ASSERT_TRUE(step_until_together({0, 1, 2}, 4));
  const double whole = median_seconds(4);
  set_link(1, 2, filled(0.1));
  for (int round = 0; round < 3; ++round) ASSERT_TRUE(step_until_together({0, 1, 2}, 2));  // one meets it, the next knows
  const double slow = median_seconds(4);
  const double predicted = last_round(0)["rate"]["predicted_seconds"].get<double>();
  std::printf("round %.3f s with all links, %.3f s with one at a tenth, predicted %.3f s\n", whole, slow, predicted);
  EXPECT_GT(predicted, 0.0);
  EXPECT_LE(slow, 2.0 * predicted) << "the machine may be busy";
  EXPECT_LE(slow, 4.0 * whole) << "a tenth would take ten times as long";
}

// With four sites part of what would cross a slow link goes over the others, by the plan of the round.
TEST_F(RelayTest, AmongFourSitesASlowLinkIsSparedByWaysOverOthers) {
  const std::vector<std::uint16_t> sites = {0, 1, 2, 3};
  ASSERT_NO_FATAL_FAILURE(start(filled_wan(4), 4'000'000));
  ASSERT_TRUE(step_until_together(sites, 4));
  set_link(1, 2, filled(0.1));
  nlohmann::json last;
  for (int round = 0; round < 12 && (last.is_null() || last["rate"]["plan"] != "relay"); ++round) {
    ASSERT_TRUE(step_until_together(sites, 2));
    last = last_round(0);
  }
  ASSERT_EQ(last["rate"]["plan"], "relay") << last.dump();
  const double taken = median_seconds(3, sites);
  last = last_round(0);
  const double predicted = last["rate"]["predicted_seconds"].get<double>();
  std::printf("round %.3f s over others, predicted %.3f s: %s\n", taken, predicted, last["rate"]["text"].get<std::string>().c_str());
  EXPECT_LE(taken, 2.0 * predicted) << "the machine may be busy";
  int passing = 0;
  for (const std::uint16_t site : sites) {
    const auto metrics = fleet_->get(site, "/metrics");
    ASSERT_TRUE(metrics);
    const std::string none = fmt::format("sluice_passed_on_total{{site=\"{}\"}} 0\n", support::GatewayFleet::site_name(site));
    passing += metrics->find(none) == std::string::npos ? 1 : 0;
  }
  EXPECT_GT(passing, 0);
  // A link of a site in the middle dies in mid-round: what went that way goes once more.
  for (const std::uint16_t site : sites) tell(site, "step");
  wait_phase(0, "open");
  cut(0, 2);
  std::vector<nlohmann::json> answers;
  for (const std::uint16_t site : sites) answers.push_back(hear(site));
  EXPECT_TRUE(all_committed_alike(answers)) << answers[0].dump() << answers[1].dump() << answers[2].dump();
  EXPECT_EQ(answers[0]["sites"], 4);
  EXPECT_LT(last_round(0)["seconds"].get<double>(), 12.0);
}

TEST_F(RelayTest, ASiteCutOffFromTheStoreReachesItOverTheThird) {
  ASSERT_NO_FATAL_FAILURE(start(wan_of(3)));
  ASSERT_TRUE(step_until_together({0, 1, 2}, 4));
  cut(0, 2);
  ASSERT_NO_FATAL_FAILURE(wait_via(2, 0, "dc-b"));
  ASSERT_NO_FATAL_FAILURE(wait_via(0, 2, "dc-b"));
  for (int round = 0; round < 3; ++round) EXPECT_TRUE(step_until_together({0, 1, 2}, 2));
}

TEST_F(RelayTest, ALinkThatDiesInMidRoundDoesNotCostTheRound) {
  ASSERT_NO_FATAL_FAILURE(start(wan_of(3), 4'000'000));
  ASSERT_TRUE(step_until_together({0, 1, 2}, 4));
  for (const std::uint16_t site : kSites) tell(site, "step");
  wait_phase(0, "open");
  cut(1, 2);
  std::vector<nlohmann::json> answers;
  for (const std::uint16_t site : kSites) answers.push_back(hear(site));
  EXPECT_TRUE(all_committed_alike(answers)) << answers[0].dump() << answers[1].dump() << answers[2].dump();
  EXPECT_EQ(answers[0]["sites"], 3);
  // Found dead after three silent intervals, done within the deadline.
  EXPECT_LT(last_round(0)["seconds"].get<double>(), 10.0);
}

TEST_F(RelayTest, TheThirdSiteDyingLeavesTheOtherTwoApartAndItsReturnJoinsThem) {
  ASSERT_NO_FATAL_FAILURE(start(wan_of(3)));
  ASSERT_TRUE(step_until_together({0, 1, 2}, 4));
  cut(0, 2);
  ASSERT_NO_FATAL_FAILURE(wait_via(2, 0, "dc-b"));
  ASSERT_TRUE(step_until_together({0, 1, 2}, 3));
  fleet_->kill_site(1);
  const Status down = fleet_->wait_status(2, "nobody reached", kAnswerTimeout, [](const nlohmann::json& status) {
    return status["links"][0]["via"] == "" && status["links"][1]["via"] == "" && status["links"][0]["up"] == false;
  });
  ASSERT_TRUE(down) << down.error().to_string();
  for (const auto& answer : step({0, 2})) EXPECT_NE(answer["outcome"], SLUICE_STEP_COMMITTED) << answer.dump();
  ASSERT_TRUE(fleet_->start_site(1));
  ASSERT_NO_FATAL_FAILURE(wait_via(2, 0, "dc-b"));
  EXPECT_TRUE(step_until_together({0, 1, 2}, 15));
}

TEST_F(RelayTest, SwitchedOffADeadLinkLeavesASiteOut) {
  support::FleetOptions options = wan_of(3);
  options.wan = ", relay: false";
  options.round = "{deadline: 3s, open_grace: 3s, commit_deadline: 3s}";
  ASSERT_NO_FATAL_FAILURE(start(options));
  ASSERT_TRUE(step_until_together({0, 1, 2}, 4));
  cut(0, 2);
  const Status alone =
      fleet_->wait_status(2, "no store", kAnswerTimeout, [](const nlohmann::json& status) { return !status["announcements"].empty(); });
  ASSERT_TRUE(alone) << alone.error().to_string();
  const auto answers = step({0, 1, 2});
  EXPECT_EQ(answers[0]["sites"], 2);
  EXPECT_NE(answers[2]["outcome"], SLUICE_STEP_COMMITTED);
}

}  // namespace
}  // namespace sluice::e2e
