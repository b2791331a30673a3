// scripted_agent: a training process that does what the test says, line by line on stdin:
//     step       one inner step: the parameters change by a pseudo-random delta of this site and step, then sluice_agent_step()
//     poison     the same with a NaN among the parameters
//     stats      the agent's counters
// Each command is answered with one JSON line. With inner_steps 1 every step is a boundary. "digest" is a hash of all parameters: equal at
// all sites that hold the same round.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "site-agent/sluice_agent.h"

namespace {

std::string digest_of(const std::vector<float>& parameters) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(parameters.data());
  const sluice::Digest digest = sluice::xxh3_128(sluice::ByteSpan(bytes, parameters.size() * sizeof(float)));
  return fmt::format("{:016x}{:016x}", digest.high, digest.low);
}

void answer(const nlohmann::json& line) {
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

nlohmann::json take_step(sluice_agent* agent, std::vector<float>& parameters, std::mt19937& random, float poison) {
  std::normal_distribution<float> normal(0.0F, 1e-3F);
  for (float& value : parameters) value -= normal(random);
  if (poison != 0.0F) parameters[parameters.size() / 2] = poison;
  sluice_agent_step_result result{};
  result.struct_bytes = sizeof result;
  const int code = sluice_agent_step(agent, 100, 1.0, &result);
  return {{"code", code},
          {"outcome", result.outcome},
          {"round", result.round},
          {"sites", result.sites_counted},
          {"digest", digest_of(parameters)},
          {"error", sluice_agent_last_error(agent)}};
}

nlohmann::json read_stats(sluice_agent* agent) {
  sluice_agent_statistics stats{};
  stats.struct_bytes = sizeof stats;
  sluice_agent_stats(agent, &stats);
  return {{"connected", stats.is_connected},
          {"solo", stats.is_solo},
          {"round", stats.round},
          {"committed", stats.rounds_committed},
          {"left_out", stats.rounds_left_out},
          {"skipped", stats.rounds_skipped},
          {"catch_ups", stats.catch_ups},
          {"solo_boundaries", stats.solo_boundaries},
          {"withheld", stats.deltas_withheld}};
}

}  // namespace

// scripted_agent ADDRESS RANK RANKS VALUES SEED
int main(int argc, char** argv) {
  if (argc != 6) return 2;
  std::vector<float> parameters(std::strtoull(argv[4], nullptr, 10), 0.5F);
  std::mt19937 random(static_cast<unsigned>(std::strtoul(argv[5], nullptr, 10)));
  sluice_agent_options options = SLUICE_AGENT_OPTIONS_INIT;
  options.gateway = argv[1];
  options.rank = static_cast<std::uint32_t>(std::strtoul(argv[2], nullptr, 10));
  options.ranks = static_cast<std::uint32_t>(std::strtoul(argv[3], nullptr, 10));
  options.certificate_file = std::getenv("SLUICE_CERTIFICATE");
  options.key_file = std::getenv("SLUICE_KEY");
  options.authority_file = std::getenv("SLUICE_AUTHORITY");
  sluice_agent* agent = sluice_agent_create(&options);
  const std::uint64_t shape[1] = {parameters.size()};
  if (agent == nullptr || sluice_agent_add_tensor(agent, "scripted", SLUICE_FLOAT32, shape, 1, parameters.data()) != SLUICE_OK ||
      sluice_agent_start(agent) != SLUICE_OK) {
    std::fprintf(stderr, "%s\n", sluice_agent_last_error(agent));
    return 1;
  }
  answer({{"event", "ready"}, {"digest", digest_of(parameters)}});
  std::string command;
  while (std::getline(std::cin, command)) {
    if (command == "step") {
      answer(take_step(agent, parameters, random, 0.0F));
    } else if (command == "poison") {
      answer(take_step(agent, parameters, random, std::numeric_limits<float>::quiet_NaN()));
    } else if (command == "stats") {
      answer(read_stats(agent));
    } else {
      answer({{"error", "unknown command " + command}});
    }
  }
  sluice_agent_destroy(agent);
  return 0;
}
