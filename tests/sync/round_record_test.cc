// Goal: the register only moves along idle -> open -> closed -> committed / aborted, epochs and rounds never go back, a store that starts
// voids what was half done. Method: one valid history, then each step of it with one field wrong; restarts at each phase.
#include "sync/round_record.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>

namespace sluice::sync {
namespace {

RoundRecord opened(const RoundRecord& current) {
  RoundRecord record;
  const RoundKey key = next_key(current);
  record.epoch = key.epoch;
  record.round = key.round;
  record.phase = Phase::kOpen;
  record.committed_round = current.committed_round;
  record.members = SiteSet{0b111};
  record.weights = {{SiteId(0), 1}, {SiteId(1), 2}, {SiteId(2), 1}};
  record.owners = {SiteId(0), SiteId(1), SiteId(2)};
  record.step = 0.5F;
  record.codec = 2;
  record.chunks = 4;
  return record;
}

RoundRecord closed(const RoundRecord& current, SiteSet counted) {
  RoundRecord record = current;
  record.phase = Phase::kClosed;
  record.attempt = current.attempt + 1;
  record.counted = counted;
  return record;
}

RoundRecord committed(const RoundRecord& current) {
  RoundRecord record = current;
  record.phase = Phase::kCommitted;
  record.committed_round = record.round;
  return record;
}

RoundRecord aborted(const RoundRecord& current) {
  RoundRecord record = current;
  record.phase = Phase::kAborted;
  record.counted = SiteSet{};
  return record;
}

void expect_accepted(RegisterStore& store, const RoundRecord& next) {
  const std::uint64_t version = store.current().version;
  const auto outcome = store.compare_and_set(version, next);
  ASSERT_TRUE(outcome.accepted) << outcome.problem;
  EXPECT_EQ(store.current().version, version + 1);
}

TEST(RegisterStore, TakesAWholeRoundAndTheNext) {
  RegisterStore store(RoundRecord{});
  EXPECT_EQ(store.current().epoch.value, kEpochsPerStart);
  expect_accepted(store, opened(store.current()));
  expect_accepted(store, closed(store.current(), SiteSet{0b111}));
  expect_accepted(store, closed(store.current(), SiteSet{0b011}));
  expect_accepted(store, committed(store.current()));
  EXPECT_EQ(store.current().committed_round.value, 1U);
  expect_accepted(store, opened(store.current()));
  EXPECT_EQ(store.current().round.value, 2U);
}

TEST(RegisterStore, AnAbortedRoundOpensAgainUnderItsNumberInTheNextEpoch) {
  RegisterStore store(RoundRecord{});
  expect_accepted(store, opened(store.current()));
  const RoundKey first = store.current().key();
  expect_accepted(store, aborted(store.current()));
  expect_accepted(store, opened(store.current()));
  EXPECT_EQ(store.current().round, first.round);
  EXPECT_EQ(store.current().epoch, first.epoch.next());
  expect_accepted(store, closed(store.current(), SiteSet{0b111}));
  expect_accepted(store, aborted(store.current()));
}

TEST(RegisterStore, OnlyTheExpectedVersionIsReplaced) {
  RegisterStore store(RoundRecord{});
  const std::uint64_t version = store.current().version;
  expect_accepted(store, opened(store.current()));
  EXPECT_FALSE(store.compare_and_set(version, closed(store.current(), SiteSet{1})).accepted);
  EXPECT_FALSE(store.compare_and_set(version + 2, closed(store.current(), SiteSet{1})).accepted);
}

TEST(TransitionProblem, RefusesWhateverBreaksTheOrderOrTheTerms) {
  RoundRecord idle;
  idle.epoch = EpochId(5);
  const RoundRecord open = opened(idle);
  const RoundRecord close = closed(open, SiteSet{0b011});
  const RoundRecord commit = committed(close);
  const auto with = [](RoundRecord record, const std::function<void(RoundRecord&)>& change) {
    change(record);
    return record;
  };
  const RoundRecord direct = with(open, [](RoundRecord& r) { r.plan_kind = topology::PlanKind::kDirect; });
  const RoundRecord direct_close = closed(direct, SiteSet{0b011});
  const std::vector<std::pair<const RoundRecord*, RoundRecord>> refused = {
      {&idle, closed(open, SiteSet{1})},
      {&idle, commit},
      {&idle, idle},
      {&idle, with(open, [](RoundRecord& r) { r.epoch = EpochId(4); })},
      {&idle, with(open, [](RoundRecord& r) { r.epoch = EpochId(6); })},
      {&idle, with(open, [](RoundRecord& r) { r.round = RoundId(2); })},
      {&idle, with(open, [](RoundRecord& r) { r.weights.pop_back(); })},
      {&idle, with(open, [](RoundRecord& r) { r.weights[0].tokens = 0; })},
      {&idle, with(open, [](RoundRecord& r) { r.weights[0].site = SiteId(1); })},
      {&idle, with(open, [](RoundRecord& r) { r.weights[0].site = SiteId(99); })},
      {&idle, with(open, [](RoundRecord& r) { r.members = SiteSet{0b1'0000'0000'0000'0111}; })},
      {&idle, with(open, [](RoundRecord& r) { r.owners.clear(); })},
      {&idle, with(open, [](RoundRecord& r) { r.owners.assign(65, SiteId(0)); })},
      {&idle, with(open, [](RoundRecord& r) { r.owners[0] = SiteId(16); })},
      {&idle, with(open, [](RoundRecord& r) { r.step = std::numeric_limits<float>::quiet_NaN(); })},
      {&idle, with(open, [](RoundRecord& r) { r.step = -1.0F; })},
      {&idle, with(open, [](RoundRecord& r) { r.chunks = 0; })},
      {&idle, with(open, [](RoundRecord& r) { r.chunks = kChunksMax + 1; })},
      {&idle, with(open, [](RoundRecord& r) { r.counted = SiteSet{1}; })},
      {&open, open},
      {&open, opened(commit)},
      {&open, commit},
      {&open, closed(open, SiteSet{})},
      {&open, closed(open, SiteSet{0b1000})},
      {&open, with(close, [](RoundRecord& r) { r.attempt = 2; })},
      {&open, with(close, [](RoundRecord& r) { r.weights[1].tokens = 7; })},
      {&open, with(close, [](RoundRecord& r) { r.step = 0.25F; })},
      {&open, with(close, [](RoundRecord& r) { r.base_digest.low = 1; })},
      {&open, with(close, [](RoundRecord& r) { r.epoch = EpochId(6); })},
      {&open, with(close, [](RoundRecord& r) { r.plan_kind = topology::PlanKind::kDirect; })},
      {&direct, with(close, [](RoundRecord& r) { r.plan_kind = topology::PlanKind::kRelay; })},
      {&direct_close, commit},
      {&idle, with(open, [](RoundRecord& r) { r.plan_kind = static_cast<topology::PlanKind>(3); })},
      {&close, closed(close, SiteSet{0b111})},
      {&close, close},
      {&close, with(commit, [](RoundRecord& r) { r.counted = SiteSet{0b111}; })},
      {&close, with(commit, [](RoundRecord& r) { r.attempt = 2; })},
      {&close, with(commit, [](RoundRecord& r) { r.committed_round = RoundId(0); })},
      {&commit, commit},
      {&commit, close},
      {&commit, aborted(open)},
      {&commit, open},
  };
  for (std::size_t index = 0; index < refused.size(); ++index) {
    EXPECT_TRUE(transition_problem(*refused[index].first, refused[index].second)) << "case " << index;
  }
  EXPECT_FALSE(transition_problem(idle, open));
  EXPECT_FALSE(transition_problem(open, close));
  EXPECT_FALSE(transition_problem(close, commit));
  EXPECT_FALSE(transition_problem(close, aborted(close)));
  EXPECT_FALSE(transition_problem(direct, direct_close));
  EXPECT_FALSE(transition_problem(direct, close)) << "a direct round may go on with owners";
  EXPECT_FALSE(transition_problem(direct_close, closed(close, SiteSet{0b011})));
}

TEST(RegisterStore, AStartVoidsARunningRoundAndKeepsTheLastCommit) {
  RegisterStore store(RoundRecord{});
  expect_accepted(store, opened(store.current()));
  expect_accepted(store, closed(store.current(), SiteSet{0b111}));
  expect_accepted(store, committed(store.current()));
  const RegisterStore after_commit(store.current());
  EXPECT_EQ(after_commit.current().phase, Phase::kCommitted);
  EXPECT_EQ(after_commit.current().committed_round.value, 1U);
  EXPECT_EQ(after_commit.current().epoch.value, 2 * kEpochsPerStart);
  expect_accepted(store, opened(store.current()));
  RegisterStore after_open(store.current());
  EXPECT_EQ(after_open.current().phase, Phase::kAborted);
  EXPECT_EQ(after_open.current().committed_round.value, 1U);
  EXPECT_EQ(after_open.current().epoch.value, 2 * kEpochsPerStart);
  EXPECT_TRUE(store.current().is_older_than(after_open.current()));
  expect_accepted(after_open, opened(after_open.current()));
  EXPECT_EQ(after_open.current().round.value, 2U);
}

TEST(RegisterStore, AWriteOfAnEarlierStartIsRefusedEvenAtTheSameVersion) {
  RegisterStore before(RoundRecord{});
  const RegisterStore started_again(before.current());
  expect_accepted(before, opened(before.current()));  // version 2, never made durable
  RegisterStore after(started_again.current());
  ASSERT_EQ(after.current().version, 3U);
  expect_accepted(before, closed(before.current(), SiteSet{0b111}));  // version 3 too
  EXPECT_FALSE(after.compare_and_set(3, committed(before.current())).accepted);
}

TEST(RoundRecord, WeightsAndScaleAreTheSharesOfTheTokens) {
  RoundRecord record = opened(RoundRecord{});
  EXPECT_FLOAT_EQ(weight_of(record, SiteId(0)), 0.25F);
  EXPECT_FLOAT_EQ(weight_of(record, SiteId(1)), 0.5F);
  EXPECT_EQ(weight_of(record, SiteId(7)), 0.0F);
  record.counted = SiteSet{0b110};
  EXPECT_FLOAT_EQ(scale_of(record), 1.0F / 0.75F);
  record.counted = SiteSet{};
  EXPECT_EQ(scale_of(record), 0.0F);
}

TEST(RoundRecord, OwnersTakeChunksInTurn) {
  RoundRecord record = opened(RoundRecord{});
  EXPECT_EQ(owners_of(record, ChunkId(4)), SiteSet{0b010});
  EXPECT_EQ(owners_with_chunks(record), SiteSet{0b111});
  record.chunks = 2;
  EXPECT_EQ(owners_with_chunks(record), SiteSet{0b011});
}

TEST(RoundRecord, InADirectRoundEachOwnerHasEveryChunk) {
  RoundRecord record = opened(RoundRecord{});
  record.plan_kind = topology::PlanKind::kDirect;
  record.chunks = 2;
  EXPECT_EQ(owners_of(record, ChunkId(1)), SiteSet{0b111});
  EXPECT_EQ(owners_with_chunks(record), SiteSet{0b111});
}

TEST(RoundRecord, ADirectRoundHasNoWaysOverThirdSites) {
  RoundRecord record = opened(RoundRecord{});
  record.plan.detours = {{SiteId(0), SiteId(1), SiteId(2), 0.5}};
  EXPECT_EQ(record_problem(record), std::nullopt);
  EXPECT_EQ(way_of(record), topology::PlanKind::kRelay);
  record.plan_kind = topology::PlanKind::kDirect;
  EXPECT_NE(record_problem(record), std::nullopt);
}

}  // namespace
}  // namespace sluice::sync
