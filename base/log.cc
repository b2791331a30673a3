#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>

namespace sluice {
namespace {

std::atomic<bool> json_lines{false};

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto created = spdlog::stderr_logger_mt("sluice");
    created->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %-7l %v", spdlog::pattern_time_type::utc);
    created->flush_on(spdlog::level::info);
    return created;
  }();
  return *instance;
}

// spdlog does not escape %v: a message from the network must not be able to break a line or a JSON string.
std::string escape(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  for (const char character : text) {
    if (static_cast<unsigned char>(character) < 0x20 || character == 0x7f) {
      escaped += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(character)));
    } else {
      if (json_lines && (character == '"' || character == '\\')) escaped += '\\';
      escaped += character;
    }
  }
  return escaped;
}

constexpr spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void configure_log(LogFormat format, LogLevel level) {
  json_lines = format == LogFormat::kJson;
  logger().set_level(to_spdlog(level));
  logger().set_pattern(format == LogFormat::kJson ? R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})"
                                                  : "%Y-%m-%dT%H:%M:%S.%eZ %-7l %v",
                       spdlog::pattern_time_type::utc);
}

void log_line(LogLevel level, std::string_view component, std::string_view message) {
  if (json_lines) {
    logger().log(to_spdlog(level), R"("component":"{}","message":"{}")", component, escape(message));
  } else {
    logger().log(to_spdlog(level), "{}: {}", component, escape(message));
  }
}

}  // namespace sluice
