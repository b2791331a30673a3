#include "sync/ratio_controller.h"

// What the controller remembers from round to round. Decisions themselves are in internal/rate_decision.cc.
//
// Energies: a site codes a = w * delta + residual. The sketch gives the mean square of a; what coding leaves out of it follows from the
// sketch and the step, and is the residual of the next round. Residual and delta are nearly uncorrelated (plain rounding delays nothing),
// so the mean square of w * delta is the difference of the two. Sums over the sites count the deltas' correlation.

#include <algorithm>
#include <cmath>

#include "base/assert.h"
#include "compression/frame.h"
#include "sync/internal/rate_decision.h"
#include "sync/internal/rate_model.h"

namespace sluice::sync {
namespace {

constexpr double kSmoothing = 0.5;  // share of the newest measurement in a correction
constexpr double kCorrectionMin = 0.5;
constexpr double kCorrectionMax = 2.0;
constexpr double kExcessMax = 4.0;  // bits, either way
constexpr std::size_t kExchangesKept = 8;
// Guards. Residual over delta, both summed over the sites: harmless runs stay below 1.5, those that lose are at 3.7 and above.
constexpr double kResidualHigh = 2.0;
constexpr double kResidualLow = 1.5;
constexpr double kResidualStep = 1.25;
constexpr double kNormChangeEnergy = 4.0;  // twice or half the norm
constexpr double kDeltaShareMin = 0.02;    // of the coded energy: what the difference can still tell

double to_seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

double smoothed(double before, double now) { return before + kSmoothing * (now - before); }

bool is_grid_codec(std::uint8_t codec) { return compression::is_grid(static_cast<compression::Codec>(codec)); }

// Energy of a sum of correlated parts, from their own.
double summed_energy(const std::vector<double>& energies) {
  double own = 0.0;
  double root = 0.0;
  for (const double energy : energies) {
    own += energy;
    root += std::sqrt(energy);
  }
  return own + kDeltaCorrelation * (root * root - own);
}

// How long the last round's bytes take on the links as they are known now. A link that no transfer has filled yet sets no pace.
double last_transfer(const RatePlan& last, const std::vector<RateMember>& members, double LinkReport::*which) {
  double seconds = 0.0;
  for (const LinkPlan& link : last.links) {
    double rate = 0.0;
    for (const RateMember& member : members) {
      if (member.site != link.from) continue;
      for (const LinkReport& report : member.report.links) rate = report.to == link.to ? report.*which : rate;
    }
    if (rate > 0.0) seconds = std::max(seconds, 8.0 * link.predicted_bytes / rate);
  }
  return seconds;
}

double rtt_max(const std::vector<RateMember>& members) {
  double seconds = 0.0;
  for (const RateMember& member : members) {
    for (const LinkReport& link : member.report.links) seconds = std::max(seconds, to_seconds(link.rtt_min));
  }
  return seconds;
}

class Observer {
 public:
  Observer(RatioController::Memory memory, const RatePolicy& policy, const std::vector<RateMember>& members, std::uint64_t values,
           std::uint32_t chunks)
      : memory_(std::move(memory)), policy_(policy), members_(members), values_(values), chunks_(chunks) {}

  RatioController::Memory observe() {
    memory_.has_norm_changed = false;
    if (!memory_.round) return std::move(memory_);
    correct_bits();
    correct_time();
    guard();
    return std::move(memory_);
  }

  // Of each member with a sketch, by site: mean square of its weighted delta.
  [[nodiscard]] std::optional<double> delta_energy(const RateMember& member) const {
    if (!member.sketch || member.sketch->samples() == 0) return std::nullopt;
    const double coded = compression::mean_square(*member.sketch) * member.weight_scale * member.weight_scale;
    const auto& known = memory_.members[member.site.value];
    return std::max(coded - (known ? known->residual_energy : 0.0), kDeltaShareMin * coded);
  }

 private:
  [[nodiscard]] bool speaks_of_last(const RateMember& member) const { return member.report.measured_round == *memory_.round; }

  void correct_bits() {
    if (!is_grid_codec(memory_.opened.codec)) return;
    const double headers = values_ == 0 ? 0.0 : 8.0 * 56.0 * static_cast<double>(chunks_) / static_cast<double>(values_);
    double update = 0.0;
    for (const RateMember& member : members_) {
      if (!speaks_of_last(member)) continue;
      update = std::max(update, member.report.update_bits - headers);
      const auto& known = memory_.members[member.site.value];
      const double measured = member.report.contribution_bits - headers;
      if (!known || known->predicted_bits <= 0.05 || measured <= 0.0) continue;
      double& correction = memory_.correction[member.site.value];
      const double ratio = std::clamp(measured / known->predicted_bits, kCorrectionMin, kCorrectionMax);
      correction = correction > 0.0 ? smoothed(correction, ratio) : ratio;
    }
    if (update <= 0.0 || memory_.predicted_update_bits <= 0.0) return;
    const double excess = std::clamp(update - memory_.predicted_update_bits, -kExcessMax, kExcessMax);
    memory_.update_excess = memory_.update_excess ? smoothed(*memory_.update_excess, excess) : excess;
  }

