#pragma once

// The simulator's only source of chance: splitmix64, the same numbers for the same seed on every machine.

#include <cstdint>

#include "base/clock.h"

namespace sluice::sim {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL + 0x1234567ULL) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  // 0 .. bound - 1. REQUIRES: bound > 0.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }
  // low .. high, both included.
  std::uint64_t between(std::uint64_t low, std::uint64_t high) { return low + below(high - low + 1); }
  Duration between(Duration low, Duration high) {
    return Duration(static_cast<Duration::rep>(between(static_cast<std::uint64_t>(low.count()), static_cast<std::uint64_t>(high.count()))));
  }
  bool chance(double probability) { return static_cast<double>(next() >> 11) * 0x1.0p-53 < probability; }

 private:
  std::uint64_t state_;
};

}  // namespace sluice::sim
