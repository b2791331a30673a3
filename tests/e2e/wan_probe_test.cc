// Goal: `sluice wan probe` measures the link of a running gateway, and says why when it does not; gateways in automatic mode probe by
// themselves what their rounds leave unknown. Method: real gateways over an emulated WAN, asked by the real program.
#include <fstream>
#include <iterator>

#include "tests/e2e/e2e_fixture.h"

namespace sluice::e2e {
namespace {

constexpr double kRate = 40e6;  // bits per second

class WanProbeTest : public FleetTest {
 protected:
  void start_links(const std::string& compression, std::uint64_t values) {
    support::FleetOptions options;
    options.has_wan = true;
    options.link.delay = std::chrono::milliseconds(10);
    options.link.rate = BitsPerSecond{kRate};
    options.link.queue_bytes = 64 * 1024;
    options.streams = 1;
    options.compression = compression;
    options.wan = ", probe_window: 2 s";
    ASSERT_NO_FATAL_FAILURE(start(options, values));
  }
  struct Answer {
    int status = -1;
    std::string text;  // stdout
    std::string said;  // stderr
  };
  Answer ask(std::uint16_t site, const std::vector<std::string>& words) {
    support::ChildOptions child;
    child.arguments = {std::string(SLUICE_BINARY_DIR) + "/gateway/sluice", "wan"};
    child.arguments.insert(child.arguments.end(), words.begin(), words.end());
    child.arguments.insert(child.arguments.end(), {"--admin", fmt::format("127.0.0.1:{}", fleet_->admin_port(site)), "-o", "json"});
    child.stderr_file = (directory_ / "ask.log").string();
    std::filesystem::remove(child.stderr_file);
    auto started = support::ChildProcess::start(child);
    EXPECT_TRUE(started) << started.error().to_string();
    Answer answer;
    while (const auto line = started->read_line(kAnswerTimeout)) answer.text += *line + "\n";
    answer.status = started->wait(kAnswerTimeout).value_or(-1);
    std::ifstream said(child.stderr_file);
    answer.said.assign(std::istreambuf_iterator<char>(said), {});
    return answer;
  }
  static nlohmann::json path(const nlohmann::json& wan, std::uint16_t from, std::uint16_t to) {
    for (const auto& each : wan["paths"]) {
      if (each["from"] == support::GatewayFleet::site_name(from) && each["to"] == support::GatewayFleet::site_name(to)) return each;
    }
    return nlohmann::json::object();
  }
};

TEST_F(WanProbeTest, AnIdleLinkIsMeasuredOnRequest) {
  ASSERT_NO_FATAL_FAILURE(start_links("{mode: fixed, bits: 3, warmup_rounds: 0}", 100'000));
  const Answer before = ask(0, {"show"});
  EXPECT_EQ(before.status, 0) << before.said;
  EXPECT_TRUE(path(nlohmann::json::parse(before.text), 0, 1)["median_bits_per_second"].is_null()) << before.text;
  const Answer probed = ask(0, {"probe", support::GatewayFleet::site_name(1)});
  EXPECT_EQ(probed.status, 0) << probed.said;
  const nlohmann::json measured = path(nlohmann::json::parse(probed.text), 0, 1);
  EXPECT_EQ(measured["method"], "probe") << probed.text;
  EXPECT_NEAR(measured["median_bits_per_second"].get<double>() / kRate, 1.0, 0.3) << probed.text;
  EXPECT_TRUE(path(nlohmann::json::parse(probed.text), 1, 0)["median_bits_per_second"].is_null()) << "only one direction was filled";
  EXPECT_TRUE(all_committed_alike(step({0, 1, 2}))) << "a round follows";
}

TEST_F(WanProbeTest, WhatCannotBeProbedIsSaid) {
  ASSERT_NO_FATAL_FAILURE(start_links("{mode: fixed, bits: 3, warmup_rounds: 0}", 100'000));
  EXPECT_NE(ask(0, {"probe", "nowhere"}).status, 0);
  fleet_->kill_site(2);
  const Status seen = fleet_->wait_status(0, "the loss", kAnswerTimeout, [](const nlohmann::json& status) {
    return std::any_of(status["links"].begin(), status["links"].end(), [](const nlohmann::json& link) { return !link["up"].get<bool>(); });
  });
  ASSERT_TRUE(seen) << seen.error().to_string();
  const Answer down = ask(0, {"probe", support::GatewayFleet::site_name(2)});
  EXPECT_EQ(down.status, 1);
  EXPECT_NE(down.said.find("down"), std::string::npos) << down.said;
}

// Rounds too small to fill a link leave it unknown, and the bits where they began: a probe makes it known.
TEST_F(WanProbeTest, LinksThatRoundsLeaveUnknownAreProbedByThemselves) {
  ASSERT_NO_FATAL_FAILURE(start_links("{mode: auto, bits: 3, warmup_rounds: 0, time_budget: 1s}", 20'000));
  for (int round = 0; round < 3; ++round) ASSERT_TRUE(all_committed_alike(step({0, 1, 2})));
  for (std::uint16_t site = 0; site < 3; ++site) {
    const Status known = fleet_->wait_status(site, "a measured link", kAnswerTimeout, [](const nlohmann::json& status) {
      return std::any_of(status["links"].begin(), status["links"].end(), [](const nlohmann::json& link) {
        // The last of the probe's bytes may be counted as a transfer of their own, after it.
        return link["estimate"]["method"] == "probe" || link["estimate"]["method"] == "passive";
      });
    });
    EXPECT_TRUE(known) << known.error().to_string();
  }
}

}  // namespace
}  // namespace sluice::e2e
