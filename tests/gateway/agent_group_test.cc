// Goal: a site is ready, and has a state, exactly when all its ranks say the same; ranks that do not fit are refused with a reason. Method:
// scripted hellos, readies and applies.
#include "gateway/agent_group.h"

#include <gtest/gtest.h>

namespace sluice::gateway {
namespace {

constexpr std::uint64_t kParameters = 600'000;  // three chunks

wire::AgentHello hello(std::uint32_t rank, std::uint32_t ranks, std::uint64_t manifest = 7, std::uint64_t round = 0) {
  wire::AgentHello message;
  message.set_rank(rank);
  message.set_ranks(ranks);
  message.set_manifest_hash(manifest);
  message.set_chunks(3);
  message.set_round(round);
  wire::TensorInfo* tensor = message.add_tensors();
  tensor->set_name("w");
  tensor->add_shape(kParameters / 1000);
  tensor->add_shape(1000);
  message.add_chunk_digests(std::string(16, static_cast<char>('a' + rank)));
  return message;
}

wire::AgentReady ready(std::uint64_t round, std::uint64_t tokens) {
  wire::AgentReady message;
  message.set_round(round);
  message.set_tokens(tokens);
  message.set_inner_steps(20);
  message.set_sketch_weight(0.5F);
  const ByteVector sketch = compression::Sketch().to_bytes();
  message.set_sketch(sketch.data(), sketch.size());
  return message;
}

TEST(AgentGroup, IsCompleteWithAllRanks) {
  AgentGroup group(2);
  ASSERT_TRUE(group.join(AgentSessionId(1), hello(0, 2)));
  EXPECT_FALSE(group.is_complete());
  EXPECT_FALSE(group.state());
  ASSERT_TRUE(group.join(AgentSessionId(2), hello(1, 2)));
  EXPECT_TRUE(group.is_complete());
  ASSERT_TRUE(group.state());
  EXPECT_EQ(group.state()->round, RoundId(0));
  EXPECT_EQ(group.parameters(), kParameters);
}

TEST(AgentGroup, RefusesWhatDoesNotFit) {
  AgentGroup group(2);
  ASSERT_TRUE(group.join(AgentSessionId(1), hello(0, 2)));
  EXPECT_EQ(group.join(AgentSessionId(2), hello(1, 4)).error().code, ErrorCode::kAgentRefused);
  EXPECT_EQ(group.join(AgentSessionId(2), hello(2, 2)).error().code, ErrorCode::kAgentRefused);
  EXPECT_EQ(group.join(AgentSessionId(2), hello(1, 2, 8)).error().code, ErrorCode::kManifestMismatch);
  wire::AgentHello wrong_chunks = hello(1, 2);
  wrong_chunks.set_chunks(1'000'000);
  EXPECT_EQ(group.join(AgentSessionId(2), wrong_chunks).error().code, ErrorCode::kAgentRefused);
  wire::AgentHello huge = hello(1, 2);
  huge.mutable_tensors(0)->set_shape(0, 1ULL << 62U);
  EXPECT_EQ(group.join(AgentSessionId(2), huge).error().code, ErrorCode::kAgentRefused);
  EXPECT_FALSE(group.is_complete());
}

TEST(AgentGroup, NewerProcessOfARankReplacesTheOlder) {
  AgentGroup group(1);
  ASSERT_TRUE(group.join(AgentSessionId(1), hello(0, 1)));
  const auto replaced = group.join(AgentSessionId(2), hello(0, 1, 9));
  ASSERT_TRUE(replaced) << replaced.error().to_string();
  EXPECT_EQ(*replaced, AgentSessionId(1));
  EXPECT_EQ(group.manifest_hash(), 9U);
  EXPECT_FALSE(group.leave(AgentSessionId(1)));
  EXPECT_TRUE(group.is_complete());
}

TEST(AgentGroup, IsReadyWhenAllRanksAreForTheSameRound) {
  AgentGroup group(2);
  ASSERT_TRUE(group.join(AgentSessionId(1), hello(0, 2)));
  ASSERT_TRUE(group.join(AgentSessionId(2), hello(1, 2)));
  const auto first = group.set_ready(AgentSessionId(1), ready(1, 100));
  ASSERT_TRUE(first) << first.error().to_string();
  EXPECT_FALSE(*first);
  const auto second = group.set_ready(AgentSessionId(2), ready(1, 150));
  ASSERT_TRUE(second) << second.error().to_string();
  ASSERT_TRUE(*second);
  EXPECT_EQ((*second)->tokens, 250U);
  EXPECT_EQ((*second)->inner_steps, 20U);
}

TEST(AgentGroup, ReadyForAnotherRoundThanTheStateIsRefused) {
  AgentGroup group(1);
  ASSERT_TRUE(group.join(AgentSessionId(1), hello(0, 1)));
  EXPECT_FALSE(group.set_ready(AgentSessionId(1), ready(5, 100)));
  EXPECT_FALSE(group.set_ready(AgentSessionId(9), ready(1, 100)));
}

TEST(AgentGroup, StateNeedsTheSameRoundAtAllRanks) {
  AgentGroup group(2);
  ASSERT_TRUE(group.join(AgentSessionId(1), hello(0, 2, 7, 4)));
  ASSERT_TRUE(group.join(AgentSessionId(2), hello(1, 2, 7, 4)));
  const auto before = group.state();
  ASSERT_TRUE(before);
  wire::RoundApplied applied;
  applied.set_round(5);
  applied.add_chunk_digests(std::string(16, 'z'));
  ASSERT_TRUE(group.set_applied(AgentSessionId(1), applied));
  EXPECT_FALSE(group.state());
  EXPECT_EQ(*group.round_min(), RoundId(4));
  ASSERT_TRUE(group.set_applied(AgentSessionId(2), applied));
  ASSERT_TRUE(group.state());
  EXPECT_EQ(group.state()->round, RoundId(5));
  EXPECT_FALSE(group.state()->digest == before->digest);
}

TEST(AgentGroup, ARankThatHasEndedCountsInTheReportedStateUntilItIsBack) {
  AgentGroup group(2);
  ASSERT_TRUE(group.join(AgentSessionId(1), hello(0, 2, 7, 4)));
  ASSERT_TRUE(group.join(AgentSessionId(2), hello(1, 2, 7, 4)));
  wire::RoundApplied applied;
  applied.set_round(5);
  applied.add_chunk_digests(std::string(16, 'z'));
  ASSERT_TRUE(group.set_applied(AgentSessionId(1), applied));
  EXPECT_FALSE(group.reported_state());
  group.leave(AgentSessionId(1));
  ASSERT_TRUE(group.set_applied(AgentSessionId(2), applied));
  EXPECT_FALSE(group.state());
  ASSERT_TRUE(group.reported_state());
  EXPECT_EQ(group.reported_state()->round, RoundId(5));
  group.leave(AgentSessionId(2));
  ASSERT_TRUE(group.join(AgentSessionId(3), hello(0, 2, 7, 4)));
  EXPECT_FALSE(group.reported_state());  // what the new process holds is what counts now
  ASSERT_TRUE(group.join(AgentSessionId(4), hello(1, 2, 7, 4)));
  EXPECT_EQ(group.reported_state()->digest, group.state()->digest);
}

TEST(AgentGroup, TooManyDigestsAreRefused) {
  AgentGroup group(1);
  ASSERT_TRUE(group.join(AgentSessionId(1), hello(0, 1)));
  wire::RoundApplied applied;
  for (int each = 0; each < 4; ++each) applied.add_chunk_digests(std::string(16, 'z'));
  EXPECT_FALSE(group.set_applied(AgentSessionId(1), applied));
}

TEST(AgentGroup, ChunksBelongToTheShardsOfTheRanks) {
  AgentGroup group(2);
  ASSERT_TRUE(group.join(AgentSessionId(1), hello(0, 2)));
  ASSERT_TRUE(group.join(AgentSessionId(2), hello(1, 2)));
  // Three chunks over two ranks: [0, 1) and [1, 3).
  EXPECT_EQ(group.session_of(ChunkId(0)), AgentSessionId(1));
  EXPECT_EQ(group.session_of(ChunkId(1)), AgentSessionId(2));
  EXPECT_EQ(group.session_of(ChunkId(2)), AgentSessionId(2));
  EXPECT_FALSE(group.session_of(ChunkId(3)));
}

TEST(AgentGroup, RendezvousAnswersNowOrWhenTheKeyComes) {
  AgentGroup group(2);
  EXPECT_FALSE(group.wait_key(AgentSessionId(2), 11, "address-0"));
  const auto answers = group.set_key("address-0", "tcp://x");
  ASSERT_TRUE(answers);
  ASSERT_EQ(answers->size(), 1U);
  EXPECT_EQ((*answers)[0].request_id, 11U);
  EXPECT_EQ(group.wait_key(AgentSessionId(1), 12, "address-0"), "tcp://x");
  EXPECT_FALSE(group.set_key(std::string(1000, 'k'), "v"));
  group.begin_generation();
  EXPECT_FALSE(group.wait_key(AgentSessionId(1), 13, "address-0"));
}

}  // namespace
}  // namespace sluice::gateway
