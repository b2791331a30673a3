#include "gateway/status_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/assert.h"

namespace sluice::gateway {
namespace {

using nlohmann::json;
using Row = std::vector<std::string>;

constexpr const char* kAbsent = "-";
constexpr std::size_t kCellBytesMax = 100;

// A member of a member, by its names; null when the path leads nowhere.
json find(const json& object, std::initializer_list<const char*> path) {
  const json* at = &object;
  for (const char* key : path) {
    if (!at->is_object() || !at->contains(key)) return {};
    at = &(*at)[key];
  }
  return *at;
}

std::string text_of(const json& value) {
  if (value.is_string()) return value.get<std::string>().empty() ? kAbsent : value.get<std::string>();
  if (value.is_number_integer() || value.is_boolean()) return value.dump();
  if (value.is_number()) return fmt::format("{:.4g}", value.get<double>());
  return kAbsent;
}

std::optional<double> number_of(const json& value) {
  if (!value.is_number()) return std::nullopt;
  return value.get<double>();
}

template <typename Format>
std::string formatted(const json& value, Format format) {
  const auto number = number_of(value);
  return number ? format(*number) : std::string(kAbsent);
}

// For measurements, where 0 stands for "not measured".
template <typename Format>
std::string measured(const json& value, Format format) {
  const auto number = number_of(value);
  return number && *number > 0.0 ? format(*number) : std::string(kAbsent);
}

std::string plain(double value) { return fmt::format("{:.4g}", value); }

std::string up_or_down(const json& value) { return value.is_boolean() ? (value.get<bool>() ? "up" : "down") : kAbsent; }

std::string joined(const json& list) {
  if (!list.is_array() || list.empty()) return kAbsent;
  std::string result;
  for (const json& item : list) result += (result.empty() ? "" : ",") + text_of(item);
  return result;
}

// The list itself, or the member of that name of an answer about it.
json list_of(const json& answer, const char* member) {
  const json list = answer.is_object() ? find(answer, {member}) : answer;
  return list.is_array() ? list : json::array();
}

std::string clean(std::string_view cell) {
  std::string result(cell.substr(0, kCellBytesMax));
  if (cell.size() > kCellBytesMax) result.replace(kCellBytesMax - 3, 3, "...");
  std::replace_if(
      result.begin(), result.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return result;
}

std::string scaled(double value, double base, const std::array<const char*, 5>& units) {
  std::size_t unit = 0;
  while (value >= base && unit + 1 < units.size()) {
    value /= base;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} {}", value, units[0]) : fmt::format("{:.1f} {}", value, units[unit]);
}

std::string of_budget(const json& usage) {
  return fmt::format("{} of {}", formatted(find(usage, {"used_bytes"}), human_bytes),
                     formatted(find(usage, {"budget_bytes"}), human_bytes));
}

std::string sites_table(const json& sites) {
  std::vector<Row> rows;
  for (const json& site : sites) {
    rows.push_back({text_of(find(site, {"name"})), text_of(find(site, {"state"})), text_of(find(site, {"round"})),
                    text_of(find(site, {"last_seen"})), text_of(find(site, {"detail"}))});
  }
  return format_table({"SITE", "STATE", "ROUND", "LAST SEEN", "DETAIL"}, rows);
}

std::string agents_table(const json& agents) {
  std::vector<Row> rows;
  for (const json& agent : agents) {
    rows.push_back({text_of(find(agent, {"rank"})), up_or_down(find(agent, {"connected"})), text_of(find(agent, {"round"})),
                    text_of(find(agent, {"loss"})), text_of(find(agent, {"tokens"}))});
  }
  return format_table({"RANK", "AGENT", "ROUND", "LOSS", "TOKENS"}, rows);
}

// "probe done: 6 of 6 pairs of ranks in 0.2 s, 1.9 to 2.4 GB/s, 21 us"; nothing when there is none to speak of.
std::string probe_line(const json& topology) {
  const json probe = find(topology, {"probe"});
  const bool is_earlier = find(topology, {"earlier_run"}) == json(true);
  if (!probe.is_string() || (probe == "off" && !is_earlier)) return {};
  std::string line = fmt::format("probe {}: {} of {} pairs of ranks in {}, {} to {} GB/s, {} us", clean(text_of(probe)),
                                 text_of(find(topology, {"pairs"})), text_of(find(topology, {"pairs_planned"})),
                                 formatted(find(topology, {"seconds"}), human_seconds), text_of(find(topology, {"gb_per_second", "min"})),
                                 text_of(find(topology, {"gb_per_second", "max"})), text_of(find(topology, {"latency_us", "median"})));
  if (is_earlier)
    line = fmt::format("probe of an earlier run: {} pairs of ranks, {} to {} GB/s", text_of(find(topology, {"pairs"})),
                       text_of(find(topology, {"gb_per_second", "min"})), text_of(find(topology, {"gb_per_second", "max"})));
  const std::string failure = text_of(find(topology, {"failure"}));
  return failure == kAbsent ? line + "\n" : fmt::format("{}: {}\n", line, clean(failure));
}

std::string last_announcement(const json& announcements) {
  if (!announcements.is_array() || announcements.empty()) return {};
  const json& last = announcements.back();
  return fmt::format("announced {}: {}\n", clean(text_of(find(last, {"time"}))), clean(text_of(find(last, {"text"}))));
}

// A factor that people compare: no digits that do not matter, and none lost below 10.
std::string times_text(double factor) { return factor < 10.0 ? fmt::format("{:.2g}", factor) : fmt::format("{:.0f}", factor); }

}  // namespace

std::string format_table(const std::vector<std::string>& heads, const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const std::string& head : heads) widths.push_back(head.size());
  for (const Row& row : rows) {
    SLUICE_ASSERT(row.size() == heads.size(), "{} cells under {} heads", row.size(), heads.size());
    for (std::size_t column = 0; column < row.size(); ++column) widths[column] = std::max(widths[column], clean(row[column]).size());
  }
  std::string result;
  const auto add_line = [&](const Row& row) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column) line += fmt::format("{:<{}}  ", clean(row[column]), widths[column]);
    line.erase(line.find_last_not_of(' ') + 1);
    result += line + "\n";
  };
  add_line(heads);
  for (const Row& row : rows) add_line(row);
  return result;
}

