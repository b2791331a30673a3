#pragma once

// What the end-to-end tests share: a fleet of real gateways with one scripted agent process a site (or a rank). Not thread-safe.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "site-agent/sluice_agent.h"
#include "tests/support/gateway_fleet.h"

namespace sluice::e2e {

inline constexpr std::chrono::seconds kAnswerTimeout{60};

class FleetTest : public ::testing::Test {
 protected:
  void start(support::FleetOptions options, std::uint64_t values = 600'000) {
    values_ = values;
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    options.program = std::string(SLUICE_BINARY_DIR) + "/gateway/sluice";
    options.directory = std::filesystem::temp_directory_path() / fmt::format("sluice-e2e-{}-{}", info->name(), ::getpid());
    directory_ = options.directory;
    ranks_ = options.ranks;
    auto fleet = support::GatewayFleet::start(options);
    ASSERT_TRUE(fleet) << fleet.error().to_string();
    fleet_ = std::move(*fleet);
    agents_.resize(std::size_t{options.sites} * options.ranks);
    for (std::uint16_t site = 0; site < options.sites; ++site) {
      for (std::uint32_t rank = 0; rank < options.ranks; ++rank) launch_agent(site, rank);
    }
    for (auto& agent : agents_) ASSERT_TRUE(answer(*agent).contains("digest"));
    sites_ = options.sites;
    // A site proposes as soon as it is ready: without this the first round may be opened before every link is up.
    wait_together();
  }

  // Until every gateway sees all the others, its own ranks, and holds the last committed round.
  void wait_together() {
    for (std::uint16_t site = 0; site < sites_; ++site) {
      const Status up = fleet_->wait_status(site, "all together", kAnswerTimeout, [&](const nlohmann::json& status) {
        const auto& links = status["links"];
        const bool has_links = std::all_of(links.begin(), links.end(), [](const nlohmann::json& link) { return link["up"].get<bool>(); });
        return has_links && status["agents"].size() == ranks_ && status["sites"][site]["state"] == "self";
      });
      ASSERT_TRUE(up) << up.error().to_string();
    }
  }

  void wait_phase(std::uint16_t site, const std::string& phase) {
    const Status seen =
        fleet_->wait_status(site, "phase " + phase, kAnswerTimeout, [&](const nlohmann::json& status) { return status["phase"] == phase; });
    ASSERT_TRUE(seen) << seen.error().to_string();
  }

  void TearDown() override {
    agents_.clear();
    fleet_.reset();
    if (!HasFailure()) std::filesystem::remove_all(directory_);
    if (HasFailure()) std::fprintf(stderr, "logs are kept in %s\n", directory_.c_str());
  }

  // `values`: of another model than the fleet's, when not 0.
  void launch_agent(std::uint16_t site, std::uint32_t rank = 0, std::uint64_t values = 0) {
    support::ChildOptions child;
    child.arguments = {std::string(SLUICE_BINARY_DIR) + "/tests/e2e/scripted_agent",
                       fleet_->agent_address(site),
                       std::to_string(rank),
                       std::to_string(ranks_),
                       std::to_string(values > 0 ? values : values_),
                       std::to_string(1000 + site * 10 + rank)};
    const std::string certs = (directory_ / "certs").string();
    const std::string pair = fmt::format("{}/agent-{}", certs, support::GatewayFleet::site_name(site));
    child.environment = {{"SLUICE_AUTHORITY", certs + "/ca.pem"}, {"SLUICE_CERTIFICATE", pair + ".pem"}, {"SLUICE_KEY", pair + ".key"}};
    child.stderr_file = (directory_ / fmt::format("agent-{}-{}.log", site, rank)).string();
    auto started = support::ChildProcess::start(child);
    ASSERT_TRUE(started) << started.error().to_string();
    agents_[site * ranks_ + rank].emplace(std::move(*started));
  }

  void kill_agent(std::uint16_t site, std::uint32_t rank = 0) {
    agents_[site * ranks_ + rank]->signal(SIGKILL);
    agents_[site * ranks_ + rank].reset();
  }

  nlohmann::json answer(support::ChildProcess& agent) {
    const auto line = agent.read_line(kAnswerTimeout);
    EXPECT_TRUE(line) << line.error().to_string();
    return line ? nlohmann::json::parse(*line, nullptr, false) : nlohmann::json::object();
  }

  void tell(std::uint16_t site, const std::string& command) {
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) ASSERT_TRUE(agents_[site * ranks_ + rank]->write(command + "\n"));
  }
  nlohmann::json hear(std::uint16_t site, std::uint32_t rank = 0) { return answer(*agents_[site * ranks_ + rank]); }

  // One step of all ranks of a site; a step that only brought the site up to date is followed by another, which contributes.
  nlohmann::json step_site(std::uint16_t site) {
    nlohmann::json first;
    for (int attempt = 0; attempt < 5; ++attempt) {
      tell(site, "step");
      for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
        auto each = hear(site, rank);
        if (rank == 0) first = std::move(each);
      }
      if (first.value("outcome", -1) != SLUICE_STEP_CAUGHT_UP) break;
    }
    return first;
  }

  // The same at each of `sites`, all at the same time; the answers of rank 0, in that order.
  std::vector<nlohmann::json> step(const std::vector<std::uint16_t>& sites) {
    std::vector<std::future<nlohmann::json>> running;
    for (const std::uint16_t site : sites) running.push_back(std::async(std::launch::async, [this, site] { return step_site(site); }));
    std::vector<nlohmann::json> answers;
    for (auto& each : running) answers.push_back(each.get());
    return answers;
  }

  static bool all_committed_alike(const std::vector<nlohmann::json>& answers) {
    for (const auto& each : answers) {
      if (each.value("outcome", -1) != SLUICE_STEP_COMMITTED || each["digest"] != answers[0]["digest"] ||
          each["round"] != answers[0]["round"]) {
        return false;
      }
    }
    return true;
  }

  // Steps at all sites until one round is committed by all of them with the same parameters; false after `tries`.
  bool step_until_together(const std::vector<std::uint16_t>& sites, int tries, std::vector<nlohmann::json>* last = nullptr) {
    for (int attempt = 0; attempt < tries; ++attempt) {
      const auto answers = step(sites);
      if (last != nullptr) *last = answers;
      const bool has_all =
          std::all_of(answers.begin(), answers.end(), [&](const nlohmann::json& each) { return each.value("sites", 0U) == sites.size(); });
      if (has_all && all_committed_alike(answers)) return true;
    }
    return false;
  }

  // After a step was told to sites 0, 1 and 2: the first two commit alike, the third does not.
  void hear_two_commit_without_the_third() {
    const auto first = hear(0);
    const auto second = hear(1);
    EXPECT_EQ(first["outcome"], SLUICE_STEP_COMMITTED) << first.dump();
    EXPECT_EQ(second["outcome"], SLUICE_STEP_COMMITTED) << second.dump();
    EXPECT_EQ(first["digest"], second["digest"]);
    EXPECT_NE(hear(2)["outcome"], SLUICE_STEP_COMMITTED);
  }

  std::unique_ptr<support::GatewayFleet> fleet_;
  std::vector<std::optional<support::ChildProcess>> agents_;
  std::filesystem::path directory_;
  std::uint64_t values_ = 0;
  std::uint32_t ranks_ = 1;
  std::uint16_t sites_ = 0;
};

}  // namespace sluice::e2e
