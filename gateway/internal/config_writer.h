#pragma once

// Visitors that write: the effective configuration as JSON, and the settings that sites must share as text. Pure, any thread.

#include <string>

#include "gateway/config.h"

namespace sluice::gateway {

// One value in the spelling of the YAML file, by its path: {"round.deadline", "30 s"}. In file order.
struct Setting {
  std::string path;
  std::string value;
};
std::vector<Setting> list_settings(const GatewayConfig& config);

}  // namespace sluice::gateway
