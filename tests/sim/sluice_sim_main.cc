// sluice_sim: runs seeds of the round simulator. Prints the first line of each violation with the seed that replays it.
//
//   sluice_sim --seeds A..B           many seeds; exit code 1 when one breaks an invariant
//   sluice_sim --seed N [--trace]     one seed; with --trace everything that happens

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

#include "tests/sim/sim_world.h"

namespace {

using sluice::sim::RunResult;

int usage() {
  std::cerr << "usage: sluice_sim --seeds A..B | --seed N [--trace] [--mutant K]\n";
  return 2;
}

int run_one(std::uint64_t seed, bool is_traced, sluice::sim::ShellMutant mutant) {
  const RunResult result = sluice::sim::run_seed(seed, mutant, is_traced ? &std::cout : nullptr);
  fmt::print("seed {}: {} commits ({} without some member, {} direct), {} aborts, {} events, trace {:016x}: {}\n", seed, result.commits,
             result.partial_commits, result.direct_commits, result.aborts, result.machine_events, result.trace_hash,
             result.violation.value_or("no violation"));
  return result.violation ? 1 : 0;
}

int run_many(std::uint64_t first, std::uint64_t last, sluice::sim::ShellMutant mutant) {
  const auto start = std::chrono::steady_clock::now();
  std::uint64_t failures = 0;
  RunResult total;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    const RunResult result = sluice::sim::run_seed(seed, mutant);
    total.machine_events += result.machine_events;
    total.commits += result.commits;
    total.aborts += result.aborts;
    total.partial_commits += result.partial_commits;
    total.direct_commits += result.direct_commits;
    if (!result.violation) continue;
    ++failures;
    fmt::print("seed {}: {}\n", seed, *result.violation);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto seeds = static_cast<double>(last - first + 1);
  fmt::print(
      "{} seeds, {} violations, {} commits ({} without some member, {} direct), {} aborts; {:.0f} seeds/s, {:.0f} machine events/s\n",
      seeds, failures, total.commits, total.partial_commits, total.direct_commits, total.aborts, seeds / seconds,
      static_cast<double>(total.machine_events) / seconds);
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::string seed;
  std::string seeds;
  bool is_traced = false;
  auto mutant = sluice::sim::ShellMutant::kNone;
  for (int index = 1; index < argc; ++index) {
    const std::string_view argument = argv[index];
    const char* value = index + 1 < argc ? argv[index + 1] : nullptr;
    if (argument == "--trace") {
      is_traced = true;
    } else if (value == nullptr) {
      return usage();
    } else if (argument == "--seed") {
      seed = argv[++index];
    } else if (argument == "--seeds") {
      seeds = argv[++index];
    } else if (argument == "--mutant") {
      mutant = static_cast<sluice::sim::ShellMutant>(std::atoi(argv[++index]));
    } else {
      return usage();
    }
  }
  if (!seed.empty()) return run_one(std::strtoull(seed.c_str(), nullptr, 10), is_traced, mutant);
  const std::size_t dots = seeds.find("..");
  if (dots == std::string::npos) return usage();
  return run_many(std::strtoull(seeds.c_str(), nullptr, 10), std::strtoull(seeds.c_str() + dots + 2, nullptr, 10), mutant);
}
