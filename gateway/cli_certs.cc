#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <string>

#include "gateway/certs.h"
#include "gateway/cli.h"

namespace sluice::gateway {
namespace {

struct CertsOptions {
  CertificateRun run;
  std::string directory;
};

int make(const CertsOptions& options) {
  const auto written = write_certificates(options.directory, options.run, std::chrono::system_clock::now());
  if (!written) {
    fmt::print(stderr, "{}\n{}\n", written.error().to_string(), error_code_advice(written.error().code));
    return kExitFailed;
  }
  for (const auto& path : *written) fmt::print("{}\n", path.native());
  return kExitOk;
}

}  // namespace

void add_certs_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<CertsOptions>();
  CLI::App* certs = app.add_subcommand("certs", "Make the certificates of a run: its authority and one for each site");
  certs->add_option("--run", options->run.run, "Name of the run")->required();
  certs->add_option("--domain", options->run.domain, "Trust domain: identities are spiffe://DOMAIN/site/NAME")->required();
  certs->add_option("--out", options->directory, "Directory; an authority that is there already is used again")->required();
  certs->add_option("SITE", options->run.sites, "Names of the sites")->required();
  certs->add_flag("--agents", options->run.with_agents, "Also one for the agents of each site, spiffe://DOMAIN/agent/NAME");
  certs->add_option("--days", options->run.days, "Validity in days")->check(CLI::Range(1, 3650));
  certs->add_flag("--force", options->run.overwrite, "Replace the files of the named sites");
  certs->callback([options, &exit_code] { exit_code = make(*options); });
}

}  // namespace sluice::gateway
