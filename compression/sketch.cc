#include "compression/sketch.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

#include "base/assert.h"
#include "compression/internal/grid_value.h"

// From a histogram of magnitudes to bits. Inside a bin the density is taken as flat, signs as fair. For a step, the probability of each
// integer up to kExactIntegers is the share of the bins that its cell covers; beyond it cells are narrower than bins, and a bin of
// probability p and width w costs p (log2(w / step) - log2 p), the usual limit of fine cells. log2 is computed here from
// exact operations, because libm may differ in the last bit from machine to machine and every site must find the same step.

namespace sluice::compression {
namespace {

constexpr int kExponentMin = -60;        // first bin begins at 2^kExponentMin
constexpr std::uint32_t kBinShift = 20;  // bits of fp32 below the 3 leading mantissa bits
constexpr std::uint32_t kFirstBinBits = static_cast<std::uint32_t>(127 + kExponentMin) << 3;
constexpr std::size_t kExactIntegers = 96;
// What the coders need beyond the entropy, per value (dense) and per integer that is not 0 (sparse). Measured.
constexpr double kDenseOverhead = 0.009;
constexpr double kSparseOverhead = 0.05;
constexpr std::uint32_t kSketchMagic = 0x314B4C53;  // the bytes "SLK1"

// log2 of a positive finite number by halving the mantissa range and an atanh series; about 1e-15, the same on every machine.
double exact_log2(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  int exponent = static_cast<int>((bits >> 52) & 0x7ffU) - 1023;
  double mantissa = std::bit_cast<double>((bits & 0xfffffffffffffULL) | 0x3ff0000000000000ULL);
  if (mantissa > 1.4142135623730951) {
    mantissa *= 0.5;
    ++exponent;
  }
  const double z = (mantissa - 1.0) / (mantissa + 1.0);
  const double square = z * z;
  double series = 0.0;
  for (int term = 21; term >= 1; term -= 2) series = series * square + 1.0 / static_cast<double>(term);
  return static_cast<double>(exponent) + 2.0 * z * series * 1.4426950408889634;
}

double entropy_term(double probability) { return probability > 0.0 ? -probability * exact_log2(probability) : 0.0; }

double bin_edge(std::size_t bin) {
  const std::uint32_t bits = (kFirstBinBits + static_cast<std::uint32_t>(bin)) << kBinShift;
  return static_cast<double>(std::bit_cast<float>(bits));
}

// Probabilities of |q| = 0, 1, ... kExactIntegers - 1, and the entropy of the rest.
struct Magnitudes {
  std::array<double, kExactIntegers> probability{};
  double far_probability = 0.0;
  double far_entropy = 0.0;  // sum over the far bins of p (log2(w / step) - log2 p)
};

// Spreads one bin of probability `mass` over cells; edges are in units of the step.
void add_bin(Magnitudes& magnitudes, double low, double high, double mass) {
  constexpr double kFar = static_cast<double>(kExactIntegers) - 0.5;
  const double width = high - low;
  if (high > kFar) {
    const double share = low >= kFar ? 1.0 : (high - kFar) / width;
    const double far = mass * share;
    magnitudes.far_probability += far;
    const double cells = std::max(1.0, width * share);
    magnitudes.far_entropy += far * exact_log2(cells) + entropy_term(far);
    if (low >= kFar) return;
  }
  const double end = std::min(high, kFar);
  auto cell = static_cast<std::size_t>(low + 0.5);
  for (double from = low; from < end; ++cell) {
    const double to = std::min(end, static_cast<double>(cell) + 0.5);
    if (cell < kExactIntegers) magnitudes.probability[cell] += mass * (to - from) / width;
    from = to;
  }
}

Magnitudes spread(const Sketch& sketch, double step) {
  Magnitudes magnitudes;
  const double each = 1.0 / static_cast<double>(sketch.samples());
  magnitudes.probability[0] += static_cast<double>(sketch.zeros()) * each;
  for (std::size_t bin = 0; bin < kSketchBins; ++bin) {
    const std::uint32_t count = sketch.bins()[bin];
    if (count != 0) add_bin(magnitudes, bin_edge(bin) / step, bin_edge(bin + 1) / step, static_cast<double>(count) * each);
  }
  return magnitudes;
}

// Mean of (x - nearest integer)^2 over low <= x < high.
double rounding_error(double low, double high) {
  constexpr double kFlat = 1.0 / 12.0;
  constexpr double kFarFrom = 64.0;  // bins are wider than several integers from here on
  if (high > kFarFrom) return kFlat;
  const auto cube = [](double x) { return x * x * x; };
  double sum = 0.0;
  auto cell = static_cast<double>(static_cast<int>(low + 0.5));
  for (double from = low; from < high; cell += 1.0) {
    const double to = std::min(high, cell + 0.5);
    sum += (cube(to - cell) - cube(from - cell)) / 3.0;
    from = to;
  }
  return sum / (high - low);
}

double with_overhead(double entropy, double nonzero_share) {
  return entropy + std::min(kDenseOverhead, kSparseOverhead * nonzero_share + 0.0005);
}

// Distribution of q over -(n-1) .. n-1, both signs.
std::vector<double> signed_distribution(const Magnitudes& magnitudes, std::size_t integers) {
  std::vector<double> result(2 * integers - 1, 0.0);
  result[integers - 1] = magnitudes.probability[0];
  for (std::size_t magnitude = 1; magnitude < integers; ++magnitude) {
    const double half = 0.5 * magnitudes.probability[magnitude];
    result[integers - 1 + magnitude] = half;
    result[integers - 1 - magnitude] = half;
  }
  return result;
}

std::vector<double> convolve(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> sum(a.size() + b.size() - 1, 0.0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == 0.0) continue;
    for (std::size_t j = 0; j < b.size(); ++j) sum[i + j] += a[i] * b[j];
  }
  return sum;
}

}  // namespace

