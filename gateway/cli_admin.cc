#include "gateway/cli_admin.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "gateway/cli.h"
#include "gateway/internal/config_scalar.h"

namespace sluice::gateway {

int report_admin_error(const Error& error) {
  fmt::print(stderr, "{}\n", error.to_string());
  if (error.code == ErrorCode::kInvalidArgument) return kExitUsage;
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kTimeout ? kExitCannotConnect : kExitFailed;
}

Result<Endpoint> admin_endpoint(const AdminQuestion& question) {
  if (!question.config_file.empty()) {
    SLUICE_TRY(const ConfigOutcome outcome, examine_config_file(question.config_file, FileChecks::kSkip));
    if (!outcome.config) {
      const ConfigProblem& problem = outcome.problems.front();
      return fail(problem.code, "load config", problem.to_string(question.config_file));
    }
    if (outcome.config->admin.listen.port == 0) {
      return fail(ErrorCode::kInvalidArgument, "ask gateway",
                  fmt::format("{} leaves the admin port open; give it with --admin, the gateway logs it", question.config_file));
    }
    return outcome.config->admin.listen;
  }
  const Parsed<Endpoint> endpoint = parse_endpoint(question.admin);
  if (!endpoint.value)
    return fail(ErrorCode::kInvalidArgument, "ask gateway", fmt::format("--admin {}: {}", question.admin, endpoint.trouble));
  return *endpoint.value;
}

CLI::App* add_admin_command(CLI::App& app, const char* name, const char* description, AdminQuestion& question) {
  CLI::App* command = app.add_subcommand(name, description);
  CLI::Option* admin = command->add_option("--admin", question.admin, "host:port of the gateway's admin interface");
  admin->envname("SLUICE_ADMIN")->default_val("127.0.0.1:7480");
  command->add_option("-c,--config", question.config_file, "The gateway's configuration file, for its admin address, in place of --admin");
  command->add_option("-o,--output", question.output, "table or json")->check(CLI::IsMember({"table", "json"}));
  return command;
}

}  // namespace sluice::gateway
