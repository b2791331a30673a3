// Goal: in a running training job the bits follow the measured links: the bytes of a round meet the budget of the fullest link, also in the
// first round that knows of a step of four. Method: three real gateways over an emulated WAN whose rate is changed while they run; what
// they decided and sent is read from their status. Nothing is asserted closely, because the machine may be busy: the ratio
// controller's own tests do that in virtual time.
#include <algorithm>

#include "tests/e2e/e2e_fixture.h"

namespace sluice::e2e {
namespace {

constexpr double kFastRate = 40e6;  // bits per second
constexpr double kSlowRate = 10e6;

class WanControlTest : public FleetTest {
 protected:
  static support::LinkShape shape(double rate) {
    support::LinkShape shape;
    shape.delay = std::chrono::milliseconds(10);
    shape.rate = BitsPerSecond{rate};
    shape.queue_bytes = 64 * 1024;
    return shape;
  }
  void set_rate(double rate) {
    for (std::uint16_t from = 0; from < 3; ++from) {
      for (std::uint16_t to = 0; to < 3; ++to) {
        if (from != to) fleet_->relay()->set_link(SiteId(from), SiteId(to), shape(rate));
      }
    }
  }
  // One round of all sites, and the wait until each shows it: a snapshot may be 50 ms old.
  void round() {
    ++round_;
    ASSERT_TRUE(all_committed_alike(step({0, 1, 2})));
    for (std::uint16_t site = 0; site < 3; ++site) {
      const Status seen = fleet_->wait_status(site, "the round", kAnswerTimeout, [&](const nlohmann::json& now) {
        return now["round"] == round_ && !now["rounds"].empty() && now["rounds"].back()["round"] == round_;
      });
      ASSERT_TRUE(seen) << seen.error().to_string();
    }
  }
  nlohmann::json status(std::uint16_t site) {
    const auto answer = fleet_->status(site);
    EXPECT_TRUE(answer) << answer.error().to_string();
    return answer ? *answer : nlohmann::json::object();
  }
  // Over all links of all sites: what the last round sent over its budget, at the fullest.
  double fullest() {
    double most = 0.0;
    for (std::uint16_t site = 0; site < 3; ++site) {
      const nlohmann::json now = status(site);
      for (const auto& link : now["links"]) {
        if (!link["plan"]["budget_bytes"].is_number()) continue;
        most = std::max(most, link["plan"]["round_bytes"].get<double>() / link["plan"]["budget_bytes"].get<double>());
      }
    }
    return most;
  }
  int round_ = 0;
  nlohmann::json last_round() { return status(0)["rounds"].back(); }
  std::string explain() {
    std::string text = last_round()["rate"].dump();
    for (std::uint16_t site = 0; site < 3; ++site) {
      const nlohmann::json now = status(site);
      for (const auto& link : now["links"]) text += "\n" + link["estimate"].dump() + link["plan"].dump();
    }
    return text;
  }
};

TEST_F(WanControlTest, TheBytesOfARoundFollowStepsOfTheLinks) {
  support::FleetOptions options;
  options.has_wan = true;
  options.link = shape(kFastRate);
  options.streams = 1;  // loopback's buffers would swallow a round on several
  options.compression = "{mode: auto, bits: 3, max_bits: 16, warmup_rounds: 1, time_budget: 1s}";
  ASSERT_NO_FATAL_FAILURE(start(options, 4'000'000));
  for (int each = 0; each < 4; ++each) ASSERT_NO_FATAL_FAILURE(round());
  EXPECT_EQ(last_round()["rate"]["reason"], "budget") << explain();
  EXPECT_NEAR(fullest(), 1.0, 0.3) << explain();
  const nlohmann::json now = status(0);
  for (const auto& path : now["wan_paths"]["paths"]) {
    ASSERT_TRUE(path["median_bits_per_second"].is_number()) << path.dump();
    EXPECT_NEAR(path["median_bits_per_second"].get<double>() / kFastRate, 1.0, 0.35) << path.dump();
    EXPECT_NEAR(path["rtt_seconds"]["min"].get<double>(), 0.02, 0.03) << path.dump();
  }
  set_rate(kSlowRate);
  ASSERT_NO_FATAL_FAILURE(round());  // meets the step and learns of it
  ASSERT_NO_FATAL_FAILURE(round());
  EXPECT_EQ(last_round()["rate"]["reason"], "budget") << explain();
  EXPECT_NEAR(fullest(), 1.0, 0.3) << explain();
  const double slow_bits = last_round()["bits_per_value"].get<double>();
  set_rate(kFastRate);
  for (int each = 0; each < 3; ++each) ASSERT_NO_FATAL_FAILURE(round());
  EXPECT_GT(last_round()["bits_per_value"].get<double>(), 2.0 * slow_bits) << explain();
  EXPECT_NEAR(fullest(), 1.0, 0.4) << explain();
}

}  // namespace
}  // namespace sluice::e2e
