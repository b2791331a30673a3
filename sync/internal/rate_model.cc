#include "sync/internal/rate_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/assert.h"
#include "compression/frame.h"
#include "compression/limits.h"

namespace sluice::sync {

double RateBits::mean() const {
  if (contributions.empty()) return 0.0;
  return std::accumulate(contributions.begin(), contributions.end(), 0.0) / static_cast<double>(contributions.size());
}

RateBits plain_bits(std::uint8_t codec, std::size_t members) {
  const double bits = static_cast<compression::Codec>(codec) == compression::Codec::kBf16 ? 16.0 : 32.0;
  return {std::vector<double>(members, bits), 32.0};
}

RateModel::RateModel(const std::vector<RateMember>& members, std::uint64_t values, std::uint32_t chunks, std::vector<double> correction,
                     std::optional<double> excess)
    : members_(members),
      values_(static_cast<double>(values)),
      chunks_(static_cast<double>(chunks)),
      correction_(std::move(correction)),
      excess_(excess),
      sketch_of_(members.size()) {
  double own = 0.0;
  double all = 0.0;
  for (std::size_t member = 0; member < members_.size(); ++member) {
    const auto& sketch = members_[member].sketch;
    if (!sketch || sketch->samples() == 0) continue;
    sketch_of_[member] = sketches_.size();
    sketches_.push_back({sketch.get(), members_[member].weight_scale});
    const double size = std::sqrt(compression::mean_square(*sketch)) * members_[member].weight_scale;
    own += size * size;
    all += size;
  }
  // Variance of a sum of correlated deltas over that of independent ones; half its log2 is what the sum costs more.
  if (own > 0.0) correlated_excess_ = 0.5 * std::log2(1.0 + kDeltaCorrelation * (all * all - own) / own);
}

double RateModel::sketch_bits(std::size_t member, float step) const {
  if (!sketch_of_[member]) return 0.0;
  const compression::SiteSketch& site = sketches_[*sketch_of_[member]];
  return compression::predict_bits(*site.sketch, step, site.weight_scale);
}

RateBits RateModel::bits(float step) const {
  RateBits result;
  double total = 0.0;
  std::size_t known = 0;
  for (std::size_t member = 0; member < members_.size(); ++member) {
    const double bits = correction_[member] * sketch_bits(member, step);
    result.contributions.push_back(bits);
    total += bits;
    known += sketch_of_[member] ? 1 : 0;
  }
  for (std::size_t member = 0; member < members_.size(); ++member) {
    if (!sketch_of_[member] && known > 0) result.contributions[member] = total / static_cast<double>(known);
  }
  const double independent = sketch_update_bits(step);
  // Below two bits part of what correlates rounds to the same zeros.
  const double expected = correlated_excess_ * std::min(1.0, result.mean() / 2.0);
  result.update = std::max(0.0, independent + excess_.value_or(expected));
  return result;
}

float RateModel::smallest_step(const std::function<bool(const RateBits&)>& fits) const {
  const bool has_values = std::any_of(sketches_.begin(), sketches_.end(), [](const compression::SiteSketch& site) {
    return site.sketch->samples() > site.sketch->zeros();
  });
  if (!has_values) return 1.0F;
  constexpr std::uint32_t kShift = 15;
  std::uint32_t low = std::bit_cast<std::uint32_t>(compression::kGridStepMin) >> kShift;
  std::uint32_t high = std::bit_cast<std::uint32_t>(compression::kGridStepMax) >> kShift;
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (fits(bits(std::bit_cast<float>(middle << kShift)))) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return std::bit_cast<float>(low << kShift);
}

topology::WanTraffic RateModel::traffic(const RateBits& bits) const {
  topology::WanTraffic traffic;
  const double overhead = 8.0 * kFrameOverheadBytes * chunks_;
  for (const double each : bits.contributions) traffic.contributions.push_back((each * values_ + overhead) * kTlsFactor);
  traffic.update = (bits.update * values_ + overhead) * kTlsFactor;
  return traffic;
}

double RateModel::link_bytes(const RateBits& bits, const topology::WanPlan& way, std::size_t from, std::size_t to) const {
  return topology::plan_link_bits(traffic(bits), way, from, to) / 8.0;
}

double RateModel::transfer_seconds(const RateBits& bits, const topology::WanPlan& way, const topology::WanMatrix& matrix) const {
  return topology::plan_transfer_seconds(matrix, traffic(bits), way);
}

std::vector<double> shares_of(const std::vector<SiteId>& owners, const std::vector<RateMember>& members, std::uint32_t chunks) {
  SLUICE_ASSERT(!owners.empty() && chunks > 0);
  std::vector<double> shares(members.size(), 0.0);
  for (std::size_t slot = 0; slot < std::min<std::size_t>(owners.size(), chunks); ++slot) {
    const auto member = std::find_if(members.begin(), members.end(), [&](const RateMember& each) { return each.site == owners[slot]; });
    if (member == members.end()) continue;
    const std::size_t owned = (chunks - slot - 1) / owners.size() + 1;
    shares[static_cast<std::size_t>(member - members.begin())] += static_cast<double>(owned) / static_cast<double>(chunks);
  }
  return shares;
}

}  // namespace sluice::sync
