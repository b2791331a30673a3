#pragma once

// One synthetic training process (exchange_agent) for each site of a fleet, driven round by round. Not thread-safe; ends its processes.

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "tests/support/child_process.h"
#include "tests/support/gateway_fleet.h"

namespace sluice::bench {

struct TeamRound {
  double seconds = 0.0;                // from "every site has its delta ready" to "every site has applied the update"
  double error = 0.0;                  // relative, of the first round only
  std::vector<nlohmann::json> agents;  // what each said of the round
};

class AgentTeam {
 public:
  // `program` is a benchmark that runs as an exchange agent when it is called with --agent. Returns when every agent is connected and every
  // link is up.
  static Result<AgentTeam> start(const support::GatewayFleet& fleet, const std::string& program, std::uint16_t sites, std::uint64_t values,
                                 const std::filesystem::path& log_directory);
  // Fails when a site has not applied the round.
  Result<TeamRound> round();

 private:
  std::vector<support::ChildProcess> agents_;
};

}  // namespace sluice::bench