std::string human_bytes(double bytes) { return scaled(bytes, 1024.0, {"B", "KiB", "MiB", "GiB", "TiB"}); }

std::string human_rate(double bits_per_second) {
  return scaled(bits_per_second, 1000.0, {"bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"});
}

std::string human_seconds(double seconds) {
  if (seconds < 1.0) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 120.0) return fmt::format("{:.1f} s", seconds);
  return seconds < 7200.0 ? fmt::format("{:.1f} min", seconds / 60.0) : fmt::format("{:.1f} h", seconds / 3600.0);
}

std::string status_table(const json& status) {
  const auto line = [&](const char* key) { return clean(text_of(find(status, {key}))); };
  std::string result = fmt::format("site {} of run {}, sluice {}, epoch {}\n", line("site"), line("run"), line("version"), line("epoch"));
  result += fmt::format("round {}, {}: {}\n", line("round"), line("phase"), line("description"));
  result += fmt::format("WAN {} sent, {} received", formatted(find(status, {"wan", "sent_bytes"}), human_bytes),
                        formatted(find(status, {"wan", "received_bytes"}), human_bytes));
  const auto reduction = number_of(find(status, {"wan", "reduction"}));
  if (reduction && *reduction > 0.0) result += fmt::format(", {} times less than fp32 data parallel", times_text(*reduction));
  result += "\n";
  result += fmt::format("memory {}, spool {}\n", of_budget(find(status, {"memory"})), of_budget(find(status, {"spool"})));
  result += probe_line(find(status, {"topology"}));
  result += last_announcement(find(status, {"announcements"}));
  const json sites = find(status, {"sites"});
  if (sites.is_array() && !sites.empty()) result += "\n" + sites_table(sites);
  const json links = find(status, {"links"});
  if (links.is_array() && !links.empty()) result += "\n" + links_table(links);
  const json agents = find(status, {"agents"});
  if (agents.is_array() && !agents.empty()) result += "\n" + agents_table(agents);
  return result;
}

