#pragma once

// The synthetic training process of wan_exchange_bench: holds `values` fp32 parameters, and on each "go" line on stdin changes them by a
// known Gaussian delta and exchanges. Prints one JSON line a round on stdout. Runs in a process of its own.

#include <cstdint>
#include <string>

namespace sluice::bench {

struct ExchangeAgentOptions {
  std::string gateway;
  std::uint32_t site = 0;
  std::uint32_t sites = 1;
  std::uint64_t values = 0;
};

// Until stdin ends. Exit status of the process.
int run_exchange_agent(const ExchangeAgentOptions& options);

}  // namespace sluice::bench
