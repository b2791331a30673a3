// wan_bench: what the gateways do with a WAN, in numbers, over the packet emulator of tests/support with iperf3 beside it. Needs root.
//
//     ./run bench wan                      every row
//     ./run bench wan --case link-clean    one of them; --list names them, the beginning of a name is enough
//     ./run bench wan --json out.json      every number that was measured
//
// Rates count IP bytes, as a link does; with an MTU of 1500, TCP carries at most 96.5 % of them.
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "tests/bench/exchange_agent.h"
#include "tests/bench/wan_rows.h"
#include "tests/support/wan_emulator.h"

namespace sluice::bench {
namespace {

const char* verdict(const WanRow& row) {
  if (!row.is_met) return "n/a";
  return *row.is_met ? "met" : "MISSED";
}

void print(const WanRow& row) {
  fmt::print("{:<7} {}\n        {}   [target {}]\n", verdict(row), row.what, row.figure, row.target);
  std::fflush(stdout);
}

nlohmann::json to_json(const WanRow& row) {
  return {{"case", row.name},
          {"what", row.what},
          {"figure", row.figure},
          {"target", row.target},
          {"met", row.is_met ? nlohmann::json(*row.is_met) : nlohmann::json()},
          {"detail", row.detail}};
}

// Rows that were measured; a case that fails becomes a row that says so.
std::vector<WanRow> run_case(const WanCase& each, const WanBenchOptions& options) {
  auto rows = each.measure(each, options);
  if (rows) return *rows;
  return {{each.name, each.what, "not available: " + rows.error().to_string(), "-", std::nullopt, {}}};
}

int run_cases(const std::vector<WanCase>& cases, const WanBenchOptions& options, const std::string& json_file) {
  nlohmann::json results = nlohmann::json::array();
  bool has_failed = false;
  for (const WanCase& each : cases) {
    for (const WanRow& row : run_case(each, options)) {
      print(row);
      results.push_back(to_json(row));
      has_failed = has_failed || !row.is_met;
    }
  }
  if (!json_file.empty()) std::ofstream(json_file) << results.dump(1) << "\n";
  if (has_failed) {
    fmt::print("logs are kept in {}\n", options.directory.string());
  } else {
    std::filesystem::remove_all(options.directory);
  }
  return has_failed ? 1 : 0;
}

std::vector<WanCase> all_cases() {
  std::vector<WanCase> cases = link_use_cases();
  for (auto& each : estimate_cases()) cases.push_back(std::move(each));
  for (auto& each : training_cases()) cases.push_back(std::move(each));
  for (auto& each : loss_cases()) cases.push_back(std::move(each));
  return cases;
}

std::string names_of(const std::vector<WanCase>& cases) {
  std::string names;
  for (const WanCase& each : cases) names += fmt::format("  {:<18} {}\n", each.name, each.what);
  return names;
}

int run(int argc, char** argv) {
  CLI::App app{"Measures what gateways do with an emulated WAN, with iperf3 beside them"};
  WanBenchOptions options;
  ExchangeAgentOptions agent;
  std::vector<std::string> chosen;
  std::string json_file;
  bool is_list = false;
  options.self = std::filesystem::read_symlink("/proc/self/exe").string();
  options.program = (std::filesystem::path(options.self).parent_path().parent_path().parent_path() / "gateway" / "sluice").string();
  options.directory = std::filesystem::temp_directory_path() / fmt::format("sluice-wan-{}", ::getpid());
  if (std::filesystem::exists(SLUICE_WAN_SCENARIOS)) options.scenarios = SLUICE_WAN_SCENARIOS;
  app.add_option("--case", chosen, "Row to measure, or the beginning of its name; may be given again (default: all)");
  app.add_flag("--list", is_list, "Only name the rows");
  app.add_option("--json", json_file, "File for the results");
  app.add_option("--rounds", options.rounds, "Measured rounds of each row")->check(CLI::Range(1, 1000));
  app.add_option("--mib", options.mib, "MiB of fp32 values exchanged in the link rows")->check(CLI::PositiveNumber);
  app.add_option("--streams", options.streams, "Bulk connections of each link")->check(CLI::Range(1, 32));
  app.add_option("--congestion", options.congestion, "TCP congestion control")->check(CLI::IsMember({"bbr", "cubic"}));
  app.add_option("--scenarios", options.scenarios,
                 "JSON file with measured WANs for the rows `scenario`; default: ../shared/data/wan/scenarios.json where it is")
      ->check(CLI::ExistingFile);
  app.add_option("--scenario-scale", options.scenario_scale, "Their rates are divided by this")->check(CLI::PositiveNumber);
  app.add_option("--python", options.python, "Interpreter with torch, for the rows `loss`");
  app.add_option("--program", options.program, "The program sluice");
  app.add_option("--agent", agent.gateway)->group("");
  app.add_option("--site", agent.site)->group("");
  app.add_option("--sites", agent.sites)->group("");
  app.add_option("--values", agent.values)->group("");
  CLI11_PARSE(app, argc, argv);
  if (!agent.gateway.empty()) return run_exchange_agent(agent);
  std::vector<WanCase> cases = all_cases();
  if (is_list) {
    fmt::print("{}", names_of(cases));
    return 0;
  }
  if (const auto reason = support::WanEmulator::why_unavailable()) {
    fmt::print("no row can be measured here: {}\n", *reason);
    return 1;
  }
  if (!chosen.empty()) {
    std::erase_if(cases, [&](const WanCase& each) {
      return std::ranges::none_of(chosen, [&](const std::string& name) { return each.name.starts_with(name); });
    });
    if (cases.empty()) {
      fmt::print(stderr, "no such row; there are:\n{}", names_of(all_cases()));
      return 2;
    }
  }
  return run_cases(cases, options, json_file);
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) { return sluice::bench::run(argc, argv); }
