#pragma once

// The rows of wan_bench: each measures one promise about the WAN over the emulator and says whether it is kept. A figure that cannot be
// had here is "not available" with the reason, never a guess. Not thread-safe: rows run one after the other.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "tests/bench/wan_rig.h"

namespace sluice::bench {

struct WanBenchOptions {
  std::string self;
  std::string program;
  std::filesystem::path directory;  // for logs and state; each row has its own below it
  unsigned rounds = 3;              // measured, after a first one that warms up
  double mib = 256.0;               // of fp32 in the exchange of the link rows
  unsigned streams = 4;             // the gateway's default
  std::string congestion = "bbr";
  std::string scenarios;         // JSON file with measured WANs: [{"name", "sites", "gbps", "rtt_ms"}]; empty = none given
  double scenario_scale = 20.0;  // their rates are divided by this
  std::string python = "/usr/bin/python3";  // with torch, for the rows `loss`
};

struct WanRow {
  std::string name;  // as --case takes it
  std::string what;
  std::string figure;  // "not available: ..." when is_met is empty
  std::string target;
  std::optional<bool> is_met;
  nlohmann::json detail;  // every number that was measured
};

struct WanCase {
  std::string name;
  std::string what;
  Result<std::vector<WanRow>> (*measure)(const WanCase& self, const WanBenchOptions& options);
};

// Link use by an exchange, against the link and against iperf3.
std::vector<WanCase> link_use_cases();
// A link's estimate after one round, against what iperf3 gets.
std::vector<WanCase> estimate_cases();
// The loss of a real training (needs an interpreter with torch) while a link steps down and up.
std::vector<WanCase> loss_cases();
// Rounds in automatic mode: a link's bandwidth steps down and up; one site is slow; measured WANs against the plan.
std::vector<WanCase> training_cases();

double median(std::vector<double> values);
// The parts of a rig that all rows share; `values` fp32 parameters a site.
RigOptions rig_options(const WanCase& self, const WanBenchOptions& options, std::uint64_t values);
// "not available": the reason stands where the figure would.
WanRow unavailable_row(const WanCase& self, const std::string& reason, const std::string& target);

}  // namespace sluice::bench
