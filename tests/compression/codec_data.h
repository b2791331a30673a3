#pragma once

// Deltas for codec tests: seeded, the same on every machine. Not thread-safe.

#include <cmath>
#include <cstdint>
#include <vector>

namespace sluice::compression {

// xorshift: small, seeded, no library behaviour in it.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(scatter(seed)) {}
  std::uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ * 0x2545F4914F6CDD1DULL;
  }
  // Uniform in (0, 1).
  double uniform() { return (static_cast<double>(next() >> 12) + 0.5) * 0x1p-52; }
  double gaussian() {
    constexpr double kTwoPi = 6.283185307179586;
    return std::sqrt(-2.0 * std::log(uniform())) * std::cos(kTwoPi * uniform());
  }
  double laplace() {
    const double magnitude = -std::log(uniform()) * 0.7071067811865476;
    return (next() & 1U) != 0 ? magnitude : -magnitude;
  }
  // Student's t with 4 degrees of freedom, unit variance: heavy tails.
  double heavy() {
    double chi = 0.0;
    for (int term = 0; term < 4; ++term) {
      const double g = gaussian();
      chi += g * g;
    }
    return gaussian() / std::sqrt(chi / 4.0) * 0.7071067811865476;
  }

 private:
  // splitmix64: neighbouring seeds give unrelated streams.
  static std::uint64_t scatter(std::uint64_t seed) {
    std::uint64_t z = (seed + 1) * 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return (z ^ (z >> 31)) | 1U;
  }
  std::uint64_t state_;
};

enum class Shape { kGaussian, kLaplace, kHeavy };

inline std::vector<float> random_values(Shape shape, std::size_t count, std::uint64_t seed, double scale = 1.0) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const double unit = shape == Shape::kGaussian ? random.gaussian() : shape == Shape::kLaplace ? random.laplace() : random.heavy();
    value = static_cast<float>(unit * scale);
  }
  return values;
}

}  // namespace sluice::compression
