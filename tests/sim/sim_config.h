#pragma once

// One run of the simulator: sites, timing and which faults may strike, all drawn from a seed or set by a scenario.

#include <cstdint>
#include <iosfwd>

#include "sync/round_machine.h"
#include "tests/sim/sim_mutant.h"
#include "tests/sim/sim_network.h"

namespace sluice::sim {

struct FaultRates {  // expected faults per virtual second; 0 = never
  double gateway_crash = 0.0;
  double agents_crash = 0.0;
  double site_crash = 0.0;
  double cut = 0.0;
  double partition = 0.0;
  double slow = 0.0;
  double corrupt = 0.0;
  double lose_unsynced = 0.0;  // probability that a crash loses what was not synced
};

struct SimConfig {
  std::uint64_t seed = 0;
  std::size_t sites = 3;
  std::uint16_t quorum = 2;
  std::uint32_t chunks = 4;
  bool has_outside_store = false;
  double direct_share = 0.0;  // of the rounds, drawn for each: opened as direct ones; the others with owners
  bool is_first_state_shared = true;
  Duration open_grace = std::chrono::milliseconds(200);
  Duration deadline = std::chrono::milliseconds(500);
  Duration commit_deadline = std::chrono::milliseconds(250);
  Duration compute_min = std::chrono::milliseconds(40);
  Duration compute_max = std::chrono::milliseconds(120);
  Duration encode_max = std::chrono::milliseconds(3);  // for each chunk
  std::uint64_t rounds_per_checkpoint = 3;
  NetworkTimes network;
  FaultRates faults;
  Duration faulty_time = std::chrono::seconds(5);
  // Instead of random faults one site that does not hold the store dies at a random moment and stays away. The rounds must go on: no
  // abort, and a commit within a deadline.
  bool is_one_death = false;
  ShellMutant mutant = ShellMutant::kNone;
  std::ostream* trace = nullptr;
};

// Everything drawn from the seed ("swarm": each run has its own sizes, timing and mix of faults).
SimConfig draw_config(std::uint64_t seed);

// Longest that a round takes when nothing is lost any more: used for I6.
Duration round_time(const SimConfig& config);

}  // namespace sluice::sim