void Sketch::add(std::span<const float> delta, float weight, std::span<const float> residual, std::uint32_t stride) {
  SLUICE_ASSERT((residual.empty() || residual.size() == delta.size()) && stride >= 1);
  constexpr std::size_t kRun = 256;
  for (std::size_t run = 0; run < delta.size(); run += kRun * stride) {
    const std::size_t end = std::min(delta.size(), run + kRun);
    for (std::size_t at = run; at < end; ++at) {
      const float weighted = multiply(weight, delta[at]);
      const float input = residual.empty() ? weighted : compression::add(weighted, residual[at]);
      const std::uint32_t magnitude = float_bits(input) & 0x7fffffffU;
      if (is_non_finite_bits(magnitude)) continue;
      ++samples_;
      const std::uint32_t index = magnitude >> kBinShift;
      if (index < kFirstBinBits) {
        ++zeros_;
      } else {
        std::uint32_t& bin = bins_[std::min<std::size_t>(index - kFirstBinBits, kSketchBins - 1)];
        if (bin != std::numeric_limits<std::uint32_t>::max()) ++bin;
      }
    }
  }
}

void Sketch::merge(const Sketch& other) {
  for (std::size_t bin = 0; bin < kSketchBins; ++bin) {
    const std::uint64_t sum = std::uint64_t{bins_[bin]} + other.bins_[bin];
    bins_[bin] = static_cast<std::uint32_t>(std::min<std::uint64_t>(sum, std::numeric_limits<std::uint32_t>::max()));
  }
  zeros_ += other.zeros_;
  samples_ += other.samples_;
}

ByteVector Sketch::to_bytes() const {
  std::size_t first = 0;
  std::size_t end = kSketchBins;
  while (first < end && bins_[first] == 0) ++first;
  while (end > first && bins_[end - 1] == 0) --end;
  ByteVector bytes;
  bytes.reserve(24 + 4 * (end - first));
  ByteWriter writer(bytes);
  writer.write(kSketchMagic);
  writer.write(static_cast<std::uint16_t>(first));
  writer.write(static_cast<std::uint16_t>(end - first));
  writer.write(zeros_);
  writer.write(samples_);
  for (std::size_t bin = first; bin < end; ++bin) writer.write(bins_[bin]);
  return bytes;
}

Result<Sketch> Sketch::parse(ByteSpan bytes) {
  constexpr const char* kOperation = "parse sketch";
  ByteReader reader(bytes);
  const auto magic = reader.read<std::uint32_t>();
  const std::size_t first = reader.read<std::uint16_t>();
  const std::size_t count = reader.read<std::uint16_t>();
  Sketch sketch;
  sketch.zeros_ = reader.read<std::uint64_t>();
  sketch.samples_ = reader.read<std::uint64_t>();
  if (reader.failed()) return fail(ErrorCode::kFrameTruncated, kOperation, fmt::format("{} bytes", bytes.size()));
  if (magic != kSketchMagic || first + count > kSketchBins || sketch.samples_ >= (std::uint64_t{1} << 52)) {
    return fail(ErrorCode::kFrameBadHeader, kOperation, fmt::format("{} bins from {}, {} samples", count, first, sketch.samples_));
  }
  if (reader.remaining() < 4 * count) return fail(ErrorCode::kFrameTruncated, kOperation, fmt::format("{} bytes", bytes.size()));
  std::uint64_t total = sketch.zeros_;
  for (std::size_t bin = 0; bin < count; ++bin) {
    sketch.bins_[first + bin] = reader.read<std::uint32_t>();
    total += sketch.bins_[first + bin];
  }
  if (reader.remaining() != 0 || sketch.zeros_ > sketch.samples_ || total > sketch.samples_) {
    return fail(ErrorCode::kFrameBadHeader, kOperation, fmt::format("{} counted of {} samples", total, sketch.samples_));
  }
  return sketch;
}

