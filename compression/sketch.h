#pragma once

// A small histogram of |a| (delta times weight plus residual) from which the bits at any step are predicted before anything is
// coded, and from which whoever opens a round computes its step. 8 bins per octave between 2^-60 and 2^60; smaller values count
// as zeros, larger ones in the last bin. All arithmetic is basic IEEE double without libm: the same bytes give the same step on
// every machine. Value type; not synchronised.

#include <array>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/result.h"
#include "compression/limits.h"

namespace sluice::compression {

class Sketch {
 public:
  Sketch() = default;

  // Counts a sample of weight * delta + residual: runs of 256 values, one of every `stride` runs (1 = all). An empty residual
  // counts as zeros. Values that are not finite are skipped. REQUIRES: residual empty or of delta's size, stride >= 1.
  void add(std::span<const float> delta, float weight, std::span<const float> residual, std::uint32_t stride = 8);

  void merge(const Sketch& other);

  [[nodiscard]] std::uint64_t samples() const { return samples_; }

  // At most kSketchBytesMax bytes.
  [[nodiscard]] ByteVector to_bytes() const;
  // Errors: kFrameTruncated, kFrameBadHeader.
  static Result<Sketch> parse(ByteSpan bytes);

  [[nodiscard]] const std::array<std::uint32_t, kSketchBins>& bins() const { return bins_; }
  [[nodiscard]] std::uint64_t zeros() const { return zeros_; }

  bool operator==(const Sketch&) const = default;

 private:
  std::array<std::uint32_t, kSketchBins> bins_{};  // saturating
  std::uint64_t zeros_ = 0;
  std::uint64_t samples_ = 0;
};

// Bits per value of a frame coded at `step`, coder overhead included, headers not. Values are the sketch's times `scale`.
// REQUIRES: step within kGridStepMin .. kGridStepMax, scale > 0. 0 for an empty sketch.
double predict_bits(const Sketch& sketch, float step, double scale = 1.0);

// Mean square of the sketched values, and of what rounding them to multiples of `step` leaves out. 0 for an empty sketch.
double mean_square(const Sketch& sketch);
double residual_mean_square(const Sketch& sketch, double step);

struct SiteSketch {
  const Sketch* sketch = nullptr;
  double weight_scale = 1.0;  // what the sketched values are multiplied with before they are coded
};

// Mean over the sites of predict_bits.
double predict_bits_mean(std::span<const SiteSketch> sites, float step);

// Bits per value of the coded sum of independent contributions. Correlated sites need more: add the excess seen in past rounds.
double predict_sum_bits(std::span<const SiteSketch> sites, float step);

// The step whose predict_bits_mean is nearest to `target_bits_mean` from below or equal. Steps have 9 significant bits.
// Without samples, or with zeros only, any step serves: the result is 1.
float choose_step(std::span<const SiteSketch> sites, double target_bits_mean);

}  // namespace sluice::compression
