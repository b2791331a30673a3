// Goal: the simulator is not blind. Method: bugs of the shell (sim_mutant.h) and of the machine (mutants/machine_mutants.txt: its own
// sources with one text changed) are switched on one at a time; each must be found within kSeedsMax seeds. With all of them off nothing is
// found.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

#include "tests/sim/mutants/mutant_switch.h"
#include "tests/sim/sim_world.h"

namespace sluice::sim {

int machine_mutant = 0;

namespace {

constexpr std::uint64_t kSeedsMax = 6000;

const int kMachineMutantCount = static_cast<int>(machine_mutant_names().size());

std::string machine_mutant_name(int number) { return machine_mutant_names()[static_cast<std::size_t>(number - 1)]; }

// An assertion that a bug trips finds it as well.
std::optional<std::string> find_bug(std::uint64_t seed, ShellMutant mutant) {
  try {
    return run_seed(seed, mutant).violation;
  } catch (const AssertionTripped& tripped) {
    return tripped.what();
  }
}

void expect_found(const std::string& name, ShellMutant mutant) {
  for (std::uint64_t seed = 1; seed <= kSeedsMax; ++seed) {
    if (const auto violation = find_bug(seed, mutant)) {
      fmt::print("{}: seed {}: {:.110}\n", name, seed, *violation);
      return;
    }
  }
  ADD_FAILURE() << name << " was not found in " << kSeedsMax << " seeds";
}

class ShellMutants : public testing::TestWithParam<int> {};
class MachineMutants : public testing::TestWithParam<int> {};

TEST_P(ShellMutants, AreFound) { expect_found(fmt::format("shell mutant {}", GetParam()), static_cast<ShellMutant>(GetParam())); }

TEST_P(MachineMutants, AreFound) {
  machine_mutant = GetParam();
  expect_found(machine_mutant_name(GetParam()), ShellMutant::kNone);
  machine_mutant = 0;
}

INSTANTIATE_TEST_SUITE_P(All, ShellMutants, testing::Range(1, static_cast<int>(ShellMutant::kCount)));
INSTANTIATE_TEST_SUITE_P(All, MachineMutants, testing::Range(1, kMachineMutantCount + 1),
                         [](const testing::TestParamInfo<int>& chosen) {
                           std::string name = machine_mutant_name(chosen.param);
                           for (char& letter : name) letter = letter == '-' ? '_' : letter;
                           return name;
                         });

TEST(Mutants, WithoutOneNothingIsFound) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) EXPECT_EQ(find_bug(seed, ShellMutant::kNone), std::nullopt) << "seed " << seed;
}

TEST(Mutants, AreAtLeastThirty) { EXPECT_GE(kMachineMutantCount + static_cast<int>(ShellMutant::kCount) - 1, 30); }

}  // namespace
}  // namespace sluice::sim
