#pragma once

// The rows of wan_bench: each measures one promise about the WAN over the emulator and says whether it is kept. A figure that cannot be
// had here is "not available" with the reason, never a guess. Not thread-safe: rows run one after the other.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace sluice::bench {

struct WanBenchOptions {
  std::string self;
  std::string program;
  std::filesystem::path directory;  // for logs and state; each row has its own below it
  unsigned rounds = 3;              // measured, after a first one that warms up
  double mib = 256.0;               // of fp32 in the exchange of the link rows
  unsigned streams = 4;  // the gateway's default
  std::string congestion = "bbr";
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

}  // namespace sluice::bench
