#pragma once

// What must hold between several keys. Pure except check_tls_files, which looks at three files. Any thread.

#include <vector>

#include "gateway/internal/config_reader.h"

namespace sluice::gateway {

// REQUIRES: `config` was read without problems. Fills in the default quorum before checking.
std::vector<ConfigProblem> apply_rules(GatewayConfig& config, const ConfigPositions& positions);

// The files can be opened, no one else can read the private key, they fit together, and the certificate is that of the own site.
std::vector<ConfigProblem> check_tls_files(const GatewayConfig& config, const ConfigPositions& positions);

}  // namespace sluice::gateway