std::string links_table(const json& links) {
  std::vector<Row> rows;
  for (const json& link : list_of(links, "links")) {
    const std::string via = text_of(find(link, {"via"}));
    rows.push_back({text_of(find(link, {"peer"})), via == kAbsent ? up_or_down(find(link, {"up"})) : "over " + via,
                    measured(find(link, {"rtt_seconds", "p50"}), human_seconds), text_of(find(link, {"streams"})),
                    formatted(find(link, {"sent_bytes"}), human_bytes), formatted(find(link, {"received_bytes"}), human_bytes),
                    measured(find(link, {"send_bits_per_second"}), human_rate), measured(find(link, {"observed_bits_per_value"}), plain),
                    text_of(find(link, {"reason"}))});
  }
  return format_table({"PEER", "LINK", "RTT", "STREAMS", "SENT", "RECEIVED", "RATE", "BITS", "REASON"}, rows);
}

std::string rounds_table(const json& rounds) {
  std::vector<Row> rows;
  for (const json& round : list_of(rounds, "rounds")) {
    rows.push_back({text_of(find(round, {"round"})), text_of(find(round, {"outcome"})), joined(find(round, {"sites"})),
                    text_of(find(round, {"rate", "plan"})), measured(find(round, {"bits_per_value"}), plain),
                    measured(find(round, {"step"}), plain), formatted(find(round, {"seconds"}), human_seconds),
                    formatted(find(round, {"sent_bytes"}), human_bytes), text_of(find(round, {"loss"})),
                    text_of(find(round, {"state_digest"})).substr(0, 12), text_of(find(round, {"reason"}))});
  }
  return format_table({"ROUND", "OUTCOME", "SITES", "PLAN", "BITS", "STEP", "TIME", "SENT", "LOSS", "STATE", "REASON"}, rows);
}

std::string wan_table(const json& wan) {
  std::vector<Row> rows;
  const auto percent = [](double share) { return fmt::format("{:.2f} %", 100.0 * share); };
  for (const json& path : list_of(wan, "paths")) {
    rows.push_back({text_of(find(path, {"from"})), text_of(find(path, {"to"})), formatted(find(path, {"low_bits_per_second"}), human_rate),
                    formatted(find(path, {"median_bits_per_second"}), human_rate),
                    measured(find(path, {"rtt_seconds", "min"}), human_seconds),
                    measured(find(path, {"rtt_seconds", "p95"}), human_seconds), formatted(find(path, {"jitter_seconds"}), human_seconds),
                    formatted(find(path, {"loss"}), percent), text_of(find(path, {"method"})),
                    measured(find(path, {"confidence"}), plain), formatted(find(path, {"age_seconds"}), human_seconds)});
  }
  return format_table({"FROM", "TO", "LOW", "MEDIAN", "RTT", "RTT95", "JITTER", "LOSS", "METHOD", "CONFIDENCE", "AGE"}, rows);
}

std::string topology_table(const json& topology) {
  std::vector<Row> rows;
  const auto gb = [](double value) { return fmt::format("{:.3g}", value); };
  for (const json& link : list_of(topology, "links")) {
    rows.push_back({text_of(find(link, {"from"})), text_of(find(link, {"to"})), formatted(find(link, {"gb_per_second"}), gb),
                    formatted(find(link, {"latency_us"}), gb), formatted(find(link, {"promised_gb_per_second"}), gb)});
  }
  const std::string line = probe_line(find(topology, {"topology"}));
  if (rows.empty()) return line.empty() ? "nothing is measured: one rank, or topology.probe is off\n" : line;
  return line + format_table({"FROM", "TO", "GB/S", "US", "PROMISED"}, rows);
}

}  // namespace sluice::gateway
