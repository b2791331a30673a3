// Goal: only what crossed a link while the sender had more to send counts for its rate, joined at the right time, and reports stop when all
// is quiet. Method: both sides by hand, with a delay between them, time passed in.
#include "gateway/internal/link_meter.h"

#include <gtest/gtest.h>

#include <utility>

namespace sluice::gateway::internal {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using topology::EstimateMethod;

// A sender and a receiver 40 ms apart (round trip), four connections.
class Pair {
 public:
  // Ticks of 50 ms in which `rate` bits per second cross; the sender has more as long as `has_backlog`. A segment is lost every
  // `ticks_held` ticks: the receiver gets nothing in order until it has come again, and then all at once.
  void run(double rate, bool has_backlog, int ticks, int ticks_held = 1) {
    if (rate > 0.0) {
      sender_.wake();
      receiver_.wake();
    }
    for (int tick = 1; tick <= ticks; ++tick) {
      now_ += kMeterInterval;
      const auto crossed = static_cast<std::uint64_t>(rate / 8.0 * 0.05 / 4.0);
      segments_ += 100;
      sent_ += crossed;
      held_ += crossed;
      if (tick % ticks_held == 0) received_ += std::exchange(held_, 0);
      const std::size_t waiting = has_backlog ? crossed + 1 : 0;
      StreamSample sending;
      sending.tcp.segments_sent = segments_;
      sending.tcp.segments_resent = segments_ / 100;
      sending.tcp.sent_bytes = sent_;
      sending.tcp.held_bytes = held_;
      sending.tcp.rtt = microseconds(40'000);
      sending.waiting_bytes = waiting;
      sending.at = now_;
      turn(sender_, sending);
      StreamSample received;
      received.tcp.received_bytes = received_;
      received.at = now_;
      const auto report = turn(receiver_, received);
      if (report) deliver(*report);
    }
  }
  // Everything is on the wire at once, and comes out of the network's queue at `rate`.
  void drain(double rate, std::uint64_t burst_bytes) {
    sent_ += burst_bytes / 4;
    in_flight_ += burst_bytes / 4;
    while (in_flight_ > 0) arrive(rate, 0.0);
  }
  // Ticks in which as much is sent as arrives, while `in_flight` bytes are under way.
  void trickle(double rate, std::uint64_t in_flight, int ticks) {
    in_flight_ = in_flight / 4;
    for (int tick = 0; tick < ticks; ++tick) arrive(rate, rate);
    in_flight_ = 0;
  }
  void close_streams() {
    for (std::uint64_t connection = 1; connection <= 4; ++connection) {
      sender_.on_stream_closed(connection);
      receiver_.on_stream_closed(connection);
    }
    sent_ = received_ = segments_ = held_ = 0;
  }
  [[nodiscard]] topology::LinkEstimate estimate() const { return sender_.estimate(now_); }
  LinkMeter& sender() { return sender_; }
  LinkMeter& receiver() { return receiver_; }
  [[nodiscard]] TimePoint now() const { return now_; }

 private:
  void arrive(double rate, double sent_rate) {
    sender_.wake();
    receiver_.wake();
    now_ += kMeterInterval;
    const auto sent = static_cast<std::uint64_t>(sent_rate / 8.0 * 0.05 / 4.0);
    sent_ += sent;
    in_flight_ += sent;
    const std::uint64_t crossed = std::min(in_flight_, static_cast<std::uint64_t>(rate / 8.0 * 0.05 / 4.0));
    in_flight_ -= crossed;
    received_ += crossed;
    StreamSample sending;
    sending.tcp.sent_bytes = sent_;
    sending.at = now_;
    turn(sender_, sending);
    StreamSample received;
    received.tcp.received_bytes = received_;
    received.at = now_;
    if (const auto report = turn(receiver_, received)) deliver(*report);
  }
  static std::optional<GoodputReport> turn(LinkMeter& meter, const StreamSample& sample) {
    EXPECT_TRUE(meter.begin_turn({1, 2, 3, 4}));
    for (std::uint64_t connection = 1; connection <= 4; ++connection) EXPECT_EQ(meter.on_sample(connection, sample), connection == 4);
    return meter.end_turn(0);
  }
  void deliver(const GoodputReport& report) {
    sender_.on_report(report, now_ + milliseconds(20));
    StreamSample sample;
    sample.tcp.held_bytes = held_;
    sample.tcp.in_flight_bytes = in_flight_;
    sample.tcp.rtt_min = microseconds(40'000);
    sample.is_for_report = true;
    for (std::uint64_t connection = 1; connection <= 4; ++connection) EXPECT_FALSE(sender_.on_sample(connection, sample));
  }

  LinkMeter sender_;
  LinkMeter receiver_;
  TimePoint now_ = TimePoint{} + std::chrono::hours(1);
  std::uint64_t sent_ = 0;  // these of each connection
  std::uint64_t received_ = 0;
  std::uint64_t held_ = 0;
  std::uint64_t in_flight_ = 0;
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

// A burst of 50 ms out of a receiver's buffer was taken for the link: 200 Mbit/s read as 658 at 1 % loss.
TEST(LinkMeter, WhatWaitedBehindALostSegmentIsNoBurst) {
  Pair pair;
  pair.sender().on_rtt(microseconds(150'000), pair.now());
  pair.run(200e6, true, 60, 5);
  ASSERT_TRUE(pair.estimate().rate);
  EXPECT_NEAR(pair.estimate().rate->p50, 200e6, 10e6);
  EXPECT_NEAR(pair.estimate().rate->p90, 200e6, 10e6);
  EXPECT_NEAR(pair.estimate().rate->p10, 200e6, 20e6);
  pair.run(190e6, false, 60, 7);
  EXPECT_NEAR(pair.estimate().rate->p90, 200e6, 10e6) << "also when the sender has run dry";
}

// A link that had become four times slower was not noticed for six rounds, because each round's few frames were on the wire at once.
TEST(LinkMeter, ABurstThatDrainsOutOfTheNetworksQueueGivesTheRate) {
  Pair pair;
  pair.run(6e6, true, 40);
  pair.run(0.0, false, 20);
  for (int round = 0; round < 3; ++round) {
    pair.drain(1.5e6, 80'000);
    pair.run(0.0, false, 20);
  }
  ASSERT_TRUE(pair.estimate().rate);
  EXPECT_NEAR(pair.estimate().rate->p50, 1.5e6, 0.15e6);
}

TEST(LinkMeter, ASenderThatAddsAsMuchAsArrivesTellsNothingWhateverQueuesOthersMake) {
  Pair pair;
  pair.trickle(1e6, 100'000, 60);
  EXPECT_FALSE(pair.estimate().rate);
}

// 40 ms at 8 Mbit/s: 40 kB in flight is what the path holds, and the sender has set the pace.
TEST(LinkMeter, ABurstThatThePathHoldsWithoutAQueueTellsNothing) {
  Pair pair;
  for (int round = 0; round < 5; ++round) {
    pair.drain(8e6, 40'000);
    pair.run(0.0, false, 20);
  }
  EXPECT_FALSE(pair.estimate().rate);
}

TEST(LinkMeter, WhatAClosedConnectionHeldIsNotMissedLater) {
  Pair pair;
  pair.run(80e6, true, 44, 20);
  pair.close_streams();
  pair.run(80e6, true, 20);
  EXPECT_NEAR(pair.estimate().rate->p10, 80e6, 4e6);
}

TEST(LinkMeter, ReportsEndWhenNothingComesAndBeginAgain) {
  Pair pair;
  pair.run(80e6, true, 10);
  EXPECT_FALSE(pair.receiver().is_quiet());
  pair.run(0.0, false, 11);
  EXPECT_TRUE(pair.receiver().is_quiet());
  pair.run(80e6, true, 2);
  EXPECT_FALSE(pair.receiver().is_quiet());
}

TEST(LinkMeter, AProbeIsCalledOne) {
  Pair pair;
  pair.sender().set_probing(true);
  pair.run(80e6, true, 40);
  EXPECT_EQ(pair.estimate().method, EstimateMethod::kProbe);
}

// Connections that have something for a moment each time they are looked at, because it comes as fast as it goes.
TEST(LinkMeter, ABacklogSmallerThanWhatGoesOutIsNone) {
  Pair pair;
  for (int tick = 0; tick < 100; ++tick) pair.run(4e6, tick % 2 == 0, 1);
  EXPECT_FALSE(pair.estimate().rate);
}

TEST(LinkMeter, AConnectionThatDoesNotAnswerHoldsUpTheTurnUntilItCloses) {
  LinkMeter meter;
  EXPECT_FALSE(meter.begin_turn({}));
  EXPECT_TRUE(meter.begin_turn({1, 2}));
  EXPECT_FALSE(meter.on_sample(1, {}));
  EXPECT_FALSE(meter.begin_turn({1, 2}));
  meter.on_stream_closed(2);
  EXPECT_TRUE(meter.begin_turn({1}));
  EXPECT_TRUE(meter.on_sample(1, {}));
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
