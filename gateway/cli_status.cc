#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "gateway/admin_client.h"
#include "gateway/cli.h"
#include "gateway/cli_admin.h"
#include "gateway/status_table.h"

namespace sluice::gateway {
namespace {

struct RoundsQuestion : AdminQuestion {
  unsigned rounds = 20;
};

int ask(const AdminQuestion& options, const std::string& path, std::string (*to_table)(const nlohmann::json&)) {
  const auto endpoint = admin_endpoint(options);
  if (!endpoint) return report_admin_error(endpoint.error());
  const auto answer = fetch_admin_json(*endpoint, path);
  if (!answer) return report_admin_error(answer.error());
  const auto replace = nlohmann::json::error_handler_t::replace;
  fmt::print("{}", options.output == "json" ? answer->dump(2, ' ', false, replace) + "\n" : to_table(*answer));
  return kExitOk;
}

}  // namespace

void add_status_commands(CLI::App& app, int& exit_code) {
  auto status = std::make_shared<AdminQuestion>();
  add_admin_command(app, "status", "Show a running gateway: round, sites, links, agents", *status)->callback([status, &exit_code] {
    exit_code = ask(*status, "/api/v1/status", status_table);
  });
  auto links = std::make_shared<AdminQuestion>();
  add_admin_command(app, "links", "Show a running gateway's links to the other sites", *links)->callback([links, &exit_code] {
    exit_code = ask(*links, "/api/v1/links", links_table);
  });
  auto rounds = std::make_shared<RoundsQuestion>();
  CLI::App* command = add_admin_command(app, "rounds", "Show the last rounds of a running gateway", *rounds);
  command->add_option("--last", rounds->rounds, "How many rounds")->check(CLI::Range(1U, 500U));
  command->callback(
      [rounds, &exit_code] { exit_code = ask(*rounds, fmt::format("/api/v1/rounds?rounds={}", rounds->rounds), rounds_table); });
}

}  // namespace sluice::gateway
