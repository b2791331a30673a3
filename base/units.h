#pragma once

// Units as types, where a bare number could be misread. Value types, any thread.

#include <compare>
#include <cstdint>

namespace sluice {

// A count of bytes.
struct Bytes {
  std::uint64_t count = 0;
  constexpr auto operator<=>(const Bytes&) const = default;
};

constexpr Bytes operator+(Bytes a, Bytes b) { return Bytes{a.count + b.count}; }

// A rate of a link or a limit on it. 0 = none stated.
struct BitsPerSecond {
  double value = 0.0;
  constexpr auto operator<=>(const BitsPerSecond&) const = default;
};

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;

}  // namespace sluice
