// Goal: the estimate is within 15 % of what the link carries after one transfer, follows steps within a round, and is never lowered by a
// sender that has nothing to send. Method: synthetic transfers over a model of a TCP link (slow start, noise), time passed in.
#include "topology/wan_estimator.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace sluice::topology {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;

constexpr double kTick = 0.05;  // seconds between two reports of the receiver

// One link and its estimator in virtual time.
class Scenario {
 public:
  explicit Scenario(double rate, double rtt_seconds = 0.05, double noise = 0.02) : rate_(rate), rtt_(rtt_seconds), noise_(noise) {}

  void set_rate(double rate) { rate_ = rate; }

  // A transfer that fills the link: the rate doubles each round trip from 10 packets on, then stays at what the link gives.
  // Returns its length.
  double transfer(double bytes, bool is_probe = false) {
    pings();
    double window = 10 * 1448.0;
    double left = bytes;
    double seconds = 0.0;
    while (left > 0.0) {
      const double noisy = rate_ / 8.0 * (1.0 + noise_ * normal_(random_));
      const double sent = std::min({left, noisy * kTick, window / rtt_ * kTick});
      window = std::min(1e10, window * std::exp2(kTick / rtt_));
      left -= sent;
      seconds += kTick;
      report(sent, left > 0.0, is_probe);
    }
    report(0.0, false, false);
    return seconds;
  }
  // The sender has something now and then.
  void trickle(double rate, double seconds) {
    for (double at = 0.0; at < seconds; at += kTick) report(rate / 8.0 * kTick, false, false);
  }
  void pings() {
    for (int i = 0; i < 5; ++i) estimator_.on_rtt(microseconds(static_cast<std::int64_t>(rtt_ * 1e6) + 200 * i), now_);
  }
  void wait(Duration duration) { now_ += duration; }
  [[nodiscard]] LinkEstimate estimate() const { return estimator_.estimate(now_); }
  [[nodiscard]] double median() const { return estimate().rate ? estimate().rate->p50 : 0.0; }
  [[nodiscard]] double low() const { return estimate().rate ? estimate().rate->low : 0.0; }
  WanEstimator& estimator() { return estimator_; }
  [[nodiscard]] TimePoint now() const { return now_; }

 private:
  void report(double bytes, bool is_saturated, bool is_probe) {
    now_ += std::chrono::duration_cast<Duration>(std::chrono::duration<double>(kTick));
    estimator_.on_goodput({std::chrono::duration_cast<Duration>(std::chrono::duration<double>(kTick)), static_cast<std::uint64_t>(bytes),
                           is_saturated, is_probe},
                          now_);
  }

  double rate_;
  double rtt_;
  double noise_;
  WanEstimator estimator_;
  TimePoint now_{};
  std::mt19937 random_{7};
  std::normal_distribution<double> normal_;
};

TEST(WanEstimator, WhatWasNotMeasuredIsUnknown) {
  const WanEstimator estimator;
  const LinkEstimate estimate = estimator.estimate(TimePoint{});
  EXPECT_FALSE(estimate.rate);
  EXPECT_FALSE(estimate.rtt);
  EXPECT_FALSE(estimate.loss);
  EXPECT_FALSE(estimate.age);
  EXPECT_EQ(estimate.method, EstimateMethod::kNone);
  EXPECT_EQ(estimate.confidence, 0.0);
  EXPECT_TRUE(estimator.estimate(TimePoint{}).wants_probe());
}

TEST(WanEstimator, OneTransferGivesTheRateWithinFifteenPercentWithoutTheRamp) {
  for (const double rate : {20e6, 100e6, 500e6, 1000e6}) {
    for (const double rtt : {0.02, 0.08, 0.25}) {
      Scenario link(rate, rtt, 0.05);
      link.transfer(rate / 8.0 * (4.0 + 12 * rtt));
      EXPECT_NEAR(link.median() / rate, 1.0, 0.15) << rate << " bit/s, RTT " << rtt;
      EXPECT_NEAR(link.low() / rate, 1.0, 0.15) << rate << " bit/s, RTT " << rtt;
      EXPECT_EQ(link.estimate().method, EstimateMethod::kPassive);
      EXPECT_GT(link.estimate().confidence, 0.5);
      EXPECT_FALSE(link.estimate().wants_probe());
    }
  }
}

