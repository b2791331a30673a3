#include "tests/bench/exchange_agent.h"

#include <cmath>
#include <cstdio>
#include <iostream>
#include <random>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "site-agent/sluice_agent.h"

namespace sluice::bench {
namespace {

// Deltas are slices of one table of Gaussian values, starting at another place for each site and round: as good as fresh noise for the
// codec (which looks at one chunk at a time) and quick to make for hundreds of MiB.
constexpr std::size_t kNoiseValues = (1U << 21U) + 7;
constexpr float kDeltaRms = 1e-3F;

std::vector<float> make_noise() {
  std::mt19937 random(20240607);
  std::normal_distribution<float> normal(0.0F, kDeltaRms);
  std::vector<float> noise(kNoiseValues);
  for (float& value : noise) value = normal(random);
  return noise;
}

std::size_t noise_start(std::uint32_t site, std::uint64_t round) { return (site * 699'053U + round * 312'007U) % kNoiseValues; }

double seconds_of(TimePoint time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

// Error of (before - after) against the mean of the sites' deltas, over the rms of that mean.
double relative_error(const std::vector<float>& noise, const std::vector<float>& before, const std::vector<float>& after,
                      std::uint32_t sites, std::uint64_t round) {
  double squared_error = 0.0;
  double squared_mean = 0.0;
  for (std::size_t index = 0; index < before.size(); ++index) {
    double mean = 0.0;
    for (std::uint32_t site = 0; site < sites; ++site)
      mean += static_cast<double>(noise[(noise_start(site, round) + index) % kNoiseValues]);
    mean /= sites;
    const double applied = static_cast<double>(before[index]) - static_cast<double>(after[index]);
    squared_error += (applied - mean) * (applied - mean);
    squared_mean += mean * mean;
  }
  return std::sqrt(squared_error / squared_mean);
}

}  // namespace

int run_exchange_agent(const ExchangeAgentOptions& options) {
  const std::vector<float> noise = make_noise();
  std::vector<float> parameters(options.values, 0.0F);
  sluice_agent_options agent_options = SLUICE_AGENT_OPTIONS_INIT;
  agent_options.gateway = options.gateway.c_str();
  sluice_agent* agent = sluice_agent_create(&agent_options);
  if (agent == nullptr) {
    std::fprintf(stderr, "%s\n", sluice_agent_last_error(nullptr));
    return 1;
  }
  const std::uint64_t shape[1] = {options.values};
  if (sluice_agent_add_tensor(agent, "synthetic", SLUICE_FLOAT32, shape, 1, parameters.data()) != SLUICE_OK ||
      sluice_agent_start(agent) != SLUICE_OK) {
    std::fprintf(stderr, "%s\n", sluice_agent_last_error(agent));
    sluice_agent_destroy(agent);
    return 1;
  }
  std::printf("{\"event\":\"ready\"}\n");
  std::fflush(stdout);
  std::string command;
  std::vector<float> before;
  sluice_agent_statistics stats{};
  for (std::uint64_t round = 1; std::getline(std::cin, command); ++round) {
    // "prepare" and "go" come apart, so that all sites have their delta before the clock starts.
    before = parameters;
    const std::size_t start = noise_start(options.site, round);
    for (std::size_t index = 0; index < parameters.size(); ++index) parameters[index] -= noise[(start + index) % kNoiseValues];
    std::printf("{\"event\":\"prepared\"}\n");
    std::fflush(stdout);
    if (!std::getline(std::cin, command)) break;
    sluice_agent_step_result result{};
    result.struct_bytes = sizeof result;
    const TimePoint began = Clock::now();
    const int code = sluice_agent_step(agent, 1, 0.0, &result);
    const TimePoint ended = Clock::now();
    sluice_agent_statistics after{};
    after.struct_bytes = sizeof after;
    sluice_agent_stats(agent, &after);
    // Only the first round has no residual from an earlier one in it.
    const bool is_measured = round == 1 && options.site == 0 && result.outcome == SLUICE_STEP_COMMITTED;
    const nlohmann::json line = {{"event", "round"},
                                 {"code", code},
                                 {"outcome", result.outcome},
                                 {"began", seconds_of(began)},
                                 {"ended", seconds_of(ended)},
                                 {"encode_us", after.encode_us - stats.encode_us},
                                 {"decode_us", after.decode_us - stats.decode_us},
                                 {"wait_us", after.wait_us - stats.wait_us},
                                 {"error", is_measured ? relative_error(noise, before, parameters, options.sites, round) : 0.0}};
    stats = after;
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
  }
  sluice_agent_destroy(agent);
  return 0;
}

}  // namespace sluice::bench
