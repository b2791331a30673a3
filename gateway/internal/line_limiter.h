#pragma once

// LineLimiter: how many log lines of one kind strangers may cause. The first few of a kind in a second are written, the others counted.
// Pure; not thread-safe; times are passed in.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/clock.h"

namespace sluice::gateway::internal {

inline constexpr std::uint64_t kLinesPerSecond = 5;

class LineLimiter {
 public:
  // Nothing: keep silent. Otherwise how many lines of the kind were kept silent since the last one that was written. REQUIRES: few kinds.
  std::optional<std::uint64_t> admit(const std::string& kind, TimePoint now) {
    Kind& state = kinds_[kind];
    if (now - state.second_began >= std::chrono::seconds(1)) {
      state.second_began = now;
      state.written = 0;
    }
    if (state.written >= kLinesPerSecond) {
      ++state.unsaid;
      return std::nullopt;
    }
    ++state.written;
    const std::uint64_t unsaid = state.unsaid;
    state.unsaid = 0;
    return unsaid;
  }

 private:
  struct Kind {
    TimePoint second_began{};
    std::uint64_t written = 0;
    std::uint64_t unsaid = 0;
  };
  std::map<std::string, Kind> kinds_;
};

}  // namespace sluice::gateway::internal
