// `sluice wan show` and `sluice wan probe`: what is known of the links between the sites, and measuring one on request.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "gateway/admin_client.h"
#include "gateway/cli.h"
#include "gateway/cli_admin.h"
#include "gateway/status_table.h"

namespace sluice::gateway {
namespace {

using Pointer = nlohmann::json::json_pointer;

constexpr std::chrono::milliseconds kPollInterval{200};
constexpr int kPollsMax = 450;  // 90 s: the longest window and its answer

struct ProbeQuestion : AdminQuestion {
  std::string peer;
};

int show(const AdminQuestion& question, const nlohmann::json& answer) {
  const auto replace = nlohmann::json::error_handler_t::replace;
  fmt::print("{}", question.output == "json" ? answer.dump(2, ' ', false, replace) + "\n" : wan_table(answer));
  return kExitOk;
}

int ask_show(const AdminQuestion& question) {
  const auto endpoint = admin_endpoint(question);
  if (!endpoint) return report_admin_error(endpoint.error());
  const auto answer = fetch_admin_json(*endpoint, "/api/v1/wan");
  return answer ? show(question, *answer) : report_admin_error(answer.error());
}

std::uint64_t probes_ended(const nlohmann::json& answer) { return answer.value(Pointer("/probe/ended"), std::uint64_t{0}); }

int ask_probe(const ProbeQuestion& question) {
  const auto endpoint = admin_endpoint(question);
  if (!endpoint) return report_admin_error(endpoint.error());
  const auto before = fetch_admin_json(*endpoint, "/api/v1/wan");
  if (!before) return report_admin_error(before.error());
  const auto started = post_admin_command(*endpoint, fmt::format("/api/v1/wan/probe?peer={}", question.peer));
  if (!started) return report_admin_error(started.error());
  asio::io_context context;
  asio::steady_timer timer(context);
  for (int poll = 0; poll < kPollsMax; ++poll) {
    timer.expires_after(kPollInterval);
    timer.wait();
    const auto answer = fetch_admin_json(*endpoint, "/api/v1/wan");
    if (!answer) return report_admin_error(answer.error());
    if (probes_ended(*answer) == probes_ended(*before)) continue;
    fmt::print(stderr, "{}\n", answer->value(Pointer("/probe/text"), std::string()));
    const int shown = show(question, *answer);
    return answer->value(Pointer("/probe/complete"), false) ? shown : kExitFailed;
  }
  fmt::print(stderr, "the probe has not ended within {} s\n", (kPollInterval * kPollsMax).count() / 1000);
  return kExitFailed;
}

}  // namespace

void add_wan_command(CLI::App& app, int& exit_code) {
  CLI::App* wan = app.add_subcommand("wan", "The links between the sites: rates, round trips, loss");
  wan->require_subcommand(1);
  auto shown = std::make_shared<AdminQuestion>();
  add_admin_command(*wan, "show", "Show what is known of every link", *shown)->callback([shown, &exit_code] {
    exit_code = ask_show(*shown);
  });
  auto probed = std::make_shared<ProbeQuestion>();
  CLI::App* probe = add_admin_command(*wan, "probe", "Fill the link to a site for wan.probe_window and measure it", *probed);
  probe->add_option("SITE", probed->peer, "The site to send to")->required();
  probe->callback([probed, &exit_code] { exit_code = ask_probe(*probed); });
}

}  // namespace sluice::gateway
