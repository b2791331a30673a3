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

// Length of the UTF-8 sequence that starts the text, or 0 when it starts with none (overlong forms and surrogates included: RFC 3629).
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t index) { return static_cast<unsigned char>(text[index]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (std::size_t index = 1; index < length; ++index) {
    if ((byte(index) & 0xc0) != 0x80) return 0;
  }
  const bool is_overlong = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);
  const bool is_outside = (lead == 0xed && byte(1) >= 0xa0) || (lead == 0xf4 && byte(1) >= 0x90);
  return is_overlong || is_outside ? 0 : length;
}

// spdlog does not escape %v: a message from the network must not be able to break a line or a JSON string.
std::string escape(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const char character = text.front();
    if (length == 0) {
      escaped += "\xef\xbf\xbd";  // U+FFFD, the replacement character
    } else if (static_cast<unsigned char>(character) < 0x20 || character == 0x7f) {
      escaped += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(character)));
    } else {
      if (json_lines && (character == '"' || character == '\\')) escaped += '\\';
      escaped += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
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
  logger().set_pattern(format == LogFormat::kJson ? R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})" : "%Y-%m-%dT%H:%M:%S.%eZ %-7l %v",
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
