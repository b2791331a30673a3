#pragma once

// The gateway's JSON (docs/reference/api.md) as tables for a terminal. Pure, any thread. A field that is missing or of another type
// shows as "-": the command may be older or newer than the gateway that it asks.

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace sluice::gateway {

// Left-aligned columns two spaces apart, lines without trailing spaces. Control characters in cells are replaced.
// REQUIRES: every row has as many cells as `heads`.
std::string format_table(const std::vector<std::string>& heads, const std::vector<std::vector<std::string>>& rows);

// The answers of /api/v1/status, /api/v1/links, /api/v1/rounds, /api/v1/wan and /api/v1/topology, or the bare lists in them.
std::string status_table(const nlohmann::json& status);
std::string links_table(const nlohmann::json& links);
std::string rounds_table(const nlohmann::json& rounds);
std::string wan_table(const nlohmann::json& wan);
std::string topology_table(const nlohmann::json& topology);

// "1.5 GiB", "12.3 MiB", "900 B".
std::string human_bytes(double bytes);
// "1.2 Gbit/s".
std::string human_rate(double bits_per_second);
// "84.9 ms", "12.3 s", "2.5 min".
std::string human_seconds(double seconds);

}  // namespace sluice::gateway