double predict_bits(const Sketch& sketch, float step, double scale) {
  SLUICE_ASSERT(step >= kGridStepMin && step <= kGridStepMax && scale > 0.0, "step {}, scale {}", step, scale);
  if (sketch.samples() == 0) return 0.0;
  const Magnitudes magnitudes = spread(sketch, static_cast<double>(step) / scale);
  double entropy = entropy_term(magnitudes.probability[0]) + magnitudes.far_entropy;
  double signs = magnitudes.far_probability;
  for (std::size_t magnitude = 1; magnitude < kExactIntegers; ++magnitude) {
    entropy += entropy_term(magnitudes.probability[magnitude]);
    signs += magnitudes.probability[magnitude];
  }
  return with_overhead(entropy + signs, signs);
}

double mean_square(const Sketch& sketch) {
  double sum = 0.0;
  for (std::size_t bin = 0; bin < kSketchBins; ++bin) {
    if (sketch.bins()[bin] == 0) continue;
    const double low = bin_edge(bin);
    const double high = bin_edge(bin + 1);
    sum += static_cast<double>(sketch.bins()[bin]) * (low * low + low * high + high * high) / 3.0;
  }
  return sketch.samples() == 0 ? 0.0 : sum / static_cast<double>(sketch.samples());
}

double residual_mean_square(const Sketch& sketch, double step) {
  double sum = 0.0;
  for (std::size_t bin = 0; bin < kSketchBins; ++bin) {
    if (sketch.bins()[bin] == 0) continue;
    sum += static_cast<double>(sketch.bins()[bin]) * rounding_error(bin_edge(bin) / step, bin_edge(bin + 1) / step);
  }
  return sketch.samples() == 0 ? 0.0 : step * step * sum / static_cast<double>(sketch.samples());
}

double predict_bits_mean(std::span<const SiteSketch> sites, float step) {
  double total = 0.0;
  for (const SiteSketch& site : sites) total += predict_bits(*site.sketch, step, site.weight_scale);
  return sites.empty() ? 0.0 : total / static_cast<double>(sites.size());
}

double predict_sum_bits(std::span<const SiteSketch> sites, float step) {
  // Cells are coarsened by powers of two until every site fits the exact range: coarsening by 2 costs 1 bit, which is added back.
  double coarse = static_cast<double>(step);
  int shift = 0;
  std::vector<Magnitudes> magnitudes;
  for (bool fits = false; !fits; coarse *= 2.0, ++shift) {
    magnitudes.clear();
    fits = true;
    for (const SiteSketch& site : sites) {
      if (site.sketch->samples() == 0) continue;
      magnitudes.push_back(spread(*site.sketch, coarse / site.weight_scale));
      if (magnitudes.back().far_probability > 1e-4 && shift < 120) fits = false;
    }
    if (fits) break;
  }
  if (magnitudes.empty()) return 0.0;
  std::vector<double> sum{1.0};
  for (const Magnitudes& site : magnitudes) sum = convolve(sum, signed_distribution(site, kExactIntegers));
  double entropy = 0.0;
  double zero = sum[sum.size() / 2];
  for (const double probability : sum) entropy += entropy_term(probability);
  if (shift > 0) zero = 0.0;
  return with_overhead(entropy + static_cast<double>(shift), 1.0 - zero);
}

float choose_step(std::span<const SiteSketch> sites, double target_bits_mean) {
  const bool any =
      std::any_of(sites.begin(), sites.end(), [](const SiteSketch& site) { return site.sketch->samples() > site.sketch->zeros(); });
  if (!any) return 1.0F;
  // Steps of 9 significant bits, ordered like their bit patterns; bits fall as the step grows.
  constexpr std::uint32_t kShift = 15;
  std::uint32_t low = std::bit_cast<std::uint32_t>(kGridStepMin) >> kShift;
  std::uint32_t high = std::bit_cast<std::uint32_t>(kGridStepMax) >> kShift;
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    const double bits = predict_bits_mean(sites, std::bit_cast<float>(middle << kShift));
    if (bits <= target_bits_mean) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return std::bit_cast<float>(low << kShift);
}

}  // namespace sluice::compression
