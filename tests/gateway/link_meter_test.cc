// Goal: only what crossed a link while the sender had more to send counts for its rate, joined at the right time, and reports stop when all
// is quiet. Method: both sides by hand, with a delay between them, time passed in.
#include "gateway/internal/link_meter.h"

#include <gtest/gtest.h>

#include <deque>

namespace sluice::gateway::internal {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using topology::EstimateMethod;

// A sender and a receiver 40 ms apart (round trip), four connections.
class Pair {
 public:
  // Ticks of 50 ms in which `rate` bits per second cross; the sender has more as long as `has_backlog`.
  void run(double rate, bool has_backlog, int ticks) {
    for (int tick = 0; tick < ticks; ++tick) {
      now_ += kMeterInterval;
      for (std::uint64_t connection = 1; connection <= 4; ++connection) {
        segments_ += 100;
        sender_.on_sample(connection, {{segments_, segments_ / 100, 0, microseconds(40'000)}, has_backlog});
      }
      sender_.note_backlog(4, now_);
      received_ += static_cast<std::uint64_t>(rate / 8.0 * 0.05);
      if (const auto report = receiver_.take_report(received_, now_)) sender_.on_report(*report, now_ + milliseconds(20));
    }
  }
  [[nodiscard]] topology::LinkEstimate estimate() const { return sender_.estimate(now_); }
  LinkMeter& sender() { return sender_; }
  LinkMeter& receiver() { return receiver_; }
  [[nodiscard]] TimePoint now() const { return now_; }

 private:
  LinkMeter sender_;
  LinkMeter receiver_;
  TimePoint now_ = TimePoint{} + std::chrono::hours(1);
  std::uint64_t received_ = 0;
  std::uint64_t segments_ = 0;
};

TEST(LinkMeter, ATransferWithABacklogGivesTheRate) {
  Pair pair;
  pair.sender().on_rtt(microseconds(40'000), pair.now());
  pair.run(80e6, true, 40);
  pair.run(0.0, false, 20);
  ASSERT_TRUE(pair.estimate().rate);
  EXPECT_NEAR(pair.estimate().rate->p50, 80e6, 4e6);
  EXPECT_EQ(pair.estimate().method, EstimateMethod::kPassive);
  EXPECT_NEAR(pair.estimate().loss.value_or(0.0), 0.01, 0.005);
}

TEST(LinkMeter, WithoutABacklogNothingIsSaidOfTheRate) {
  Pair pair;
  pair.run(3e6, false, 40);
  EXPECT_FALSE(pair.estimate().rate);
  pair.run(80e6, true, 40);
  const double known = pair.estimate().rate->p50;
  pair.run(3e6, false, 100);
  EXPECT_EQ(pair.estimate().rate->p50, known);
}

TEST(LinkMeter, ReportsEndWhenNothingComesAndBeginAgain) {
  Pair pair;
  pair.run(80e6, true, 10);
  EXPECT_FALSE(pair.receiver().is_quiet());
  pair.run(0.0, false, 11);
  EXPECT_TRUE(pair.receiver().is_quiet());
  EXPECT_FALSE(pair.receiver().take_report(1'000'000'000, pair.now() + std::chrono::minutes(1)))
      << "the quiet time is no part of a transfer";
  pair.run(80e6, true, 2);
  EXPECT_FALSE(pair.receiver().is_quiet());
}

TEST(LinkMeter, AProbeIsCalledOne) {
  Pair pair;
  pair.sender().set_probing(true);
  pair.run(80e6, true, 40);
  EXPECT_EQ(pair.estimate().method, EstimateMethod::kProbe);
}

TEST(LinkMeter, NonsenseFromThePeerIsPassedOver) {
  Pair pair;
  pair.run(80e6, true, 40);
  const double known = pair.estimate().rate->p50;
  pair.sender().on_report({Duration{}, 1'000'000'000}, pair.now());
  pair.sender().on_report({std::chrono::hours(1), 1}, pair.now());
  EXPECT_EQ(pair.estimate().rate->p50, known);
}

}  // namespace
}  // namespace sluice::gateway::internal
