#pragma once

// What the commands share that ask a running gateway: where it listens, how answers are shown. Main thread only.

#include <string>

#include "base/error.h"
#include "base/result.h"
#include "gateway/config.h"

namespace CLI {
class App;
}

namespace sluice::gateway {

struct AdminQuestion {
  std::string admin;
  std::string config_file;
  std::string output = "table";
};

// Adds the command with --admin, --config and --output. `question` lives as long as the parser.
CLI::App* add_admin_command(CLI::App& app, const char* name, const char* description, AdminQuestion& question);
// Where the gateway listens: from its own configuration file, or as given.
Result<Endpoint> admin_endpoint(const AdminQuestion& question);
// Prints the error; returns the exit status.
int report_admin_error(const Error& error);

}  // namespace sluice::gateway
