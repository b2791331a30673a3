// Goal: shares follow bandwidth and are optimal, relays are taken where they pay, predictions hold against a search and a bound.
// Method: small matrices with known answers, random ones against search and bound, and the real region sets of ../shared/data when there.
#include "topology/wan_planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

namespace sluice::topology {
namespace {

WanMatrix uniform(std::size_t sites, double rate, double rtt = 0.0) {
  WanMatrix matrix(sites);
  for (std::size_t from = 0; from < sites; ++from) {
    for (std::size_t to = 0; to < sites; ++to) {
      if (from != to) matrix.set(from, to, rate, rtt);
    }
  }
  return matrix;
}

WanTraffic traffic(std::size_t sites, double contribution, double update) {
  return WanTraffic{std::vector<double>(sites, contribution), update};
}

double sharded_seconds(const WanMatrix& matrix, const WanTraffic& load, const std::vector<double>& shares) {
  WanPlan plan;
  plan.shares = shares;
  return plan_transfer_seconds(matrix, load, plan);
}

TEST(WanPlanner, EqualLinksGiveEqualShares) {
  for (const std::size_t sites : {2U, 3U, 5U, 8U, 16U}) {
    const WanPlan plan = plan_sharded(uniform(sites, 1e8), traffic(sites, 3e6, 4e6));
    for (const double share : plan.shares) EXPECT_NEAR(share, 1.0 / static_cast<double>(sites), 1e-9) << sites;
    EXPECT_NEAR(plan.transfer_seconds, 7e6 / static_cast<double>(sites) / 1e8, 1e-9);
  }
}

TEST(WanPlanner, ASlowSiteOwnsLess) {
  WanMatrix matrix = uniform(3, 2e8);
  for (const std::size_t other : {0U, 1U}) {
    matrix.set(2, other, 5e7, 0.0);
    matrix.set(other, 2, 5e7, 0.0);
  }
  const WanTraffic bits = traffic(3, 3e6, 4.2e6);
  const WanPlan plan = plan_sharded(matrix, bits);
  EXPECT_LT(plan.shares[2], 0.1);
  const std::vector<double> equal(3, 1.0 / 3.0);
  EXPECT_LT(plan.transfer_seconds, 0.9 * sharded_seconds(matrix, bits, equal));
  EXPECT_NEAR(plan.transfer_seconds, sharded_seconds(matrix, bits, plan.shares), 1e-6);
}

TEST(WanPlanner, NoSharesOfAGridSearchAreFaster) {
  std::mt19937 random(3);
  std::lognormal_distribution<double> rate(0.0, 1.0);
  std::uniform_real_distribution<double> bits(1.0, 4.0);
  for (int trial = 0; trial < 40; ++trial) {
    WanMatrix matrix(3);
    WanTraffic load{{bits(random), bits(random), bits(random)}, bits(random) + 1.0};
    for (std::size_t from = 0; from < 3; ++from) {
      for (std::size_t to = 0; to < 3; ++to) {
        if (from != to) matrix.set(from, to, rate(random), 0.0);
      }
    }
    if (trial % 3 == 0) matrix.set_send_limit(static_cast<std::size_t>(trial) % 2, 0.8);
    const WanPlan plan = plan_sharded(matrix, load);
    EXPECT_NEAR(std::accumulate(plan.shares.begin(), plan.shares.end(), 0.0), 1.0, 1e-9);
    double best = 1e18;
    constexpr int kGrid = 100;
    for (int a = 0; a <= kGrid; ++a) {
      for (int b = 0; a + b <= kGrid; ++b) {
        best = std::min(best, sharded_seconds(matrix, load, {a / 100.0, b / 100.0, (kGrid - a - b) / 100.0}));
      }
    }
    EXPECT_LE(plan.transfer_seconds, best * (1 + 1e-9)) << trial;
    EXPECT_GE(plan.transfer_seconds, best * 0.95) << trial << ": below what the finest search comes near to";
    EXPECT_NEAR(plan.transfer_seconds, sharded_seconds(matrix, load, plan.shares), plan.transfer_seconds * 1e-6);
  }
}

TEST(WanPlanner, ADetourIsTakenAroundASlowLink) {
  WanMatrix matrix = uniform(4, 1e9);
  matrix.set(0, 1, 1e7, 0.0);
  const WanTraffic bits = traffic(4, 3e6, 4e6);
  const WanPlan sharded = plan_sharded(matrix, bits);
  const WanPlan relay = plan_relay(matrix, bits);
  EXPECT_EQ(relay.kind, PlanKind::kRelay);
  EXPECT_LT(relay.transfer_seconds, 0.8 * sharded.transfer_seconds);
  for (const Detour& detour : relay.detours) EXPECT_TRUE(detour.over != detour.from && detour.over != detour.to);
  double around = 0.0;
  for (const Detour& detour : relay.detours) around += detour.from == 0 && detour.to == 1 ? detour.share : 0.0;
  EXPECT_GT(around, 0.9);
  // What the program says of its slowest link is what all links add up to, first and second halves of the detours included.
  EXPECT_NEAR(relay.transfer_seconds, plan_transfer_seconds(matrix, bits, relay), relay.transfer_seconds * 1e-6);
  EXPECT_EQ(plan_wan(matrix, bits).kind, PlanKind::kRelay);
}

TEST(WanPlanner, OfThreeSitesTheOneBetweenOwnsRatherThanRelays) {
  WanMatrix matrix = uniform(3, 1e9);
  matrix.set(0, 1, 1e7, 0.0);
  const WanPlan plan = plan_wan(matrix, traffic(3, 3e6, 4e6));
  EXPECT_EQ(plan.kind, PlanKind::kSharded);
  EXPECT_GT(plan.shares[2], 0.9);
}

TEST(WanPlanner, WithEqualLinksNoDetourPays) { EXPECT_NE(plan_wan(uniform(4, 1e8, 0.05), traffic(4, 3e6, 4e6)).kind, PlanKind::kRelay); }

TEST(WanPlanner, TwoSitesAndSparseRoundsGoDirect) {
  EXPECT_EQ(plan_wan(uniform(2, 1e8, 0.05), traffic(2, 3e6, 4e6)).kind, PlanKind::kDirect);
  // Supports hardly overlap: the update is nearly as long as the contributions together.
  EXPECT_EQ(plan_wan(uniform(3, 1e6, 0.05), traffic(3, 1e6, 2.6e6)).kind, PlanKind::kDirect);
  EXPECT_EQ(plan_wan(uniform(3, 1e6, 0.05), traffic(3, 3e6, 4.2e6)).kind, PlanKind::kSharded);
}

TEST(WanPlanner, SendLimitsCount) {
  WanMatrix matrix = uniform(3, 1e9);
  matrix.set_send_limit(0, 1e7);
  const WanPlan plan = plan_sharded(matrix, traffic(3, 3e6, 4e6));
  EXPECT_LT(plan.shares[0], 0.05) << "who may send little owns little";
}

TEST(WanPlanner, BeyondEightSitesThePlanIsBetweenItsBoundAndEqualShares) {
  std::mt19937 random(11);
  std::lognormal_distribution<double> rate(18.0, 0.7);
  WanMatrix matrix(16);
  for (std::size_t from = 0; from < 16; ++from) {
    for (std::size_t to = 0; to < 16; ++to) {
      if (from != to) matrix.set(from, to, rate(random), 0.1);
    }
  }
  const WanTraffic bits = traffic(16, 3e6, 5e6);
  const WanPlan plan = plan_relay(matrix, bits);
  ASSERT_TRUE(plan.bound_seconds);
  EXPECT_GE(plan.transfer_seconds, *plan.bound_seconds);
  EXPECT_LE(plan.transfer_seconds, sharded_seconds(matrix, bits, std::vector<double>(16, 1.0 / 16.0)));
}

TEST(WanPlanner, SlotsFollowTheSharesAndAreSpread) {
  EXPECT_EQ(spread_owners({1.0 / 3, 1.0 / 3, 1.0 / 3}, 3), (std::vector<std::size_t>{0, 1, 2}));
  const auto owners = spread_owners({0.5, 0.3, 0.2, 0.0}, 64);
  EXPECT_NEAR(static_cast<double>(std::count(owners.begin(), owners.end(), 0U)), 32.0, 1.0);
  EXPECT_NEAR(static_cast<double>(std::count(owners.begin(), owners.end(), 1U)), 19.2, 1.0);
  EXPECT_NEAR(static_cast<double>(std::count(owners.begin(), owners.end(), 2U)), 12.8, 1.0);
  EXPECT_EQ(std::count(owners.begin(), owners.end(), 3U), 0);
  for (std::size_t at = 0; at + 8 <= owners.size(); at += 8) {
    const auto begin = owners.begin() + static_cast<std::ptrdiff_t>(at);
    EXPECT_NEAR(static_cast<double>(std::count(begin, begin + 8, 0U)), 4.0, 1.0);
  }
}

TEST(WanPlanner, RealRegionSetsAreNoSlowerThanEqualShares) {
  const std::filesystem::path file = std::filesystem::path(SLUICE_SOURCE_DIR) / ".." / "shared" / "data" / "wan" / "scenarios.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not here";
  const auto scenarios = nlohmann::json::parse(std::ifstream(file));
  for (const auto& scenario : scenarios.is_array() ? scenarios : scenarios.at("scenarios")) {
    const auto& gbps = scenario.at("gbps");
    const std::size_t sites = gbps.size();
    WanMatrix matrix(sites);
    for (std::size_t from = 0; from < sites; ++from) {
      for (std::size_t to = 0; to < sites; ++to) {
        if (from != to && gbps[from][to].is_number()) matrix.set(from, to, 1e9 * gbps[from][to].get<double>(), 0.05);
      }
    }
    if (!matrix.is_complete()) continue;
    const WanTraffic bits = traffic(sites, 3e9, 4.3e9);
    const double equal = sharded_seconds(matrix, bits, std::vector<double>(sites, 1.0 / static_cast<double>(sites)));
    EXPECT_LE(plan_sharded(matrix, bits).transfer_seconds, equal * (1 + 1e-9));
    EXPECT_LE(plan_relay(matrix, bits).transfer_seconds, plan_sharded(matrix, bits).transfer_seconds * (1 + 1e-9));
  }
}

}  // namespace
}  // namespace sluice::topology
