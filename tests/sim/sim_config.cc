#include "tests/sim/sim_config.h"

#include <algorithm>

#include "sync/internal/round_closing.h"
#include "tests/sim/sim_random.h"

namespace sluice::sim {

using std::chrono::milliseconds;

SimConfig draw_config(std::uint64_t seed) {
  Random random(seed ^ 0xC0F1A5EDULL);
  SimConfig config;
  config.seed = seed;
  config.sites = random.between(2, random.chance(0.3) ? 8 : 4);
  config.quorum = static_cast<std::uint16_t>(config.sites / 2 + 1);
  config.chunks = static_cast<std::uint32_t>(random.between(1, 6));
  config.has_outside_store = random.chance(0.25);
  config.is_first_state_shared = !random.chance(0.1);
  config.open_grace = random.between(milliseconds(50), milliseconds(400));
  config.deadline = random.between(milliseconds(250), milliseconds(800));
  config.commit_deadline = random.between(milliseconds(150), milliseconds(400));
  config.compute_min = milliseconds(20);
  config.compute_max = random.between(milliseconds(30), milliseconds(300));
  config.network.delay_max = random.between(milliseconds(2), milliseconds(30));
  config.network.bulk_delay_max =
      random.chance(0.3) ? random.between(config.network.delay_max, milliseconds(300)) : config.network.delay_max;
  config.encode_max = random.between(milliseconds(1), random.chance(0.3) ? milliseconds(120) : milliseconds(3));
  config.rounds_per_checkpoint = random.between(1, 3);
  Random plans(seed ^ 0xD14EC7ULL);
  config.direct_share = plans.chance(0.25) ? 0.0 : plans.chance(0.33) ? 1.0 : 0.5;
  // Without faults every round is complete before its deadline.
  config.deadline = std::max(config.deadline, static_cast<int>(config.chunks) * config.encode_max + config.network.bulk_delay_max * 3 / 2 +
                                                  2 * config.network.delay_max);
  config.is_one_death = config.sites >= 3 && random.chance(0.15);
  if (config.is_one_death) {  // quick enough that a healthy round never reaches its deadline
    config.network.bulk_delay_max = config.network.delay_max;
    config.encode_max = milliseconds(2);
    config.is_first_state_shared = true;
    return config;
  }
  const auto rate = [&](double highest) {
    return random.chance(0.45) ? highest * static_cast<double>(random.between(1, 100)) / 100.0 : 0.0;
  };
  config.faults.gateway_crash = rate(1.0);
  config.faults.agents_crash = rate(0.8);
  config.faults.site_crash = rate(0.5);
  config.faults.cut = rate(3.0);
  config.faults.partition = rate(1.5);
  config.faults.slow = rate(0.7);
  config.faults.corrupt = rate(0.7);
  config.faults.lose_unsynced = random.chance(0.5) ? 0.5 : 0.0;
  config.faulty_time = random.between(milliseconds(2000), milliseconds(6000));
  return config;
}

Duration round_time(const SimConfig& config) {
  return config.compute_max + config.open_grace + config.deadline + static_cast<int>(sync::kAttemptsMax) * config.commit_deadline +
         16 * config.network.delay_max + static_cast<int>(config.chunks) * config.encode_max + 4 * config.network.bulk_delay_max;
}

}  // namespace sluice::sim
