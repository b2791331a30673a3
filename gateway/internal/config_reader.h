#pragma once

// Fills a GatewayConfig from a tree and records every problem on the way: unknown and missing keys, values of the wrong form or out of
// range. Used by one thread; touches no file.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gateway/internal/config_fields.h"
#include "gateway/internal/config_tree.h"

namespace sluice::gateway {

struct ConfigPosition {
  int line = 0;
  int column = 0;
};

// Where each key was written, by its path ("sites[1].address"): for the checks across keys.
using ConfigPositions = std::map<std::string, ConfigPosition>;

struct ReadOutcome {
  GatewayConfig config;
  ConfigPositions positions;
  std::vector<ConfigProblem> problems;
};

// Relative paths become absolute through `base_directory`.
ReadOutcome read_fields(const ConfigNode& root, const std::filesystem::path& base_directory);

}  // namespace sluice::gateway
