#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "gateway/admin_client.h"
#include "gateway/cli.h"
#include "gateway/config.h"
#include "gateway/internal/config_scalar.h"
#include "gateway/status_table.h"

namespace sluice::gateway {
namespace {

struct AskOptions {
  std::string admin;
  std::string config_file;
  std::string output = "table";
  unsigned rounds = 20;
};

int report(const Error& error) {
  fmt::print(stderr, "{}\n", error.to_string());
  if (error.code == ErrorCode::kInvalidArgument) return kExitUsage;
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kTimeout ? kExitCannotConnect : kExitFailed;
}

// Where the gateway listens: from its own configuration file, or as given.
Result<Endpoint> admin_endpoint(const AskOptions& options) {
  if (!options.config_file.empty()) {
    SLUICE_TRY(const ConfigOutcome outcome, examine_config_file(options.config_file, FileChecks::kSkip));
    if (!outcome.config) {
      const ConfigProblem& problem = outcome.problems.front();
      return fail(problem.code, "load config", problem.to_string(options.config_file));
    }
    if (outcome.config->admin.listen.port == 0) {
      return fail(ErrorCode::kInvalidArgument, "ask gateway",
                  fmt::format("{} leaves the admin port open; give it with --admin, the gateway logs it", options.config_file));
    }
    return outcome.config->admin.listen;
  }
  const Parsed<Endpoint> endpoint = parse_endpoint(options.admin);
  if (!endpoint.value)
    return fail(ErrorCode::kInvalidArgument, "ask gateway", fmt::format("--admin {}: {}", options.admin, endpoint.trouble));
  return *endpoint.value;
}

int ask(const AskOptions& options, const std::string& path, std::string (*to_table)(const nlohmann::json&)) {
  const auto endpoint = admin_endpoint(options);
  if (!endpoint) return report(endpoint.error());
  const auto answer = fetch_admin_json(*endpoint, path);
  if (!answer) return report(answer.error());
  const auto replace = nlohmann::json::error_handler_t::replace;
  fmt::print("{}", options.output == "json" ? answer->dump(2, ' ', false, replace) + "\n" : to_table(*answer));
  return kExitOk;
}

CLI::App* add_command(CLI::App& app, const char* name, const char* description, AskOptions& options) {
  CLI::App* command = app.add_subcommand(name, description);
  CLI::Option* admin = command->add_option("--admin", options.admin, "host:port of the gateway's admin interface");
  admin->envname("SLUICE_ADMIN")->default_val("127.0.0.1:7480");
  command->add_option("-c,--config", options.config_file, "The gateway's configuration file, for its admin address, in place of --admin");
  command->add_option("-o,--output", options.output, "table or json")->check(CLI::IsMember({"table", "json"}));
  return command;
}

}  // namespace

void add_status_commands(CLI::App& app, int& exit_code) {
  auto status = std::make_shared<AskOptions>();
  add_command(app, "status", "Show a running gateway: round, sites, links, agents", *status)->callback([status, &exit_code] {
    exit_code = ask(*status, "/api/v1/status", status_table);
  });
  auto links = std::make_shared<AskOptions>();
  add_command(app, "links", "Show a running gateway's links to the other sites", *links)->callback([links, &exit_code] {
    exit_code = ask(*links, "/api/v1/links", links_table);
  });
  auto rounds = std::make_shared<AskOptions>();
  CLI::App* command = add_command(app, "rounds", "Show the last rounds of a running gateway", *rounds);
  command->add_option("--last", rounds->rounds, "How many rounds")->check(CLI::Range(1U, 500U));
  command->callback(
      [rounds, &exit_code] { exit_code = ask(*rounds, fmt::format("/api/v1/rounds?rounds={}", rounds->rounds), rounds_table); });
}

}  // namespace sluice::gateway
