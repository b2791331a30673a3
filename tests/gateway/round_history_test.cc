// Goal: people see each round with its phases, bytes and state, and a state that differs is named. Method: scripted rounds with passed-in
// times.
#include "gateway/round_history.h"

#include <gtest/gtest.h>

namespace sluice::gateway {
namespace {

using std::chrono::milliseconds;

sync::RoundRecord committed(std::uint64_t round) {
  sync::RoundRecord record;
  record.round = RoundId(round);
  record.phase = sync::Phase::kCommitted;
  record.members = SiteSet{0b111};
  record.counted = SiteSet{0b011};
  return record;
}

TEST(RoundHistory, PhasesAddUpToTheRound) {
  RoundHistory history({"a", "b", "c"});
  const TimePoint zero{};
  history.ready(zero);
  history.opened(committed(1), zero + milliseconds(100));
  history.contributed(1000, zero + milliseconds(150));
  history.contributed(500, zero + milliseconds(200));
  history.update_complete(zero + milliseconds(350));
  const auto status = history.finished(committed(1), RoundOutcome::kCommitted, 4000, 20, 2.5, zero + milliseconds(400), {});
  EXPECT_NEAR(status->phase_seconds.open, 0.1, 1e-9);
  EXPECT_NEAR(status->phase_seconds.contribute, 0.1, 1e-9);
  EXPECT_NEAR(status->phase_seconds.combine, 0.15, 1e-9);
  EXPECT_NEAR(status->phase_seconds.commit, 0.05, 1e-9);
  EXPECT_NEAR(status->seconds, 0.4, 1e-9);
  EXPECT_NEAR(status->bits_per_value, 3.0, 1e-9);
  EXPECT_EQ(status->sites, (std::vector<std::string>{"a", "b"}));
}

TEST(RoundHistory, RawBytesAreThoseOfARingAllReduceAtEachStep) {
  RoundHistory history({"a", "b", "c"});
  history.finished(committed(1), RoundOutcome::kCommitted, 1'000'000, 20, std::nullopt, {}, {});
  // 2 (K-1)/K x 4 bytes x parameters x steps.
  EXPECT_NEAR(static_cast<double>(history.raw_bytes()), 2.0 * 2.0 / 3.0 * 4.0 * 1e6 * 20.0, 1.0);
  history.finished(committed(2), RoundOutcome::kReplayed, 1'000'000, 20, std::nullopt, {}, {});
  EXPECT_NEAR(static_cast<double>(history.raw_bytes()), 2.0 * 2.0 / 3.0 * 4.0 * 1e6 * 20.0, 1.0);
}

TEST(RoundHistory, BytesOfARoundAreThoseSinceTheLast) {
  RoundHistory history({"a", "b"});
  history.set_wan_totals(1000, 500);
  EXPECT_EQ(history.finished(committed(1), RoundOutcome::kCommitted, 10, 1, std::nullopt, {}, {})->sent_bytes, 1000U);
  history.set_wan_totals(1700, 900);
  const auto second = history.finished(committed(2), RoundOutcome::kCommitted, 10, 1, std::nullopt, {}, {});
  EXPECT_EQ(second->sent_bytes, 700U);
  EXPECT_EQ(second->received_bytes, 400U);
}

TEST(RoundHistory, DifferentStateIsNamed) {
  RoundHistory history({"a", "b", "c"});
  history.finished(committed(4), RoundOutcome::kCommitted, 10, 1, std::nullopt, {}, {});
  EXPECT_TRUE(history.report_state(RoundId(4), SiteId(0), SiteId(0), Digest{1, 1}).empty());
  EXPECT_TRUE(history.report_state(RoundId(4), SiteId(1), SiteId(0), Digest{1, 1}).empty());
  EXPECT_EQ(history.report_state(RoundId(4), SiteId(2), SiteId(0), Digest{1, 2}), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(history.rounds().back()->state_digest, "00000000000000010000000000000001");
}

TEST(RoundHistory, KeepsTheLastRoundsAndAnnouncements) {
  RoundHistory history({"a", "b"});
  for (std::uint64_t round = 1; round <= kRoundHistoryMax + 10; ++round) {
    history.finished(committed(round), RoundOutcome::kCommitted, 10, 1, std::nullopt, {}, {});
    history.announce("text", false, {});
  }
  EXPECT_EQ(history.rounds().size(), kRoundHistoryMax);
  EXPECT_EQ(history.rounds().front()->round, 11U);
  EXPECT_EQ(history.announcements().size(), kAnnouncementHistoryMax);
}

// A site that comes back reports the state of a round long past: older than all that are kept, its entry was freed and then read.
TEST(RoundHistory, ReportOfARoundOlderThanAllThatAreKeptIsNotCompared) {
  RoundHistory history({"a", "b", "c"});
  const Digest digest{1, 2};
  for (std::uint64_t round = 1000; round < 1200; ++round)
    EXPECT_TRUE(history.report_state(RoundId(round), SiteId(1), SiteId(0), digest).empty());
  EXPECT_TRUE(history.report_state(RoundId(0), SiteId(2), SiteId(0), Digest{3, 4}).empty());
  EXPECT_EQ(history.report_state(RoundId(1199), SiteId(2), SiteId(0), Digest{3, 4}), std::vector<std::string>{"b"});
  EXPECT_EQ(history.newest_state(SiteId(2)), RoundId(1199));
  EXPECT_EQ(history.newest_state(SiteId(0)), RoundId(0));
}

}  // namespace
}  // namespace sluice::gateway
