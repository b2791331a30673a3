#include "topology/wan_estimator.h"

// How a rate comes out of byte counts. Samples of full use are joined to windows of about a round trip, because TCP moves its rate once in
// a round trip. At the begin of a stretch of full use the rate grows (slow start): windows count from the first that is not a quarter
// faster than the one before, or that reaches what is known already. The windows since the last change of the link are its regime; their
// percentiles, newer ones weighing more, are the estimate. A few windows in a row clearly off the median are a change: the regime begins
// anew with them, so that a step of the link is known before the transfer that met it ends. Stretches in which the sender had nothing to
// send say only that the link carries at least so much: they may raise the estimate and never lower it.
//
// What fails: a transfer shorter than the ramp never fills the link, and is reported as a bound; a competing flow that comes and goes
// within a window is averaged.

#include <algorithm>
#include <cmath>
#include <utility>

namespace sluice::topology {
namespace {

constexpr double kWindowSecondsMin = 0.1;
constexpr double kWindowSecondsMax = 0.5;
constexpr double kRampGrowth = 1.25;  // per window
constexpr std::size_t kWindowsMax = 128;
constexpr double kHalfLifeSeconds = 1.5;  // of full use
// A change of the link: so far from the median, for so long.
constexpr double kDownRatio = 0.75;
constexpr double kUpRatio = 1.35;
constexpr double kFarDownRatio = 0.5;
constexpr double kFarUpRatio = 2.0;
constexpr std::size_t kWindowsOfChange = 3;
constexpr std::size_t kWindowsOfFarChange = 2;
// An idle sender's rate counts when it is this much above what is known.
constexpr double kRaiseRatio = 1.1;
constexpr std::size_t kRttSamples = 128;
constexpr std::chrono::minutes kRttMemory{10};
constexpr double kSegmentsMemory = 50'000.0;
constexpr std::chrono::minutes kStaleAfter{15};
constexpr double kConfidentWindows = 5.0;

double to_seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

std::string_view estimate_method_name(EstimateMethod method) {
  switch (method) {
    case EstimateMethod::kNone:
      return "none";
    case EstimateMethod::kBound:
      return "bound";
    case EstimateMethod::kPassive:
      return "passive";
    case EstimateMethod::kProbe:
      return "probe";
  }
  return "none";
}

double WanEstimator::window_seconds() const {
  const double rtt = rtt_floor_ ? std::chrono::duration<double>(*rtt_floor_).count() : 0.0;
  return std::clamp(rtt, kWindowSecondsMin, kWindowSecondsMax);
}

void WanEstimator::on_goodput(const GoodputSample& sample, TimePoint now) {
  const double seconds = to_seconds(sample.length);
  if (seconds <= 0.0) return;
  if (!sample.is_saturated) {
    if (run_.is_open) end_run(now);
    return on_idle_sample(seconds, static_cast<double>(sample.bytes));
  }
  idle_ = Idle{};
  if (!run_.is_open || run_.is_probe != sample.is_probe) {
    if (run_.is_open) end_run(now);
    run_ = Run{};
    run_.is_open = true;
    run_.is_probe = sample.is_probe;
  }
  run_.seconds += seconds;
  run_.bytes += static_cast<double>(sample.bytes);
  if (run_.seconds < window_seconds()) return;
  const double rate = 8.0 * run_.bytes / run_.seconds;
  const double length = std::exchange(run_.seconds, 0.0);
  run_.bytes = 0.0;
  on_window(rate, length, run_.is_probe, now);
}

// Bytes that lay in a queue may come in a burst: only what lasts for two windows is a bound.
void WanEstimator::on_idle_sample(double seconds, double bytes) {
  idle_.seconds += seconds;
  idle_.bytes += bytes;
  if (idle_.seconds < window_seconds()) return;
  const double rate = 8.0 * idle_.bytes / idle_.seconds;
  const double lasting = std::min(rate, idle_.last_rate);
  idle_ = Idle{0.0, 0.0, rate};
  if (!windows_.empty()) raise_bound(lasting);
}

void WanEstimator::on_window(double rate, double seconds, bool is_probe, TimePoint now) {
  const double known = windows_.empty() ? 0.0 : percentile(0.5);
  if (run_.is_ramping) {
    const bool is_first = run_.windows == 0;
    const bool is_as_known = known > 0.0 && rate >= 0.9 * known;
    const bool has_settled = !is_first && rate < kRampGrowth * run_.last_rate;
    run_.is_ramping = !is_as_known && !has_settled;
  }
  ++run_.windows;
  run_.last_rate = rate;
  run_.best_rate = std::max(run_.best_rate, rate);
  if (run_.is_ramping) return raise_bound(rate);
  keep(Window{rate, seconds, is_probe, now});
}

void WanEstimator::end_run(TimePoint now) {
  // A last window of more than half the length counts; a transfer that never settled is a bound.
  if (!run_.is_ramping && run_.seconds > 0.5 * window_seconds()) {
    on_window(8.0 * run_.bytes / run_.seconds, run_.seconds, run_.is_probe, now);
  } else if (run_.is_ramping && run_.seconds > 0.0 && run_.windows == 0 && run_.seconds >= kWindowSecondsMin / 4) {
    raise_bound(8.0 * run_.bytes / run_.seconds);
  }
  run_ = Run{};
}

void WanEstimator::raise_bound(double rate) {
  if (windows_.empty()) {
    bound_ = std::max(bound_, rate);
    return;
  }
  // A rate above the estimate that the sender reached without filling the link: what is below it was wrong.
  if (rate <= kRaiseRatio * percentile(0.5)) return;
  for (Window& window : windows_) window.rate = std::max(window.rate, rate / kRaiseRatio);
  deviating_.clear();
}

void WanEstimator::keep(const Window& window) {
  windows_.push_back(window);
  if (windows_.size() > kWindowsMax) windows_.pop_front();
  bound_ = std::max(bound_, window.rate);
  look_for_change();
}

// Compares the newest window with the regime before the deviation began.
void WanEstimator::look_for_change() {
  const Window newest = windows_.back();
  std::vector<Window> before(windows_.begin(), windows_.end() - 1 - static_cast<std::ptrdiff_t>(deviating_.size()));
  if (before.empty()) return deviating_.clear();
  std::vector<double> rates;
  rates.reserve(before.size());
  for (const Window& window : before) rates.push_back(window.rate);
  std::nth_element(rates.begin(), rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2), rates.end());
  const double median = rates[rates.size() / 2];
  const double ratio = newest.rate / median;
  const bool is_low = ratio < kDownRatio;
  const bool is_high = ratio > kUpRatio;
  const bool is_other_side = !deviating_.empty() && (deviating_.front().rate < median) != is_low;
  if ((!is_low && !is_high) || is_other_side) deviating_.clear();
  if (!is_low && !is_high) return;
  deviating_.push_back(newest);
  const bool is_far = std::all_of(deviating_.begin(), deviating_.end(), [&](const Window& window) {
    return window.rate < kFarDownRatio * median || window.rate > kFarUpRatio * median;
  });
  if (deviating_.size() < (is_far ? kWindowsOfFarChange : kWindowsOfChange)) return;
  windows_.assign(deviating_.begin(), deviating_.end());
  // The first window after a step holds some of what was before it.
  if (windows_.size() > 1) windows_.pop_front();
  deviating_.clear();
  bound_ = 0.0;
}

// Weighted by length, newer windows more.
double WanEstimator::percentile(double share) const {
  struct Weighted {
    double rate;
    double weight;
  };
  std::vector<Weighted> sorted;
  sorted.reserve(windows_.size());
  double age = 0.0;
  double total = 0.0;
  for (auto window = windows_.rbegin(); window != windows_.rend(); ++window) {
    const double weight = window->seconds * std::exp2(-age / kHalfLifeSeconds);
    sorted.push_back({window->rate, weight});
    total += weight;
    age += window->seconds;
  }
  std::sort(sorted.begin(), sorted.end(), [](const Weighted& a, const Weighted& b) { return a.rate < b.rate; });
  double below = 0.0;
  for (const Weighted& each : sorted) {
    below += each.weight;
    if (below >= share * total) return each.rate;
  }
  return sorted.empty() ? 0.0 : sorted.back().rate;
}

void WanEstimator::on_rtt(std::chrono::microseconds rtt, TimePoint now) {
  if (rtt.count() <= 0) return;
  rtts_.push_back({rtt, now});
  while (rtts_.size() > kRttSamples || now - rtts_.front().at > kRttMemory) rtts_.pop_front();
  rtt_floor_ = std::min_element(rtts_.begin(), rtts_.end(), [](const RttSample& a, const RttSample& b) { return a.rtt < b.rtt; })->rtt;
}

void WanEstimator::on_segments(std::uint64_t sent, std::uint64_t resent) {
  segments_sent_ += static_cast<double>(sent);
  segments_resent_ += static_cast<double>(std::min(resent, sent));
  if (segments_sent_ <= kSegmentsMemory) return;
  const double keep = kSegmentsMemory / segments_sent_;
  segments_sent_ *= keep;
  segments_resent_ *= keep;
}

LinkEstimate WanEstimator::estimate(TimePoint now) const {
  LinkEstimate result;
  if (!windows_.empty()) {
    result.rate = RateEstimate{percentile(0.25), percentile(0.10), percentile(0.5), percentile(0.9)};
    result.method = windows_.back().is_probe ? EstimateMethod::kProbe : EstimateMethod::kPassive;
    result.age = now - windows_.back().at;
    const double count = std::min(1.0, static_cast<double>(windows_.size()) / kConfidentWindows);
    const double spread = result.rate->p50 > 0.0 ? (result.rate->p90 - result.rate->p10) / result.rate->p50 : 1.0;
    const double age = to_seconds(*result.age) / to_seconds(kStaleAfter);
    result.confidence = count * std::clamp(1.25 - spread, 0.2, 1.0) * std::exp2(-age);
    result.is_contradicted = !deviating_.empty();
    result.is_unknown = false;
    result.is_stale = *result.age > kStaleAfter;
  } else if (bound_ > 0.0) {
    result.rate = RateEstimate{bound_, bound_, bound_, bound_};
    result.method = EstimateMethod::kBound;
  }
  if (!rtts_.empty()) {
    std::vector<std::chrono::microseconds> sorted;
    Duration changes{};
    for (std::size_t index = 0; index < rtts_.size(); ++index) {
      sorted.push_back(rtts_[index].rtt);
      if (index > 0) changes += std::chrono::abs(rtts_[index].rtt - rtts_[index - 1].rtt);
    }
    std::sort(sorted.begin(), sorted.end());
    const auto count = static_cast<Duration::rep>(std::max<std::size_t>(1, rtts_.size() - 1));
    result.rtt = RttEstimate{sorted.front(), sorted[sorted.size() / 2], sorted[(sorted.size() * 95) / 100],
                             std::chrono::duration_cast<std::chrono::microseconds>(changes / count)};
  }
  if (segments_sent_ >= 100.0) result.loss = segments_resent_ / segments_sent_;
  return result;
}

}  // namespace sluice::topology
