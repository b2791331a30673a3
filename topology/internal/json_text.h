#pragma once

// JSON out of a stranger's file: parsed with a bound on its depth, which the parser itself does not have. Pure.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice::topology {

// kTopologyTooLarge when nested deeper than kJsonDepthMax; kTopologySyntax with the byte where the text breaks.
Result<nlohmann::json> parse_json(std::string_view text, const std::string& name);

}  // namespace sluice::topology
