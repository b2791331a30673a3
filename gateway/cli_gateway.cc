// `sluice gateway --config FILE`: runs this site's gateway.

#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "base/log.h"
#include "gateway/cli.h"
#include "gateway/config.h"
#include "gateway/gateway.h"

namespace sluice::gateway {

void add_gateway_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("gateway", "Run this site's gateway until SIGINT or SIGTERM");
  auto path = std::make_shared<std::string>();
  command->add_option("--config,-c", *path, "Configuration file of this site")->required()->envname("SLUICE_CONFIG");
  command->callback([path, &exit_code] {
    auto config = load_config(*path);
    if (!config) {
      std::fprintf(stderr, "%s\n", config.error().to_string().c_str());
      exit_code = kExitFailed;
      return;
    }
    configure_log(config->log.format, config->log.level);
    const Status ran = run_gateway(*config, {SLUICE_VERSION, false, TlsRecords::kEncrypted});
    if (!ran) {
      std::fprintf(stderr, "%s\n%s\n", ran.error().to_string().c_str(), std::string(error_code_advice(ran.error().code)).c_str());
      exit_code = kExitFailed;
    }
  });
}

}  // namespace sluice::gateway