TEST(WanEstimator, ATransferWithinTheRampIsABoundOnly) {
  Scenario link(1000e6, 0.25);
  link.transfer(200'000);
  EXPECT_EQ(link.estimate().method, EstimateMethod::kBound);
  EXPECT_GT(link.low(), 0.0);
  EXPECT_LT(link.low(), 1000e6);
  EXPECT_EQ(link.estimate().confidence, 0.0);
  EXPECT_TRUE(link.estimate().wants_probe());
}

TEST(WanEstimator, AStepDownIsKnownWhenTheTransferThatMetItEnds) {
  Scenario link(400e6);
  link.transfer(50e6);
  ASSERT_NEAR(link.median() / 400e6, 1.0, 0.1);
  link.set_rate(100e6);
  link.transfer(12e6);
  EXPECT_NEAR(link.median() / 100e6, 1.0, 0.1);
  EXPECT_NEAR(link.low() / 100e6, 1.0, 0.1);
}

TEST(WanEstimator, AStepUpIsKnownAfterTwoTransfersAtMost) {
  Scenario link(100e6);
  link.transfer(25e6);
  link.set_rate(400e6);
  link.transfer(12e6);
  link.transfer(12e6);
  EXPECT_NEAR(link.median() / 400e6, 1.0, 0.1);
  EXPECT_NEAR(link.low() / 400e6, 1.0, 0.1);
}

TEST(WanEstimator, ASenderWithoutDataNeverLowersTheEstimate) {
  Scenario link(200e6);
  link.transfer(50e6);
  const double known = link.low();
  link.trickle(5e6, 60.0);
  EXPECT_EQ(link.low(), known);
  EXPECT_EQ(link.estimate().method, EstimateMethod::kPassive);
}

TEST(WanEstimator, ASenderWithoutDataRaisesTheEstimateWhenItGoesFaster) {
  Scenario link(100e6);
  link.transfer(25e6);
  link.trickle(300e6, 0.5);
  EXPECT_GT(link.low(), 250e6);
}

TEST(WanEstimator, ABurstOfAnIdleSenderIsNoRate) {
  Scenario link(200e6, 0.15);
  link.transfer(100e6);
  const double known = link.median();
  for (int burst = 0; burst < 20; ++burst) {
    link.trickle(0.0, 0.4);
    link.trickle(658e6, 0.05);
  }
  EXPECT_EQ(link.median(), known);
}

TEST(WanEstimator, NoiseMovesTheEstimateLittleAndIsNoChange) {
  Scenario link(100e6, 0.05, 0.15);
  double least = 1e18;
  double most = 0.0;
  link.transfer(25e6);
  for (int round = 0; round < 50; ++round) {
    link.transfer(12e6);
    least = std::min(least, link.median());
    most = std::max(most, link.median());
  }
  EXPECT_LT(most / least, 1.25);
  EXPECT_NEAR(link.median() / 100e6, 1.0, 0.1);
}

TEST(WanEstimator, OneSlowWindowIsAContradictionAndNotYetAChange) {
  Scenario link(100e6, 0.02, 0.0);
  link.transfer(25e6);
  for (int tick = 0; tick < 2; ++tick) {
    link.estimator().on_goodput({milliseconds(50), 612'500, true, false}, link.now());
  }
  link.estimator().on_goodput({milliseconds(50), 100'000, true, false}, link.now());
  link.estimator().on_goodput({milliseconds(50), 100'000, true, false}, link.now());
  EXPECT_NEAR(link.median() / 100e6, 1.0, 0.05);
  EXPECT_TRUE(link.estimate().is_contradicted);
  EXPECT_TRUE(link.estimate().wants_probe());
}

TEST(WanEstimator, AnOldEstimateStaysLosesConfidenceAndWantsAProbe) {
  Scenario link(100e6);
  link.transfer(50e6);
  const double fresh = link.estimate().confidence;
  EXPECT_FALSE(link.estimate().wants_probe());
  link.wait(minutes(16));
  EXPECT_NEAR(link.median() / 100e6, 1.0, 0.1);
  EXPECT_LT(link.estimate().confidence, 0.6 * fresh);
  EXPECT_GT(link.estimate().age.value_or(Duration{}), minutes(15));
  EXPECT_TRUE(link.estimate().wants_probe());
}

TEST(WanEstimator, AProbeIsToldApart) {
  Scenario link(250e6);
  link.transfer(100e6, true);
  EXPECT_EQ(link.estimate().method, EstimateMethod::kProbe);
  EXPECT_NEAR(link.median() / 250e6, 1.0, 0.1);
}

TEST(WanEstimator, RttHasMinimumMedianTailAndJitter) {
  WanEstimator estimator;
  TimePoint now{};
  for (int i = 0; i < 100; ++i) estimator.on_rtt(microseconds(i % 10 == 9 ? 80'000 : 50'000 + (i % 2) * 1'000), now += milliseconds(100));
  const auto rtt = estimator.estimate(now).rtt;
  ASSERT_TRUE(rtt);
  EXPECT_EQ(rtt->min, microseconds(50'000));
  EXPECT_EQ(rtt->p50, microseconds(51'000));
  EXPECT_EQ(rtt->p95, microseconds(80'000));
  EXPECT_GT(rtt->jitter, microseconds(1'000));
  // A route that became longer: the old minimum is forgotten.
  now += minutes(11);
  estimator.on_rtt(microseconds(90'000), now);
  EXPECT_EQ(estimator.estimate(now).rtt->min, microseconds(90'000));
}

TEST(WanEstimator, LossIsTheShareOfSegmentsSentAgain) {
  WanEstimator estimator;
  estimator.on_segments(50, 1);
  EXPECT_FALSE(estimator.estimate(TimePoint{}).loss) << "too few to say";
  for (int i = 0; i < 1'000; ++i) estimator.on_segments(1'000, 10);
  EXPECT_NEAR(estimator.estimate(TimePoint{}).loss.value_or(0.0), 0.01, 1e-3);
}

}  // namespace
}  // namespace sluice::topology
