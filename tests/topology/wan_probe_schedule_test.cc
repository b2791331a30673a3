// Goal: a site probes by itself only what real transfers leave open, seldom, and at a bounded cost. Method: candidates by hand, time passed
// in.
#include "topology/wan_probe_schedule.h"

#include <gtest/gtest.h>

namespace sluice::topology {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr SiteId kPeer{1};
constexpr SiteId kOther{2};
constexpr std::uint64_t kRounds = kRoundsBeforeProbe;

ProbeCandidate unknown(SiteId peer) { return {peer, true, false, 0, 0}; }
ProbeCandidate known(SiteId peer, bool is_doubtful, std::uint64_t sent_bytes) { return {peer, false, is_doubtful, sent_bytes, 1'000'000}; }

TEST(WanProbeSchedule, RealTransfersComeFirst) {
  const WanProbeSchedule schedule(SiteId(0));
  EXPECT_FALSE(schedule.choose({unknown(kPeer)}, kRounds - 1, TimePoint{}));
  const auto choice = schedule.choose({unknown(kPeer)}, kRounds, TimePoint{});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->peer, kPeer);
  EXPECT_EQ(choice->reason, ProbeReason::kUnmeasured);
}

TEST(WanProbeSchedule, AKnownLinkIsLeftAlone) {
  const WanProbeSchedule schedule(SiteId(0));
  EXPECT_FALSE(schedule.choose({known(kPeer, false, 1'000'000'000'000)}, kRounds, TimePoint{}));
}

TEST(WanProbeSchedule, AnUnknownLinkGoesBeforeOneThatSetsTheBits) {
  const WanProbeSchedule schedule(SiteId(0));
  const auto choice = schedule.choose({known(kPeer, true, 1'000'000'000), unknown(kOther)}, kRounds, TimePoint{});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->peer, kOther);
}

TEST(WanProbeSchedule, ALinkThatSetsTheBitsIsProbedForTwoPercentOfItsTraffic) {
  WanProbeSchedule schedule(SiteId(0));
  TimePoint now{};
  EXPECT_FALSE(schedule.choose({known(kPeer, true, 49'000'000)}, kRounds, now));
  const auto choice = schedule.choose({known(kPeer, true, 50'000'000)}, kRounds, now);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->reason, ProbeReason::kDoubtful);
  schedule.on_ended(kPeer, ProbeEnd::kComplete, 51'000'000, now);
  now += minutes(60);
  EXPECT_FALSE(schedule.choose({known(kPeer, true, 100'000'000)}, kRounds, now));
  EXPECT_TRUE(schedule.choose({known(kPeer, true, 101'000'000)}, kRounds, now));
}

TEST(WanProbeSchedule, ALinkThatStaysUnknownIsProbedMoreAndMoreSeldom) {
  WanProbeSchedule schedule(SiteId(0));
  TimePoint now{};
  for (const int pause : {1, 2, 4, 8, 15, 15}) {
    ASSERT_TRUE(schedule.choose({unknown(kPeer)}, kRounds, now)) << pause;
    schedule.on_ended(kPeer, ProbeEnd::kComplete, 0, now);
    EXPECT_FALSE(schedule.choose({unknown(kPeer)}, kRounds, now + minutes(pause) - seconds(1)));
    now += minutes(pause);
  }
}

TEST(WanProbeSchedule, TwoSitesThatRefusedEachOtherComeBackAtDifferentTimes) {
  WanProbeSchedule first(SiteId(0));
  WanProbeSchedule second(SiteId(1));
  const TimePoint now{};
  first.on_ended(SiteId(1), ProbeEnd::kRefused, 0, now);
  second.on_ended(SiteId(0), ProbeEnd::kRefused, 0, now);
  EXPECT_TRUE(first.choose({unknown(SiteId(1))}, kRounds, now + seconds(2)));
  EXPECT_FALSE(second.choose({unknown(SiteId(0))}, kRounds, now + seconds(2)));
  EXPECT_TRUE(second.choose({unknown(SiteId(0))}, kRounds, now + seconds(3)));
}

TEST(WanProbeSchedule, AProbeThatARoundCutShortIsTriedAgainSoon) {
  WanProbeSchedule schedule(SiteId(0));
  const TimePoint now{};
  schedule.on_ended(kPeer, ProbeEnd::kInterrupted, 0, now);
  EXPECT_FALSE(schedule.choose({unknown(kPeer)}, kRounds, now + seconds(19)));
  EXPECT_TRUE(schedule.choose({unknown(kPeer)}, kRounds, now + seconds(20)));
}

}  // namespace
}  // namespace sluice::topology
