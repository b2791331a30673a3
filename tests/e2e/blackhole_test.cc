// Goal: a link that goes silent in mid-round, without a reset or an error from any kernel, costs the others at most one deadline; when it
// heals, all sites hold the same bits again. Method: real gateways in the namespaces of a packet emulator that swallows what passes between
// two of them. Without root or /dev/net/tun: skipped with the reason.
#include "tests/e2e/e2e_fixture.h"
#include "tests/support/wan_emulator.h"

namespace sluice::e2e {
namespace {

constexpr std::uint16_t kSites = 3;
constexpr std::chrono::seconds kDeadline{4};

class BlackholeTest : public FleetTest {
 protected:
  void SetUp() override {
    if (const auto reason = support::WanEmulator::why_unavailable()) GTEST_SKIP() << "no network namespaces here: " << *reason;
    support::WanEmulatorOptions emulator;
    emulator.sites = kSites;
    auto wan = support::WanEmulator::start(emulator);
    ASSERT_TRUE(wan) << wan.error().to_string();
    wan_ = std::move(*wan);
    support::PathShape shape;
    shape.delay = std::chrono::milliseconds(40);
    shape.rate = BitsPerSecond{200e6};
    for (std::uint16_t a = 0; a < kSites; ++a) {
      for (std::uint16_t b = 0; b < a; ++b) wan_->set_both(SiteId(a), SiteId(b), shape);
    }
    support::FleetOptions options;
    options.sites = kSites;
    options.emulator = wan_.get();
    options.round = "{deadline: 4s, open_grace: 4s, commit_deadline: 4s}";
    options.heartbeat = "{interval: 300ms, misses: 4}";
    options.wan = ", relay: false";  // with it, see relay_test
    ASSERT_NO_FATAL_FAILURE(start(options));
    ASSERT_TRUE(step_until_together({0, 1, 2}, 4));
  }
  void TearDown() override {
    if (fleet_) FleetTest::TearDown();
    wan_.reset();
  }

  void set_link(std::uint16_t a, std::uint16_t b, bool is_blackhole) {
    wan_->set_blackhole(SiteId(a), SiteId(b), is_blackhole);
    wan_->set_blackhole(SiteId(b), SiteId(a), is_blackhole);
  }

  // Starts a step everywhere and silences the link while the round is under way.
  void silence_in_mid_round(std::uint16_t a, std::uint16_t b) {
    for (std::uint16_t site = 0; site < kSites; ++site) tell(site, "step");
    wait_phase(0, "open");
    set_link(a, b, true);
  }

  // Steps until all three hold the same parameters after the same round.
  void heal_and_agree(std::uint16_t a, std::uint16_t b) {
    set_link(a, b, false);
    wait_together();
    std::vector<nlohmann::json> last;
    EXPECT_TRUE(step_until_together({0, 1, 2}, 12, &last)) << last[0].dump() << last[1].dump() << last[2].dump();
  }

  std::unique_ptr<support::WanEmulator> wan_;
};

TEST_F(BlackholeTest, SiteSilentTowardsTheStoreIsLeftOutByTheDeadlineAndComesBack) {
  silence_in_mid_round(0, 2);
  hear_two_commit_without_the_third();
  const auto status = fleet_->status(0);
  ASSERT_TRUE(status);
  const double seconds = (*status)["rounds"].back()["seconds"].get<double>();
  EXPECT_LE(seconds, std::chrono::duration<double>(2 * kDeadline).count()) << "closed by one deadline, committed by the next";
  // The link stays silent: the two go on, the third trains alone.
  const auto alone = step({0, 1, 2});
  EXPECT_EQ(alone[0]["sites"], 2) << alone[0].dump();
  EXPECT_EQ(alone[0]["digest"], alone[1]["digest"]);
  EXPECT_EQ(alone[2]["outcome"], SLUICE_STEP_SOLO) << alone[2].dump();
  heal_and_agree(0, 2);
}

TEST_F(BlackholeTest, OneSilentDirectionIsFoundAndHealsToo) {
  for (std::uint16_t site = 0; site < kSites; ++site) tell(site, "step");
  wait_phase(0, "open");
  wan_->set_blackhole(SiteId(2), SiteId(0), true);  // site 2 still hears everything
  EXPECT_EQ(hear(0)["outcome"], SLUICE_STEP_COMMITTED);
  EXPECT_EQ(hear(1)["outcome"], SLUICE_STEP_COMMITTED);
  EXPECT_TRUE(hear(2).contains("outcome"));
  const Status down = fleet_->wait_status(2, "the link to the store down", kAnswerTimeout,
                                          [](const nlohmann::json& status) { return !status["links"][0]["up"].get<bool>(); });
  EXPECT_TRUE(down) << down.error().to_string();
  heal_and_agree(0, 2);
}

}  // namespace
}  // namespace sluice::e2e
