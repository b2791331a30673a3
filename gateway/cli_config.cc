#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <vector>

#include "gateway/cli.h"
#include "gateway/config.h"

namespace sluice::gateway {
namespace {

struct CheckOptions {
  std::vector<std::string> files;
  bool skip_files = false;
};

// Prints every problem of one file, or a line that it is valid.
bool check_one(const std::string& file, FileChecks file_checks) {
  Result<ConfigOutcome> outcome = examine_config_file(file, file_checks);
  if (!outcome) {
    fmt::print(stderr, "{}\n", outcome.error().to_string());
    return false;
  }
  for (const ConfigProblem& problem : outcome->problems) {
    fmt::print(stderr, "{} [{}]\n", problem.to_string(file), error_code_name(problem.code));
  }
  if (!outcome->config) return false;
  const GatewayConfig& config = *outcome->config;
  fmt::print("{}: valid: site {} of {}, run {}, store at {}, shared settings {:016x}\n", file, config.site, config.sites.size(),
             config.run.name, config.coordination.site, shared_digest(config));
  return true;
}

int check(const CheckOptions& options) {
  bool all_valid = true;
  for (const std::string& file : options.files) {
    all_valid = check_one(file, options.skip_files ? FileChecks::kSkip : FileChecks::kTlsFiles) && all_valid;
  }
  return all_valid ? kExitOk : kExitFailed;
}

// Without the TLS files: this shows what the file says.
int show(const std::string& file) {
  const auto outcome = examine_config_file(file, FileChecks::kSkip);
  if (!outcome || !outcome->config) {
    fmt::print(stderr, "{}\n", outcome ? outcome->problems.front().to_string(file) : outcome.error().to_string());
    return kExitFailed;
  }
  fmt::print("{}", config_to_json(*outcome->config));
  return kExitOk;
}

}  // namespace

void add_config_command(CLI::App& app, int& exit_code) {
  CLI::App* config = app.add_subcommand("config", "Check and show configuration files");
  config->require_subcommand(1);

  auto options = std::make_shared<CheckOptions>();
  CLI::App* check_command = config->add_subcommand("check", "Check files; every problem with its line and a suggestion");
  check_command->add_option("FILE", options->files, "Configuration files")->required();
  check_command->add_flag("--skip-files", options->skip_files, "Do not look at the certificate and key files");
  check_command->callback([options, &exit_code] { exit_code = check(*options); });

  auto file = std::make_shared<std::string>();
  CLI::App* show_command = config->add_subcommand("show", "Print the effective configuration, defaults included, as JSON");
  show_command->add_option("FILE", *file, "Configuration file")->required();
  show_command->callback([file, &exit_code] { exit_code = show(*file); });

  CLI::App* schema_command = config->add_subcommand("schema", "Print the JSON schema of configuration files, for editors");
  schema_command->callback([] { fmt::print("{}", config_schema()); });
}

}  // namespace sluice::gateway
