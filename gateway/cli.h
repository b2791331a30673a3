#pragma once

// The commands of the program `sluice`. Each lives in its own cli_*.cc and hooks itself into the parser; when the command was given, its
// callback runs and stores the exit status. Main thread only.

#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace sluice::gateway {

// Exit statuses of every command.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitCannotConnect = 3;
// Of `topo diagnose` alone: the files were read, and something is wrong with what they describe.
inline constexpr int kExitWarnings = 4;
inline constexpr int kExitErrors = 5;

void add_certs_command(CLI::App& app, int& exit_code);
void add_config_command(CLI::App& app, int& exit_code);
void add_gateway_command(CLI::App& app, int& exit_code);
// status, links and rounds.
void add_status_commands(CLI::App& app, int& exit_code);
void add_topo_command(CLI::App& app, int& exit_code);
// wan show and wan probe.
void add_wan_command(CLI::App& app, int& exit_code);

}  // namespace sluice::gateway
