// The multi-call program `sluice`. Everything it can do is in the libraries; here the commands are collected and the exit status decided.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>

#include "gateway/cli.h"

// The gateway's folder knows nothing of the agent's; only the program has both. site-agent/cli_agent.h says what this does.
namespace sluice::site_agent {
void add_agent_command(CLI::App& app, int& exit_code);
}

namespace {

int run(int argc, char** argv) {
  CLI::App app{"Sluice: one training run over several datacentres"};
  app.name("sluice");
  app.set_version_flag("--version", std::string("sluice " SLUICE_VERSION));
  app.require_subcommand(1);
  app.option_defaults()->always_capture_default();
  int exit_code = sluice::gateway::kExitOk;
  sluice::gateway::add_gateway_command(app, exit_code);
  sluice::gateway::add_config_command(app, exit_code);
  sluice::gateway::add_certs_command(app, exit_code);
  sluice::gateway::add_status_commands(app, exit_code);
  sluice::gateway::add_topo_command(app, exit_code);
  sluice::gateway::add_wan_command(app, exit_code);
  sluice::site_agent::add_agent_command(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11's own statuses are 105 and up; --help and --version arrive here with 0.
    return app.exit(error) == 0 ? sluice::gateway::kExitOk : sluice::gateway::kExitUsage;
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  // A peer or a reader of our output that goes away is an error of that one write, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  // A file that may not grow any more is an error of that write, too.
  std::signal(SIGXFSZ, SIG_IGN);
  int exit_code = sluice::gateway::kExitFailed;
  try {
    exit_code = run(argc, argv);
  } catch (const std::exception& problem) {
    // What the system refuses where no error is expected: a thread, memory, a closed output.
    std::fprintf(stderr, "sluice: %s\n", problem.what());
    return sluice::gateway::kExitFailed;
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::fprintf(stderr, "sluice: writing the output failed\n");
    return sluice::gateway::kExitFailed;
  }
  return exit_code;
}
