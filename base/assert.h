#pragma once

// SLUICE_ASSERT(condition, "what was expected: {}", value): a programming error ends the process with file, line and values.
// On in every build. For what the world does to us (peer, file, network, configuration) return an Error instead.

#include <fmt/format.h>

#include <string>

namespace sluice {

// Prints the message to stderr and aborts. Any thread.
[[noreturn]] void panic(const char* file, int line, const std::string& message);

}  // namespace sluice

#define SLUICE_ASSERT(condition, ...)                                                                                     \
  do {                                                                                                                    \
    if (!(condition)) [[unlikely]] {                                                                                      \
      ::sluice::panic(__FILE__, __LINE__, "assertion failed: " #condition __VA_OPT__(". " + ::fmt::format(__VA_ARGS__))); \
    }                                                                                                                     \
  } while (false)
