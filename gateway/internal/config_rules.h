#pragma once

// What must hold between several keys. Pure except check_tls_files, which looks at three files. Any thread.

#include <vector>

#include "gateway/internal/config_reader.h"

namespace sluice::gateway {

// REQUIRES: `config` was read without problems. Fills in the default quorum before checking.
std::vector<ConfigProblem> apply_rules(GatewayConfig& config, const ConfigPositions& positions);

// The files can be opened; the private key belongs to us or root and no one else can read it.
std::vector<ConfigProblem> check_tls_files(const TlsConfig& tls, const ConfigPositions& positions);

}  // namespace sluice::gateway