  void correct_time() {
    double encode = 0.0;
    double exchange = 0.0;
    bool is_reported = false;
    for (const RateMember& member : members_) {
      if (!speaks_of_last(member)) continue;
      is_reported = true;
      encode = std::max(encode, to_seconds(member.report.encode));
      exchange = std::max(exchange, to_seconds(member.report.exchange));
    }
    if (!is_reported) return;
    if (encode > 0.0 && is_grid_codec(memory_.opened.codec)) {
      double& known = memory_.grid_encode_seconds;
      known = known > 0.0 ? smoothed(known, encode) : encode;
    }
    if (memory_.opened.plan.links.empty() || exchange <= 0.0) return;
    // Chunks are sent while others are coded: of the two times the longer one counts.
    const auto beside = [&](double LinkReport::*which) {
      return exchange - std::max(encode, last_transfer(memory_.opened.plan, members_, which));
    };
    memory_.exchanges.push_back({std::max(0.0, beside(&LinkReport::low_rate)), beside(&LinkReport::median_rate)});
    if (memory_.exchanges.size() > kExchangesKept) memory_.exchanges.erase(memory_.exchanges.begin());
  }

  void guard() {
    std::vector<double> deltas;
    std::vector<double> before;
    double residual = 0.0;
    for (const RateMember& member : members_) {
      const auto& known = memory_.members[member.site.value];
      const auto delta = delta_energy(member);
      if (!known || !delta) return;  // of a sum nothing can be said when a part is missing
      deltas.push_back(*delta);
      before.push_back(known->delta_energy);
      residual += known->residual_energy;
    }
    const double now = summed_energy(deltas);
    const double then = summed_energy(before);
    if (now <= 0.0 || then <= 0.0) return;
    memory_.has_norm_changed = now > kNormChangeEnergy * then || kNormChangeEnergy * now < then;
    const double ratio = std::sqrt(residual / now);
    if (ratio > kResidualHigh) {
      const double bits = std::max(memory_.residual_floor, memory_.opened.plan.target_bits);
      memory_.residual_floor = std::min(policy_.max_bits, kResidualStep * bits);
    } else if (ratio < kResidualLow && memory_.residual_floor > 0.0) {
      memory_.residual_floor /= kResidualStep;
      if (memory_.residual_floor <= policy_.min_bits) memory_.residual_floor = 0.0;
    }
  }

  RatioController::Memory memory_;
  const RatePolicy& policy_;
  const std::vector<RateMember>& members_;
  std::uint64_t values_;
  std::uint32_t chunks_;
};

}  // namespace

std::string_view rate_reason_name(RateReason reason) {
  switch (reason) {
    case RateReason::kFixed:
      return "fixed";
    case RateReason::kWarmup:
      return "warm-up";
    case RateReason::kBudget:
      return "budget";
    case RateReason::kCeiling:
      return "ceiling";
    case RateReason::kFloor:
      return "floor";
    case RateReason::kUnknown:
      return "unknown";
    case RateReason::kNormChange:
      return "norm change";
    case RateReason::kResidual:
      return "residual";
    case RateReason::kCodecCost:
      return "codec cost";
    case RateReason::kNoSketch:
      return "no sketch";
  }
  return "unknown";
}

std::optional<SiteId> detour_of(const std::vector<DetourPlan>& detours, SiteId from, SiteId to, ChunkId chunk) {
  // Multiples of the golden ratio, whole parts left out, are spread evenly over 0 to 1.
  constexpr double kGoldenRatio = 0.6180339887498949;
  double place = kGoldenRatio * chunk.value;
  place -= std::floor(place);
  for (const DetourPlan& detour : detours) {
    if (detour.from != from || detour.to != to) continue;
    if (place < detour.share) return detour.over;
    place -= detour.share;
  }
  return std::nullopt;
}

RatioController::Memory RatioController::observed(const std::vector<RateMember>& members, std::uint64_t values,
                                                  std::uint32_t chunks) const {
  return Observer(memory_, policy_, members, values, chunks).observe();
}

RateDecision RatioController::decide(RoundId round, const std::vector<RateMember>& members, std::uint64_t values, std::uint32_t chunks,
                                     bool may_be_direct) const {
  const Memory memory = observed(members, values, chunks);
  return RateDecider(policy_, memory, round, members, values, chunks, may_be_direct).decide();
}

void RatioController::learn(RoundId round, const RateDecision& opened, const std::vector<RateMember>& members, std::uint64_t values,
                            std::uint32_t chunks) {
  memory_ = observed(members, values, chunks);
  const Observer energies(memory_, policy_, members, values, chunks);
  std::array<std::optional<MemberMemory>, kSitesMax> learned;
  std::vector<compression::SiteSketch> sketches;
  const double kept_energy = policy_.residual_share * policy_.residual_share;
  const bool is_coded = is_grid_codec(opened.codec) && opened.step > 0.0F;
  for (const RateMember& member : members) {
    const auto delta = energies.delta_energy(member);
    if (!delta) continue;
    MemberMemory& known = learned[member.site.value].emplace();
    known.delta_energy = *delta;
    if (!is_coded) continue;
    const double scale = member.weight_scale;
    known.predicted_bits = compression::predict_bits(*member.sketch, opened.step, scale);
    const double left_out = compression::residual_mean_square(*member.sketch, static_cast<double>(opened.step) / scale);
    known.residual_energy = kept_energy * scale * scale * left_out;
    sketches.push_back({member.sketch.get(), scale});
  }
  memory_.round = round;
  // Overheads are kept as rounds with the present kind of plan would have had them.
  const double trips = topology::plan_round_trips(opened.way()) - topology::plan_round_trips(memory_.opened.way());
  for (auto& exchange : memory_.exchanges) {
    exchange.overhead = std::max(0.0, exchange.overhead + trips * rtt_max(members));
    exchange.surplus += trips * rtt_max(members);
  }
  memory_.opened = opened;
  memory_.members = std::move(learned);
  const bool is_whole = is_coded && sketches.size() == members.size();
  memory_.predicted_update_bits = is_whole ? compression::predict_sum_bits(sketches, opened.step) : 0.0;
}

}  // namespace sluice::sync
