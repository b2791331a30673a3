// Goal: no fault schedule of the round protocol breaks an invariant, and a seed is a run. Method: seeds 1 .. SLUICE_SIM_SEEDS of N real
// machines in virtual time with crashes, partitions, cuts, slow sites and corrupted chunks, checked from above; then some seeds twice, by
// trace hash.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "tests/sim/sim_world.h"

namespace sluice::sim {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSeedsDefault = 150;
#else
constexpr std::uint64_t kSeedsDefault = 2000;
#endif
constexpr int kShards = 4;  // so that ctest can run them side by side

std::uint64_t seed_count() {
  const char* wanted = std::getenv("SLUICE_SIM_SEEDS");
  return wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : kSeedsDefault;
}

class Simulation : public testing::TestWithParam<int> {};

TEST_P(Simulation, NoSeedBreaksAnInvariant) {
  const std::uint64_t per_shard = seed_count() / kShards;
  const std::uint64_t first = 1 + static_cast<std::uint64_t>(GetParam()) * per_shard;
  std::uint64_t commits = 0;
  std::uint64_t partial = 0;
  std::uint64_t aborts = 0;
  std::uint64_t direct = 0;
  for (std::uint64_t seed = first; seed < first + per_shard; ++seed) {
    const RunResult result = run_seed(seed);
    commits += result.commits;
    partial += result.partial_commits;
    aborts += result.aborts;
    direct += result.direct_commits;
    ASSERT_FALSE(result.violation) << "seed " << seed << ": " << *result.violation << "\nreplay: sluice_sim --seed " << seed << " --trace";
  }
  // A simulation in which nothing happens would pass too.
  EXPECT_GT(commits, per_shard * 5);
  EXPECT_GT(partial, per_shard / 10);
  EXPECT_GT(aborts, per_shard / 10);
  EXPECT_GT(direct, per_shard * 2);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Simulation, testing::Range(0, kShards));

TEST(Simulation, TheSameSeedIsTheSameRun) {
  for (std::uint64_t seed = 1; seed <= 25; ++seed) {
    const RunResult first = run_seed(seed);
    const RunResult second = run_seed(seed);
    ASSERT_EQ(first.trace_hash, second.trace_hash) << "seed " << seed;
    ASSERT_EQ(first.machine_events, second.machine_events) << "seed " << seed;
  }
  EXPECT_NE(run_seed(1).trace_hash, run_seed(2).trace_hash);
}

}  // namespace
}  // namespace sluice::sim
