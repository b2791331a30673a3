#pragma once

// A token bucket shared by all bulk connections of the gateway: bytes at a set rate, bursts of at most 10 ms (one turn at least).
// Thread-safe. Time is passed in.

#include <cstddef>
#include <mutex>

#include "base/clock.h"
#include "base/units.h"

namespace sluice::gateway::internal {

class RateLimiter {
 public:
  // REQUIRES: rate.value > 0.
  explicit RateLimiter(BitsPerSecond rate);

  // Takes `bytes` and returns zero, or takes nothing and returns how long until there will be as many.
  Duration take(std::size_t bytes, TimePoint now);

 private:
  const double bytes_per_second_;
  const double burst_bytes_;
  std::mutex mutex_;
  double tokens_;
  TimePoint filled_at_{};
};

}  // namespace sluice::gateway::internal
