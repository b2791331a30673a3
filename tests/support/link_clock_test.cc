// Goal: rate, queue, delay and a shared egress line give the times and the room they state. Method: virtual time, exact expectations.
#include "tests/support/link_clock.h"

#include <gtest/gtest.h>

#include "tests/support/wan_presets.h"

namespace sluice::support {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kStart{1000s};

LinkShape shape_of(Duration delay, double bits_per_second, std::size_t queue_bytes) {
  return LinkShape{delay, BitsPerSecond{bits_per_second}, queue_bytes, false};
}

TEST(LinkClock, UnlimitedLinkOnlyDelays) {
  LinkClock link(shape_of(40ms, 0, 0), nullptr);
  EXPECT_EQ(link.admit(1 << 20, kStart), kStart + 40ms);
  EXPECT_EQ(link.admit(1 << 20, kStart), kStart + 40ms);
  EXPECT_GT(link.room(kStart), 1U << 20);
}

TEST(LinkClock, BytesQueueBehindEachOtherAtTheRate) {
  LinkClock link(shape_of(10ms, 8e6, 1'000'000), nullptr);  // 1 byte a microsecond
  EXPECT_EQ(link.admit(1000, kStart), kStart + 11ms);
  EXPECT_EQ(link.admit(1000, kStart), kStart + 12ms);
  EXPECT_EQ(link.admit(1000, kStart + 100ms), kStart + 111ms);
}

TEST(LinkClock, FullQueueHasNoRoomUntilHalfDrained) {
  LinkClock link(shape_of(0ms, 8e6, 2000), nullptr);
  link.admit(1500, kStart);
  EXPECT_EQ(link.room(kStart), 500U);
  link.admit(1, kStart);
  EXPECT_EQ(link.room(kStart), 0U);
  link.admit(499, kStart);
  EXPECT_EQ(link.room(kStart), 0U);
  EXPECT_EQ(link.room_at(kStart), kStart + 1ms);
  EXPECT_EQ(link.room(kStart + 1ms), 1000U);
}

TEST(LinkClock, EgressLineIsSharedByTheLinksOfASite) {
  PacedLine egress(BitsPerSecond{8e6});
  LinkClock first(shape_of(0ms, 80e6, 0), &egress);
  LinkClock second(shape_of(0ms, 80e6, 0), &egress);
  EXPECT_EQ(first.admit(1000, kStart), kStart + 1ms);
  EXPECT_EQ(second.admit(1000, kStart), kStart + 2ms);
}

TEST(LinkClock, SegmentsFollowTheRate) {
  EXPECT_EQ(LinkClock(shape_of(0ms, 200e6, 0), nullptr).segment_bytes(500us), 12500U);
  EXPECT_EQ(LinkClock(shape_of(0ms, 1e6, 0), nullptr).segment_bytes(500us), 1460U);
  EXPECT_EQ(LinkClock(shape_of(0ms, 0, 0), nullptr).segment_bytes(500us), 256 * kKiB);
}

TEST(WanPreset, EveryPresetHasTwoSites) {
  for (const auto name : wan_preset_names()) {
    const auto preset = find_wan_preset(name, 2);
    ASSERT_TRUE(preset) << name;
    EXPECT_EQ(preset->regions.size(), 2U);
    EXPECT_EQ(preset->links.size(), 2U);
  }
}

TEST(WanPreset, ThreeRegionsHaveTheMeasuredRoundTrips) {
  const auto preset = find_wan_preset("us-eu-ap", 3);
  ASSERT_TRUE(preset);
  const auto rtt_ms = [&](std::size_t a, std::size_t b) {
    return std::chrono::duration<double, std::milli>(preset->links[a][b].delay + preset->links[b][a].delay).count();
  };
  EXPECT_NEAR(rtt_ms(0, 1), 84.9, 0.1);
  EXPECT_NEAR(rtt_ms(0, 2), 168.4, 0.1);
  EXPECT_NEAR(rtt_ms(1, 2), 214.4, 0.1);
  EXPECT_DOUBLE_EQ(preset->links[2][1].rate.value, 3.125e9);
}

TEST(WanPreset, UnknownNameAndTooManySitesAreErrors) {
  EXPECT_EQ(find_wan_preset("mars", 3).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(find_wan_preset("us-eu-ap", 4).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::support
