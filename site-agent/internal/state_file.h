#pragma once

// The agent's state in a file, for a checkpoint: global parameters, momentum and residual of one rank's shard. Written to a temporary file,
// synced, renamed, directory synced: a crash leaves the old file or the new one. Each chunk carries its XXH3-64; memory for one chunk.

#include <string>

#include "base/result.h"
#include "site-agent/internal/shard_state.h"

namespace sluice::site_agent {

// Errors: kAgentStateFile with the path and the system's reason.
Status write_state_file(const std::string& path, const ShardState& state, const sync::Manifest& manifest);

// REQUIRES: `state` was made for the manifest and shard. Errors: kAgentStateFile; `state` is then partly overwritten and must not be used.
Status read_state_file(const std::string& path, const sync::Manifest& manifest, ShardState& state);

}  // namespace sluice::site_agent
