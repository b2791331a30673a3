#pragma once

// The gateway as a process: opens what the configuration names, runs the loop until SIGINT or SIGTERM, closes in order.

#include "base/result.h"
#include "gateway/config.h"
#include "gateway/tls_context.h"

namespace sluice::gateway {

struct GatewayOptions {
  std::string version;
  bool is_quiet = false;                            // without the ready line on stdout
  TlsRecords tls_records = TlsRecords::kEncrypted;  // the other only to measure
};

// Runs until a signal asks it to stop. Prints one JSON line on stdout when it listens:
// {"event":"ready","site":..,"wan_port":..,"admin":..}. Errors: those of the journal, the spool, TLS files and listeners; nothing is left
// behind then.
Status run_gateway(const GatewayConfig& config, const GatewayOptions& options);

}  // namespace sluice::gateway
