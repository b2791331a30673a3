#pragma once

// ${NAME} and ${NAME:-default} in one scalar of the configuration. Pure: the environment is passed in as a function. Any thread.

#include <string>
#include <string_view>

#include "gateway/internal/config_scalar.h"
#include "gateway/internal/config_tree.h"

namespace sluice::gateway {

// The text with every ${...} replaced. `:-` takes the default when the variable is unset or empty, as in a shell; without a default an
// unset variable is an error. `$${` stands for a literal `${`. What comes out is never read as YAML again, so a variable cannot add keys.
Parsed<std::string> substitute_environment(std::string_view text, const EnvironmentLookup& environment);

}  // namespace sluice::gateway
