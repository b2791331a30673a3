// Goal: a lost gateway, store, training process or delta costs the others at most one deadline, and afterwards all sites hold the same bits
// again. Method: real `sluice gateway` processes on loopback or an emulated WAN, scripted training processes, SIGKILL.
#include <algorithm>
#include <csignal>

#include "tests/e2e/e2e_fixture.h"

namespace sluice::e2e {
namespace {

constexpr std::uint16_t kSites[] = {0, 1, 2};

class FaultTest : public FleetTest {
 protected:
  // 40 ms one way: a round takes some 200 ms, long enough to be hit in its middle.
  static support::FleetOptions wan_of(std::uint16_t sites) {
    support::FleetOptions options;
    options.sites = sites;
    options.has_wan = true;
    options.link.delay = std::chrono::milliseconds(40);
    options.round = "{deadline: 3s, open_grace: 3s, commit_deadline: 3s}";
    options.heartbeat = "{interval: 300ms, misses: 4}";
    return options;
  }
};

TEST_F(FaultTest, ThreeSitesHoldTheSameBitsAfterEveryRound) {
  support::FleetOptions options;
  ASSERT_NO_FATAL_FAILURE(start(options));
  std::string previous;
  for (int round = 1; round <= 5; ++round) {
    const auto answers = step({0, 1, 2});
    EXPECT_TRUE(all_committed_alike(answers)) << answers[0].dump() << answers[1].dump() << answers[2].dump();
    EXPECT_EQ(answers[0]["round"], round);
    EXPECT_EQ(answers[0]["sites"], 3);
    EXPECT_NE(answers[0]["digest"], previous);
    previous = answers[0]["digest"];
  }
}

TEST_F(FaultTest, TwoRanksASiteActAsOne) {
  support::FleetOptions options;
  options.sites = 2;
  options.ranks = 2;
  options.outer = "{rule: nesterov, learning_rate: 0.7, momentum: 0.9}";
  ASSERT_NO_FATAL_FAILURE(start(options, 1'000'000));
  for (int round = 1; round <= 3; ++round) {
    const auto answers = step({0, 1});
    EXPECT_TRUE(all_committed_alike(answers)) << answers[0].dump() << answers[1].dump();
  }
}

// The gateway's heartbeats begin with the connection, before its welcome.
TEST_F(FaultTest, AgentsOnOtherNodesComeByTls) {
  support::FleetOptions options;
  options.sites = 2;
  options.ranks = 2;
  options.has_tls_agents = true;
  ASSERT_NO_FATAL_FAILURE(start(options));
  EXPECT_TRUE(step_until_together({0, 1}, 3));
}

TEST_F(FaultTest, GatewayKilledInMidRoundIsDoneWithoutAndCatchesUp) {
  ASSERT_NO_FATAL_FAILURE(start(wan_of(3)));
  ASSERT_TRUE(step_until_together({0, 1, 2}, 3));
  for (const std::uint16_t site : kSites) tell(site, "step");
  wait_phase(0, "open");
  fleet_->kill_site(2);
  hear_two_commit_without_the_third();
  // Alone, but training: none of these steps hangs.
  const auto pair = step({0, 1, 2});
  EXPECT_EQ(pair[0]["outcome"], SLUICE_STEP_COMMITTED);
  EXPECT_EQ(pair[2]["outcome"], SLUICE_STEP_SOLO);
  ASSERT_TRUE(fleet_->start_site(2));
  wait_together();
  std::vector<nlohmann::json> last;
  EXPECT_TRUE(step_until_together({0, 1, 2}, 12, &last)) << last[0].dump() << last[1].dump() << last[2].dump();
}

TEST_F(FaultTest, StoreKilledInMidRoundLetsTheOthersTrainOnAndAllGoOnTogether) {
  ASSERT_NO_FATAL_FAILURE(start(wan_of(3)));
  ASSERT_TRUE(step_until_together({0, 1, 2}, 3));
  for (const std::uint16_t site : kSites) tell(site, "step");
  wait_phase(1, "open");
  fleet_->kill_site(0);
  for (const std::uint16_t site : kSites) EXPECT_NE(hear(site)["outcome"], SLUICE_STEP_COMMITTED);
  const auto alone = step({1, 2});
  EXPECT_EQ(alone[0]["outcome"], SLUICE_STEP_SOLO) << alone[0].dump();
  ASSERT_NO_FATAL_FAILURE(wait_phase(1, "solo"));
  // Announced: the page of a gateway that lives says why nothing is committed.
  const auto status = fleet_->status(1);
  ASSERT_TRUE(status);
  ASSERT_FALSE((*status)["announcements"].empty()) << status->dump();
  ASSERT_TRUE(fleet_->start_site(0));
  wait_together();
  std::vector<nlohmann::json> last;
  EXPECT_TRUE(step_until_together({0, 1, 2}, 12, &last)) << last[0].dump() << last[1].dump() << last[2].dump();
}

TEST_F(FaultTest, TrainingProcessKilledIsReplacedAndTakesTheState) {
  support::FleetOptions options;
  options.round = "{deadline: 4s, open_grace: 4s, commit_deadline: 4s}";
  ASSERT_NO_FATAL_FAILURE(start(options));
  ASSERT_TRUE(step_until_together({0, 1, 2}, 3));
  kill_agent(2);
  const auto pair = step({0, 1});
  EXPECT_TRUE(all_committed_alike(pair)) << pair[0].dump() << pair[1].dump();
  EXPECT_EQ(pair[0]["sites"], 2);
  launch_agent(2);
  // It starts with the state of the run, not with its own.
  EXPECT_EQ(hear(2)["digest"], pair[0]["digest"]);
  std::vector<nlohmann::json> last;
  EXPECT_TRUE(step_until_together({0, 1, 2}, 6, &last)) << last[0].dump() << last[1].dump() << last[2].dump();
}

// A restarted process may come before the end of the old one's connection is seen: what the old one had ready went with it.
TEST_F(FaultTest, ANewerProcessOfARankIsWaitedForAlthoughTheOlderWasReady) {
  support::FleetOptions options;
  options.sites = 2;
  options.round = "{deadline: 5s, open_grace: 5s, commit_deadline: 5s}";
  ASSERT_NO_FATAL_FAILURE(start(options));
  const auto step_and_see_ready = [&](std::uint16_t site) {
    const auto tokens_of = [](const nlohmann::json& status) { return status["agents"][0]["tokens"].get<std::uint64_t>(); };
    const std::uint64_t before = tokens_of(*fleet_->status(site));
    tell(site, "step");
    const Status ready = fleet_->wait_status(site, "its process to be ready", kAnswerTimeout,
                                             [&](const nlohmann::json& status) { return tokens_of(status) > before; });
    ASSERT_TRUE(ready) << ready.error().to_string();
  };
  ASSERT_NO_FATAL_FAILURE(step_and_see_ready(1));
  auto older = std::move(agents_[1]);
  launch_agent(1);
  hear(1);
  ASSERT_NO_FATAL_FAILURE(step_and_see_ready(0));
  EXPECT_NE((*fleet_->status(0))["phase"], "open") << "opened for a process that is gone";
  tell(1, "step");
  const std::vector<nlohmann::json> answers = {hear(0), hear(1)};
  EXPECT_TRUE(all_committed_alike(answers)) << answers[0].dump() << answers[1].dump();
  EXPECT_NE(answer(*older)["outcome"], SLUICE_STEP_COMMITTED);
}

TEST_F(FaultTest, NonFiniteDeltaIsWithheldAndTheOthersCommit) {
  support::FleetOptions options;
  options.round = "{deadline: 3s, open_grace: 2s, commit_deadline: 3s}";
  options.heartbeat = "{interval: 300ms, misses: 4}";
  ASSERT_NO_FATAL_FAILURE(start(options));
  ASSERT_TRUE(step_until_together({0, 1, 2}, 3));
  tell(0, "step");
  tell(1, "step");
  tell(2, "poison");
  const auto first = hear(0);
  EXPECT_EQ(first["outcome"], SLUICE_STEP_COMMITTED) << first.dump();
  EXPECT_EQ(first["sites"], 2);
  EXPECT_EQ(hear(1)["digest"], first["digest"]);
  const auto poisoned = hear(2);
  EXPECT_NE(poisoned["outcome"], SLUICE_STEP_COMMITTED);
  EXPECT_NE(poisoned["error"].get<std::string>().find("scripted"), std::string::npos) << poisoned.dump();
}

TEST_F(FaultTest, AnotherModelIsRefusedByNameAndTheOthersGoOn) {
  support::FleetOptions options;
  options.round = "{deadline: 3s, open_grace: 2s, commit_deadline: 3s}";
  ASSERT_NO_FATAL_FAILURE(start(options));
  ASSERT_TRUE(step_until_together({0, 1, 2}, 3));
  kill_agent(2);
  launch_agent(2, 0, values_ - 1);
  hear(2);
  tell(2, "step");
  const auto other = hear(2);
  EXPECT_NE(other["outcome"], SLUICE_STEP_COMMITTED) << other.dump();
  EXPECT_NE(other["error"].get<std::string>().find("kManifestMismatch"), std::string::npos) << other.dump();
  EXPECT_TRUE(all_committed_alike(step({0, 1})));
}

TEST_F(FaultTest, AllGatewaysRestartedGoOnFromTheJournal) {
  support::FleetOptions options;
  options.round = "{deadline: 5s, open_grace: 5s, commit_deadline: 5s}";
  ASSERT_NO_FATAL_FAILURE(start(options));
  ASSERT_TRUE(step_until_together({0, 1, 2}, 3));
  const auto before = step({0, 1, 2});
  ASSERT_TRUE(all_committed_alike(before));
  for (const std::uint16_t site : kSites) fleet_->kill_site(site);
  for (const std::uint16_t site : kSites) ASSERT_TRUE(fleet_->start_site(site));
  wait_together();
  std::vector<nlohmann::json> last;
  ASSERT_TRUE(step_until_together({0, 1, 2}, 12, &last)) << last[0].dump() << last[1].dump() << last[2].dump();
  EXPECT_GT(last[0]["round"].get<int>(), before[0]["round"].get<int>());
}

}  // namespace
}  // namespace sluice::e2e
