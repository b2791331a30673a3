#pragma once

// Asks a running gateway through its admin interface, for the commands that show things. Blocking, any thread, no state.
// Fails with kUnavailable when nobody answers at the address, kTimeout when the answer does not come, and kUnexpectedAnswer when what
// comes is not the JSON of a gateway.

#include <nlohmann/json_fwd.hpp>

#include <chrono>
#include <string>

#include "base/result.h"
#include "gateway/config.h"

namespace sluice::gateway {

inline constexpr std::chrono::seconds kAdminClientTimeout{5};
inline constexpr std::size_t kAdminAnswerBytesMax = 16 * 1024 * 1024;

// GET http://<endpoint><path>, for example "/api/v1/status?rounds=20".
Result<nlohmann::json> fetch_admin_json(const Endpoint& endpoint, const std::string& path);
// POST of a command, for example "/api/v1/wan/probe?peer=eu-west". kNotFound: the gateway does not know what it names.
Result<nlohmann::json> post_admin_command(const Endpoint& endpoint, const std::string& path);

}  // namespace sluice::gateway
