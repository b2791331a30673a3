#pragma once

// Logging for the shells (gateway, site agent, tests). Cores return reasons instead. Thread-safe; lines are UTC, logfmt on a terminal or
// one JSON object a line. Key material never goes through here.

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace sluice {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };

// Called once by main before threads start; without it lines of level info and up go to stderr as text.
void configure_log(LogFormat format, LogLevel level);

// `component` is one word: "link", "round", "agent". `message` is one line; control characters in it are escaped.
void log_line(LogLevel level, std::string_view component, std::string_view message);

template <typename... Args>
void log_info(std::string_view component, fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kInfo, component, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(std::string_view component, fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kWarning, component, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_error(std::string_view component, fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kError, component, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_debug(std::string_view component, fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kDebug, component, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace sluice
