#include "tests/bench/agent_team.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace sluice::bench {
namespace {

constexpr std::chrono::seconds kRoundTimeout{180};
constexpr std::chrono::seconds kStartTimeout{30};

Result<nlohmann::json> read_json(support::ChildProcess& child) {
  SLUICE_TRY(const std::string line, child.read_line(kRoundTimeout));
  auto parsed = nlohmann::json::parse(line, nullptr, false);
  if (parsed.is_discarded()) return fail(ErrorCode::kInternal, "read from agent", line);
  return parsed;
}

bool are_links_up(const nlohmann::json& status) {
  return std::ranges::all_of(status["links"], [](const nlohmann::json& link) { return link["up"].get<bool>(); });
}

}  // namespace

Result<AgentTeam> AgentTeam::start(const support::GatewayFleet& fleet, const std::string& program, std::uint16_t sites,
                                   std::uint64_t values, const std::filesystem::path& log_directory) {
  AgentTeam team;
  for (std::uint16_t site = 0; site < sites; ++site) {
    support::ChildOptions child;
    child.arguments = {program,
                       "--agent",
                       fleet.agent_address(site),
                       "--site",
                       std::to_string(site),
                       "--sites",
                       std::to_string(sites),
                       "--values",
                       std::to_string(values)};
    child.stderr_file = (log_directory / fmt::format("agent-{}.log", site)).string();
    SLUICE_TRY(auto started, support::ChildProcess::start(child));
    team.agents_.push_back(std::move(started));
  }
  for (auto& agent : team.agents_) SLUICE_CHECK_OK(read_json(agent).map([](const nlohmann::json&) {}));
  for (std::uint16_t site = 0; site < sites; ++site) {
    SLUICE_CHECK_OK(fleet.wait_status(site, "all links up", kStartTimeout, are_links_up));
  }
  return team;
}

Result<TeamRound> AgentTeam::round() {
  for (auto& agent : agents_) SLUICE_CHECK_OK(agent.write("prepare\n"));
  for (auto& agent : agents_) SLUICE_CHECK_OK(read_json(agent).map([](const nlohmann::json&) {}));
  for (auto& agent : agents_) SLUICE_CHECK_OK(agent.write("go\n"));
  TeamRound result;
  double began = std::numeric_limits<double>::max();
  double ended = 0.0;
  for (auto& agent : agents_) {
    SLUICE_TRY(auto line, read_json(agent));
    if (line["outcome"].get<int>() != 1) {
      return fail(ErrorCode::kInternal, "exchange",
                  fmt::format("a round ended with outcome {} (error {})", line["outcome"].get<int>(), line["code"].get<int>()));
    }
    began = std::min(began, line["began"].get<double>());
    ended = std::max(ended, line["ended"].get<double>());
    result.error = std::max(result.error, line["error"].get<double>());
    result.agents.push_back(std::move(line));
  }
  result.seconds = ended - began;
  return result;
}

}  // namespace sluice::bench
