#pragma once

// `sluice agent`: a rank without a training script. Hooked into the program by its main; main thread only.

namespace CLI {
class App;
}

namespace sluice::site_agent {

// Stores 0, 1 (failed) or 3 (no gateway reached) in exit_code when the command was given.
void add_agent_command(CLI::App& app, int& exit_code);

}  // namespace sluice::site_agent
