// Goal: rate, burst, queue, delay, loss, shared lines and blackholes give exactly the times and the drops they state.
// Method: packets of known size in virtual time; expectations computed by hand, loss against the binomial spread of its seed.
#include "tests/support/packet_network.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace sluice::support {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kStart{1000s};
const SiteId kA(0);
const SiteId kB(1);
const SiteId kC(2);

WanPacket packet_of(std::size_t bytes) {
  WanPacket packet;
  packet.ip.assign(bytes, 0);
  packet.ip[0] = 0x45;
  return packet;
}

PathShape path_of(Duration delay, double rate, std::size_t queue_bytes) {
  PathShape shape;
  shape.delay = delay;
  shape.rate = BitsPerSecond{rate};
  shape.queue_bytes = queue_bytes;
  return shape;
}

struct Arrival {
  Duration after{};  // kStart
  SiteId to;
  std::size_t bytes = 0;
  bool operator==(const Arrival&) const = default;
};

// Everything that is under way, with the time at which it arrives.
std::vector<Arrival> arrivals(PacketNetwork& network) {
  std::vector<Arrival> result;
  while (const auto due = network.next_deadline()) {
    network.deliver_due(*due, [&](SiteId to, const WanPacket& packet) { result.push_back({*due - kStart, to, packet.ip.size()}); });
  }
  return result;
}

TEST(PacketNetwork, UnlimitedPathOnlyDelays) {
  PacketNetwork network(2, 1);
  network.set_path(kA, kB, path_of(25ms, 0, 0));
  network.send(kA, kB, packet_of(1500), kStart);
  network.send(kA, kB, packet_of(1500), kStart);
  EXPECT_EQ(arrivals(network), (std::vector<Arrival>{{25ms, kB, 1500}, {25ms, kB, 1500}}));
}

