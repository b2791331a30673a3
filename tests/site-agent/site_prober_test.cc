// Goal: the probe measures every pair of the ranks, keeps to its window, and a rank that dies or stays away ends it at the others with what
// was measured until then. Method: the ranks of a site as threads of one process over Gloo.

#include "site-agent/internal/site_prober.h"

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <thread>

#include "sync/gloo/gloo_collectives.h"
#include "sync/gloo/memory_store.h"

namespace sluice::site_agent {
namespace {

using namespace std::chrono_literals;
using Body = std::function<SiteProbe(sync::Collectives&)>;

std::vector<SiteProbe> run_ranks(std::uint32_t ranks, const Body& body) {
  sync::MemoryStore store;
  std::vector<SiteProbe> results(ranks);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      sync::GlooOptions options;
      options.rank = RankId(rank);
      options.ranks = ranks;
      options.group = "probe";
      options.timeout = 20s;
      auto group = sync::form_gloo_group(store, options);
      ASSERT_TRUE(group) << group.error().to_string();
      results[rank] = body(**group);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

std::size_t count_pairs(const std::vector<SiteProbe>& results) {
  std::size_t pairs = 0;
  for (const SiteProbe& result : results) pairs += result.report.pairs.size();
  return pairs;
}

TEST(SiteProber, MeasuresEveryPairOfAMachineWithinItsWindow) {
  for (const std::uint32_t ranks : {2U, 4U}) {
    const auto results = run_ranks(ranks, [](sync::Collectives& group) { return probe_site(group, "here", 5s); });
    EXPECT_EQ(count_pairs(results), ranks * (ranks - 1) / 2);
    for (const SiteProbe& result : results) {
      EXPECT_FALSE(result.failure);
      EXPECT_FALSE(result.is_cut);
      EXPECT_LT(result.elapsed, 5s);
      for (const topology::ProbedPair& pair : result.report.pairs) {
        EXPECT_GT(pair.forward_gb_per_second.value_or(0.0), 0.001);
        EXPECT_GT(pair.backward_gb_per_second.value_or(0.0), 0.001);
        EXPECT_GT(pair.latency_us.value_or(0.0), 0.0);
      }
    }
  }
}

TEST(SiteProber, OnePairStandsForTwoMachines) {
  const auto results =
      run_ranks(4, [](sync::Collectives& group) { return probe_site(group, group.rank().value < 2 ? "east" : "west", 5s); });
  EXPECT_EQ(results[0].pairs_planned, 3U);  // within each, and one between them
  EXPECT_EQ(count_pairs(results), 3U);
}

TEST(SiteProber, AWindowThatIsOverCutsTheRestOff) {
  const auto results = run_ranks(4, [](sync::Collectives& group) { return probe_site(group, "here", 15ms); });
  EXPECT_LT(count_pairs(results), 6U);
  for (const SiteProbe& result : results) EXPECT_TRUE(result.is_cut || result.failure);
}

TEST(SiteProber, DeathOfARankEndsItForTheOthersAtOnce) {
  const auto results = run_ranks(3, [](sync::Collectives& group) {
    if (group.rank().value != 2) return probe_site(group, "here", 5s);
    // It takes part until the first pair is under way.
    std::vector<std::int64_t> names(3, 0);
    EXPECT_TRUE(group.all_reduce(std::span(names), sync::ReduceOp::kSum, 5s));
    return SiteProbe{};
  });
  for (const std::size_t rank : {0U, 1U}) {
    ASSERT_TRUE(results[rank].failure);
    EXPECT_EQ(results[rank].failure->code, ErrorCode::kGroupBroken);
    EXPECT_LT(results[rank].elapsed, 4s);
  }
}

TEST(SiteProber, ARankThatStaysAwayHoldsTheOthersUpForTwiceTheWindowAtMost) {
  std::promise<void> others_are_done;
  std::shared_future<void> wait(others_are_done.get_future());
  const auto results = run_ranks(2, [&](sync::Collectives& group) {
    if (group.rank().value == 1) {  // alive and connected, but in no call
      wait.wait();
      return SiteProbe{};
    }
    SiteProbe result = probe_site(group, "here", 200ms);
    EXPECT_TRUE(group.is_broken());
    others_are_done.set_value();
    return result;
  });
  ASSERT_TRUE(results[0].failure);
  EXPECT_EQ(results[0].failure->code, ErrorCode::kGroupBroken);
  EXPECT_LT(results[0].elapsed, 2s);
}

}  // namespace
}  // namespace sluice::site_agent