TEST(PacketNetwork, PacketsLeaveTheLineAtItsRate) {
  PacketNetwork network(2, 1);
  network.set_path(kA, kB, path_of(10ms, 8e6, 100'000));  // 1 byte a microsecond
  for (int index = 0; index < 3; ++index) network.send(kA, kB, packet_of(1000), kStart);
  network.send(kA, kB, packet_of(500), kStart + 100ms);
  EXPECT_EQ(arrivals(network), (std::vector<Arrival>{{11ms, kB, 1000}, {12ms, kB, 1000}, {13ms, kB, 1000}, {110'500us, kB, 500}}));
}

TEST(PacketNetwork, DirectionsAreSeparate) {
  PacketNetwork network(2, 1);
  network.set_path(kA, kB, path_of(10ms, 8e6, 0));
  network.set_path(kB, kA, path_of(40ms, 80e6, 0));
  network.send(kA, kB, packet_of(1000), kStart);
  network.send(kB, kA, packet_of(1000), kStart);
  EXPECT_EQ(arrivals(network), (std::vector<Arrival>{{11ms, kB, 1000}, {40'100us, kA, 1000}}));
}

TEST(PacketNetwork, QueueDropsWhatItHasNoRoomFor) {
  PacketNetwork network(2, 1);
  network.set_path(kA, kB, path_of(0ms, 8e6, 3000));
  for (int index = 0; index < 5; ++index) network.send(kA, kB, packet_of(1000), kStart);
  EXPECT_EQ(arrivals(network).size(), 3U);
  EXPECT_EQ(network.counters(kA, kB).dropped, 2U);
  // A millisecond later one packet has left.
  PacketNetwork later(2, 1);
  later.set_path(kA, kB, path_of(0ms, 8e6, 3000));
  for (int index = 0; index < 3; ++index) later.send(kA, kB, packet_of(1000), kStart);
  for (int index = 0; index < 2; ++index) later.send(kA, kB, packet_of(1000), kStart + 1ms);
  EXPECT_EQ(arrivals(later).size(), 4U);
  EXPECT_EQ(later.counters(kA, kB).dropped, 1U);
}

TEST(PacketNetwork, BurstPassesAtOnceAfterAPause) {
  PacketNetwork network(2, 1);
  PathShape shape = path_of(0ms, 8e6, 100'000);
  shape.burst_bytes = 2000;
  network.set_path(kA, kB, shape);
  for (int index = 0; index < 4; ++index) network.send(kA, kB, packet_of(1000), kStart);
  EXPECT_EQ(arrivals(network), (std::vector<Arrival>{{0ms, kB, 1000}, {0ms, kB, 1000}, {1ms, kB, 1000}, {2ms, kB, 1000}}));
}

TEST(PacketNetwork, LongRunKeepsTheRateToThePacket) {
  for (const double rate : {20e6, 500e6, 1e9}) {
    PacketNetwork network(2, 1);
    network.set_path(kA, kB, path_of(25ms, rate, 100'000));
    // Offered at 1.25 times the rate for a second: the queue is full for most of it.
    const auto gap = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(1500 * 8 / (1.25 * rate)));
    std::uint64_t delivered = 0;
    for (TimePoint now = kStart; now < kStart + 1s; now += gap) {
      network.send(kA, kB, packet_of(1500), now);
      network.deliver_due(now, [&](SiteId, const WanPacket& packet) { delivered += packet.ip.size(); });
    }
    network.deliver_due(kStart + 1s + 25ms, [&](SiteId, const WanPacket& packet) { delivered += packet.ip.size(); });
    EXPECT_NEAR(static_cast<double>(delivered) * 8, rate, 2 * 1500 * 8);
    EXPECT_GT(network.counters(kA, kB).dropped, 0U);
  }
}

TEST(PacketNetwork, DefaultQueueIsTheBandwidthDelayProduct) {
  PacketNetwork network(2, 1);
  network.set_path(kA, kB, path_of(50ms, 80e6, 0));  // 100 ms of 10 MB/s
  for (int index = 0; index < 1000; ++index) network.send(kA, kB, packet_of(1250), kStart);
  EXPECT_EQ(network.counters(kA, kB).dropped, 200U);
}

TEST(PacketNetwork, LossHasTheStatedShareAndRepeatsWithItsSeed) {
  constexpr int kPackets = 200'000;
  constexpr double kLoss = 0.01;
  const auto lost = [](std::uint64_t seed) {
    PacketNetwork network(2, seed);
    PathShape shape;
    shape.loss = kLoss;
    network.set_path(kA, kB, shape);
    for (int index = 0; index < kPackets; ++index) network.send(kA, kB, packet_of(100), kStart);
    EXPECT_EQ(network.counters(kA, kB).lost + arrivals(network).size(), static_cast<std::size_t>(kPackets));
    return network.counters(kA, kB).lost;
  };
  const double spread = std::sqrt(kPackets * kLoss * (1 - kLoss));
  EXPECT_NEAR(static_cast<double>(lost(7)), kPackets * kLoss, 5 * spread);
  EXPECT_EQ(lost(7), lost(7));
  EXPECT_NE(lost(7), lost(8));
}

TEST(PacketNetwork, BlackholeSwallowsOneDirectionUntilItHeals) {
  PacketNetwork network(2, 1);
  PathShape shape;
  shape.is_blackhole = true;
  network.set_path(kA, kB, shape);
  network.send(kA, kB, packet_of(100), kStart);
  network.send(kB, kA, packet_of(200), kStart);
  shape.is_blackhole = false;
  network.set_path(kA, kB, shape);
  network.send(kA, kB, packet_of(300), kStart);
  EXPECT_EQ(arrivals(network), (std::vector<Arrival>{{0ms, kA, 200}, {0ms, kB, 300}}));
  EXPECT_EQ(network.counters(kA, kB).swallowed, 1U);
}

TEST(PacketNetwork, UplinkIsSharedByAllPathsOfASite) {
  PacketNetwork network(3, 1);
  network.set_uplink(kA, {BitsPerSecond{8e6}, 100'000, 0});
  network.set_path(kA, kB, path_of(5ms, 80e6, 0));
  network.send(kA, kB, packet_of(1000), kStart);
  network.send(kA, kC, packet_of(1000), kStart);
  EXPECT_EQ(arrivals(network), (std::vector<Arrival>{{2ms, kC, 1000}, {6'100us, kB, 1000}}));
}

TEST(PacketNetwork, DownlinkTakesPacketsAsTheyComeFromNearAndFar) {
  PacketNetwork network(3, 1);
  network.set_downlink(kC, {BitsPerSecond{8e6}, 100'000, 0});
  network.set_path(kA, kC, path_of(50ms, 0, 0));
  network.set_path(kB, kC, path_of(1ms, 0, 0));
  network.send(kA, kC, packet_of(1000), kStart);         // there after 50 ms
  network.send(kB, kC, packet_of(2000), kStart + 10ms);  // there after 11 ms
  network.send(kB, kC, packet_of(3000), kStart + 49ms);  // there with the first
  EXPECT_EQ(arrivals(network), (std::vector<Arrival>{{13ms, kC, 2000}, {51ms, kC, 1000}, {54ms, kC, 3000}}));
}

TEST(PacketNetwork, FullDownlinkDropsAndCountsForThePath) {
  PacketNetwork network(2, 1);
  network.set_downlink(kB, {BitsPerSecond{8e6}, 2000, 0});
  for (int index = 0; index < 3; ++index) network.send(kA, kB, packet_of(1000), kStart);
  EXPECT_EQ(arrivals(network).size(), 2U);
  EXPECT_EQ(network.counters(kA, kB).dropped, 1U);
  EXPECT_EQ(network.held_bytes(), 0U);
}

TEST(PacketNetwork, ShorterDelayDoesNotReorder) {
  PacketNetwork network(2, 1);
  network.set_path(kA, kB, path_of(50ms, 0, 0));
  network.send(kA, kB, packet_of(1000), kStart);
  network.set_path(kA, kB, path_of(5ms, 0, 0));
  network.send(kA, kB, packet_of(1001), kStart + 10ms);
  EXPECT_EQ(arrivals(network), (std::vector<Arrival>{{50ms, kB, 1000}, {50ms, kB, 1001}}));
}

TEST(PacketNetwork, NewRateHoldsForTheNextPacket) {
  PacketNetwork network(2, 1);
  network.set_path(kA, kB, path_of(0ms, 8e6, 100'000));
  network.send(kA, kB, packet_of(1000), kStart);
  network.set_path(kA, kB, path_of(0ms, 2e6, 100'000));
  network.send(kA, kB, packet_of(1000), kStart);
  EXPECT_EQ(arrivals(network), (std::vector<Arrival>{{1ms, kB, 1000}, {5ms, kB, 1000}}));
}

}  // namespace
}  // namespace sluice::support
