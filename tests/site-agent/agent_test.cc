// Goal: whatever the gateway does, a step of the agent ends, its outcome says what happened, and the tensors hold exactly the parameters
// that the protocol prescribes. Method: the agent trains in a thread, the test plays the gateway message by message; no clock is waited
// for.

#include "site-agent/agent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <future>
#include <limits>
#include <numeric>

#include "compression/frame_decoder.h"
#include "compression/grid_codec.h"
#include "compression/limits.h"
#include "sync/outer_optimizer.h"
#include "tests/site-agent/fake_gateway.h"

namespace sluice::site_agent {
namespace {

using compression::Codec;
using compression::kChunkValues;
using test::FakeConnection;
using test::FakeFrame;
using test::FakeGateway;
using wire::FrameRole;

constexpr std::uint32_t kRaw = static_cast<std::uint32_t>(Codec::kRaw32);
constexpr std::uint32_t kGrid = static_cast<std::uint32_t>(Codec::kGridDense);
constexpr std::uint32_t kSiteBit = 1;

ByteVector raw_frame(std::uint32_t chunk, std::span<const float> values) {
  std::vector<float> residual(values.size());
  ByteVector frame;
  EXPECT_TRUE(compression::encode_raw_frame(values, 1.0F, residual, ChunkId(chunk), frame));
  return frame;
}

std::vector<float> decode(const ByteVector& bytes) {
  const auto frame = compression::parse_frame(bytes);
  EXPECT_TRUE(frame);
  std::vector<float> values(frame->header.value_count);
  EXPECT_TRUE(compression::decode_frame(*frame, values));
  return values;
}

wire::FrameEnvelope envelope(FrameRole role, std::uint64_t round, std::uint32_t chunk, std::uint32_t counted = 0) {
  wire::FrameEnvelope result;
  result.epoch = 1;
  result.round = round;
  result.chunk = chunk;
  result.counted = counted;
  result.role = static_cast<std::uint16_t>(role);
  return result;
}

// One rank with one tensor. Steps run in another thread, so that the test is free to play the gateway.
class Trainer {
 public:
  explicit Trainer(const FakeGateway& gateway, std::size_t values, Duration start_timeout = std::chrono::seconds(20)) : tensor(values) {
    std::iota(tensor.begin(), tensor.end(), 1.0F);
    AgentOptions options;
    options.gateway = gateway.address();
    options.start_timeout = start_timeout;
    agent = std::move(*Agent::create(options));
    EXPECT_TRUE(agent->add_tensor("weight", compression::ElementType::kFloat32, {values}, tensor.data()));
  }
  // Starts the agent and plays the gateway's part of the start.
  std::unique_ptr<FakeConnection> start(FakeGateway& gateway) {
    auto started = std::async(std::launch::async, [&] { return agent->start().has_value(); });
    auto connection = gateway.accept();
    EXPECT_TRUE(started.get());
    return connection;
  }
  std::future<StepResult> step() {
    return std::async(std::launch::async, [&] { return *agent->step(10, 1.0); });
  }

  std::vector<float> tensor;
  std::unique_ptr<Agent> agent;
};

// Opens the round, gives every contribution back as the update, and commits.
void play_echo_round(FakeConnection& connection, std::uint64_t round, std::uint32_t chunks, std::uint32_t codec = kRaw, float step = 0.0F) {
  const auto ready = connection.read();
  ASSERT_TRUE(ready.has_ready());
  EXPECT_EQ(ready.ready().round(), round);
  connection.send(test::opened(round, codec, step));
  for (std::uint32_t index = 0; index < chunks; ++index) {
    const FakeFrame frame = connection.read_frame();
    EXPECT_EQ(frame.envelope.round, round);
    EXPECT_EQ(frame.envelope.chunk, index);
    connection.send_frame(envelope(FrameRole::kUpdate, round, index, kSiteBit), frame.frame);
  }
  connection.send(test::committed(round, kSiteBit, 1.0F, true));
  const auto applied = connection.read();
  ASSERT_TRUE(applied.has_round_applied());
  EXPECT_EQ(applied.round_applied().round(), round);
  EXPECT_EQ(applied.round_applied().chunk_digests_size(), static_cast<int>(chunks));
}

TEST(Agent, CommittedRoundWritesTheNewParametersAndReportsTheirDigest) {
  FakeGateway gateway;
  Trainer trainer(gateway, 1000);
  const auto connection = trainer.start(gateway);
  EXPECT_EQ(gateway.hello.round(), 0U);
  EXPECT_EQ(gateway.hello.chunks(), 1U);
  for (std::uint64_t round = 1; round <= 3; ++round) {
    std::vector<float> local = trainer.tensor;
    for (float& value : local) value += 0.5F;
    trainer.tensor = local;
    auto result = trainer.step();
    play_echo_round(*connection, round, 1);
    const StepResult got = result.get();
    EXPECT_EQ(got.outcome, StepOutcome::kCommitted);
    EXPECT_TRUE(got.tensors_written);
    EXPECT_EQ(got.round, round);
    EXPECT_EQ(got.sites_counted, 1U);
    EXPECT_EQ(trainer.tensor, local);  // plain average over one site with rate 1: its own parameters
  }
}

TEST(Agent, ChunksStraddlingManyTensorsComeBackInPlace) {
  FakeGateway gateway;
  Trainer trainer(gateway, 3 * kChunkValues + 17);
  const auto connection = trainer.start(gateway);
  std::vector<float> local = trainer.tensor;
  for (std::size_t index = 0; index < local.size(); ++index) local[index] += static_cast<float>(index % 7);
  trainer.tensor = local;
  auto result = trainer.step();
  play_echo_round(*connection, 1, 4);
  EXPECT_EQ(result.get().outcome, StepOutcome::kCommitted);
  EXPECT_EQ(trainer.tensor, local);
}

TEST(Agent, NesterovMomentumIsKeptAcrossRounds) {
  FakeGateway gateway;
  gateway.welcome.set_outer_rule(1);
  gateway.welcome.set_outer_learning_rate(0.5F);
  gateway.welcome.set_outer_momentum(0.5F);
  Trainer trainer(gateway, 4);
  const auto connection = trainer.start(gateway);
  std::vector<float> parameters = trainer.tensor;
  std::vector<float> momentum(4);
  for (std::uint64_t round = 1; round <= 3; ++round) {
    for (float& value : trainer.tensor) value -= 1.0F;  // delta = +1
    auto result = trainer.step();
    play_echo_round(*connection, round, 1);
    result.get();
    sync::apply_outer_step({sync::OuterRule::kNesterov, 0.5F, 0.5F}, 1.0F, std::vector<float>(4, 1.0F), parameters, momentum);
    EXPECT_EQ(trainer.tensor, parameters);
  }
}

TEST(Agent, InnerStepsBetweenBoundariesDoNothing) {
  FakeGateway gateway;
  gateway.welcome.set_inner_steps(3);
  Trainer trainer(gateway, 8);
  const auto connection = trainer.start(gateway);
  EXPECT_EQ(trainer.agent->step(5, 1.0)->outcome, StepOutcome::kInner);
  EXPECT_FALSE(trainer.agent->is_next_boundary());
  EXPECT_EQ(trainer.agent->step(5, 1.0)->outcome, StepOutcome::kInner);
  EXPECT_TRUE(trainer.agent->is_next_boundary());
  auto result = trainer.step();
  const auto ready = connection->read();
  EXPECT_EQ(ready.ready().tokens(), 20U);
  EXPECT_EQ(ready.ready().inner_steps(), 3U);
  connection->send(test::skipped(1));
  EXPECT_EQ(result.get().outcome, StepOutcome::kSkipped);
}

TEST(Agent, SkippedRoundKeepsTheLocalParametersAndTheNextCarriesTheLongerDelta) {
  FakeGateway gateway;
  Trainer trainer(gateway, 100);
  const auto connection = trainer.start(gateway);
  const std::vector<float> global = trainer.tensor;
  for (float& value : trainer.tensor) value -= 1.0F;
  auto first = trainer.step();
  connection->read();
  connection->send(test::opened(1, kRaw, 0.0F));
  connection->read_frame();
  connection->send(test::skipped(1));
  EXPECT_EQ(first.get().outcome, StepOutcome::kSkipped);
  EXPECT_EQ(trainer.tensor[0], global[0] - 1.0F);
  for (float& value : trainer.tensor) value -= 1.0F;
  auto second = trainer.step();
  const auto ready = connection->read();
  EXPECT_EQ(ready.ready().round(), 1U);
  EXPECT_EQ(ready.ready().tokens(), 20U);
  connection->send(test::opened(1, kRaw, 0.0F, true, 2));
  EXPECT_EQ(decode(connection->read_frame().frame), std::vector<float>(100, 2.0F));
  connection->send(test::skipped(1));
  second.get();
}

wire::AgentMessage opened_with_scale(std::uint64_t epoch) {
  wire::AgentMessage message = test::opened(1, kRaw, 0.0F, true, epoch);
  message.mutable_round_opened()->set_members(kSiteBit);
  message.mutable_round_opened()->set_scale_if_all(1.0F);
  return message;
}

// The update of the expected set is in the tensors before the commit: a round that comes to nothing must leave no trace of it.
TEST(Agent, UpdateThatIsNotCommittedIsTakenBack) {
  FakeGateway gateway;
  Trainer trainer(gateway, 100);
  const auto connection = trainer.start(gateway);
  for (float& value : trainer.tensor) value -= 1.0F;
  const std::vector<float> local = trainer.tensor;
  auto result = trainer.step();
  connection->read();
  connection->send(opened_with_scale(1));
  connection->read_frame();
  connection->send_frame(envelope(FrameRole::kUpdate, 1, 0, kSiteBit), raw_frame(0, std::vector<float>(100, 7.0F)));
  connection->send(test::skipped(1));
  EXPECT_EQ(result.get().outcome, StepOutcome::kSkipped);
  EXPECT_EQ(trainer.tensor, local);
}

TEST(Agent, RoundOpenedAgainAfterAnUpdateCodesTheSameDelta) {
  FakeGateway gateway;
  Trainer trainer(gateway, 100);
  const auto connection = trainer.start(gateway);
  const std::vector<float> global = trainer.tensor;
  for (float& value : trainer.tensor) value -= 1.0F;
  auto result = trainer.step();
  connection->read();
  for (const std::uint64_t epoch : {1, 2}) {
    connection->send(opened_with_scale(epoch));
    EXPECT_EQ(decode(connection->read_frame().frame), std::vector<float>(100, 1.0F)) << "epoch " << epoch;
    auto update = envelope(FrameRole::kUpdate, 1, 0, kSiteBit);
    update.epoch = epoch;
    connection->send_frame(update, raw_frame(0, std::vector<float>(100, 3.0F)));
  }
  auto commit = test::committed(1, kSiteBit, 1.0F, true);
  commit.mutable_round_committed()->set_epoch(2);
  connection->send(commit);
  connection->read();
  EXPECT_EQ(result.get().outcome, StepOutcome::kCommitted);
  EXPECT_EQ(trainer.tensor[5], global[5] - 3.0F);
}

TEST(Agent, SkippedContributionGivesItsResidualBack) {
  FakeGateway gateway;
  Trainer trainer(gateway, 100);
  const auto connection = trainer.start(gateway);
  for (float& value : trainer.tensor) value -= 0.3F;  // rounds to 0 on a grid of step 1: all of it stays in the residual
  ByteVector frames[2];
  for (ByteVector& frame : frames) {
    auto result = trainer.step();
    connection->read();
    connection->send(test::opened(1, kGrid, 1.0F));
    frame = connection->read_frame().frame;
    connection->send(test::skipped(1));
    result.get();
  }
  EXPECT_EQ(frames[0], frames[1]);  // a kept residual would have made 0.6 of it, and a 1 on the grid
}

// Rounds with a delta of 0.3 and a step of 1, each as the agent must code it.
void expect_contributions(float residual_share, const std::vector<float>& expected) {
  FakeGateway gateway;
  gateway.welcome.set_residual_share(residual_share);
  Trainer trainer(gateway, 100);
  const auto connection = trainer.start(gateway);
  for (const float each : expected) {
    const std::vector<float> global = trainer.tensor;
    for (std::size_t index = 0; index < 100; ++index) trainer.tensor[index] = global[index] - 0.3F;
    auto result = trainer.step();
    const std::uint64_t round = connection->read().ready().round();
    connection->send(test::opened(round, kGrid, 1.0F));
    const FakeFrame frame = connection->read_frame();
    EXPECT_EQ(decode(frame.frame), std::vector<float>(100, each)) << "round " << round;
    connection->send_frame(envelope(FrameRole::kUpdate, round, 0, kSiteBit), frame.frame);
    connection->send(test::committed(round, kSiteBit, 1.0F, true));
    connection->read();
    EXPECT_EQ(result.get().outcome, StepOutcome::kCommitted);
    EXPECT_EQ(trainer.tensor[0], global[0] - each);
  }
}

TEST(Agent, ResidualOfACountedContributionReachesTheNextRound) { expect_contributions(1.0F, {0.0F, 1.0F}); }

TEST(Agent, OfTheResidualOnlyTheGatewaysShareReachesTheNextRound) {
  expect_contributions(0.5F, {0.0F, 0.0F, 1.0F});
  expect_contributions(0.0F, {0.0F, 0.0F, 0.0F, 0.0F});
}

TEST(Agent, LeftOutContributionIsDiscardedAndTheOthersUpdateIsTaken) {
  FakeGateway gateway;
  Trainer trainer(gateway, 100);
  const auto connection = trainer.start(gateway);
  const std::vector<float> global = trainer.tensor;
  for (float& value : trainer.tensor) value -= 5.0F;
  auto result = trainer.step();
  connection->read();
  connection->send(test::opened(1, kRaw, 0.0F));
  connection->read_frame();
  connection->send_frame(envelope(FrameRole::kUpdate, 1, 0, 7), raw_frame(0, std::vector<float>(100, 9.0F)));
  connection->send_frame(envelope(FrameRole::kUpdate, 1, 0, 6), raw_frame(0, std::vector<float>(100, 2.0F)));  // closed without this site
  connection->send(test::committed(1, 6, 0.5F, false));
  connection->read();
  EXPECT_EQ(result.get().outcome, StepOutcome::kLeftOut);
  for (std::size_t index = 0; index < 100; ++index) ASSERT_EQ(trainer.tensor[index], global[index] - 1.0F);
}

TEST(Agent, UnwantedContributionWaitsForTheUpdate) {
  FakeGateway gateway;
  Trainer trainer(gateway, 10);
  const auto connection = trainer.start(gateway);
  auto result = trainer.step();
  connection->read();
  connection->send(test::opened(1, kRaw, 0.0F, false));
  connection->send_frame(envelope(FrameRole::kUpdate, 1, 0, 6), raw_frame(0, std::vector<float>(10, 1.0F)));
  connection->send(test::committed(1, 6, 1.0F, false));
  EXPECT_TRUE(connection->read().has_round_applied());
  EXPECT_EQ(result.get().outcome, StepOutcome::kLeftOut);
  EXPECT_EQ(trainer.tensor[0], 0.0F);
}

TEST(Agent, GatewayLostInMidRoundLetsTrainingGoOnAndTheRoundIsReplayed) {
  FakeGateway gateway;
  Trainer trainer(gateway, 10);
  auto connection = trainer.start(gateway);
  auto lost = trainer.step();
  connection->read();
  connection->send(test::opened(1, kRaw, 0.0F));
  connection->read_frame();
  connection.reset();
  EXPECT_EQ(lost.get().outcome, StepOutcome::kSolo);
  EXPECT_TRUE(trainer.agent->statistics().is_solo);
  connection = gateway.accept();
  EXPECT_EQ(gateway.hello.round(), 0U);
  connection->send(test::catch_up(2, false));
  for (std::uint64_t round = 1; round <= 2; ++round) {
    connection->send_frame(envelope(FrameRole::kReplay, round, 0), raw_frame(0, std::vector<float>(10, static_cast<float>(round))));
    connection->send(test::committed(round, 6, 1.0F, false));
  }
  const auto applied = connection->read();
  EXPECT_EQ(applied.round_applied().round(), 2U);
  const StepResult caught_up = trainer.step().get();
  EXPECT_EQ(caught_up.outcome, StepOutcome::kCaughtUp);
  EXPECT_EQ(caught_up.round, 2U);
  EXPECT_EQ(trainer.tensor[0], 1.0F - 3.0F);
  auto next = trainer.step();
  play_echo_round(*connection, 3, 1);
  EXPECT_EQ(next.get().outcome, StepOutcome::kCommitted);
  EXPECT_FALSE(trainer.agent->statistics().is_solo);
}

TEST(Agent, StateIsTakenChunkByChunkAndNewerChunksAreNotReplayed) {
  FakeGateway gateway;
  gateway.welcome.set_outer_rule(1);
  gateway.welcome.set_outer_learning_rate(1.0F);
  gateway.welcome.set_outer_momentum(0.5F);
  gateway.welcome.set_round(5);
  const std::size_t values = kChunkValues + 10;
  Trainer trainer(gateway, values);
  auto started = std::async(std::launch::async, [&] { return trainer.agent->start().has_value(); });
  const auto connection = gateway.accept();
  connection->send(test::catch_up(5, true));
  const std::vector<float> first(kChunkValues, 3.0F);
  const std::vector<float> second(10, 7.0F);
  // Chunk 0 was read at round 4, chunk 1 (momentum first) at round 5.
  connection->send_frame(envelope(FrameRole::kStateParameters, 4, 0), raw_frame(0, first));
  connection->send_frame(envelope(FrameRole::kStateMomentum, 4, 0), raw_frame(0, std::vector<float>(kChunkValues, 2.0F)));
  connection->send_frame(envelope(FrameRole::kStateMomentum, 5, 1), raw_frame(1, std::vector<float>(10, 2.0F)));
  connection->send_frame(envelope(FrameRole::kStateParameters, 5, 1), raw_frame(1, second));
  connection->send_frame(envelope(FrameRole::kReplay, 5, 0), raw_frame(0, std::vector<float>(kChunkValues, 1.0F)));
  connection->send_frame(envelope(FrameRole::kReplay, 5, 1), raw_frame(1, std::vector<float>(10, 1.0F)));
  connection->send(test::committed(5, 6, 1.0F, false));
  const auto applied = connection->read();
  EXPECT_EQ(applied.round_applied().round(), 5U);
  EXPECT_TRUE(started.get());
  // m = 0.5 * 2 + 1 = 2; p = 3 - (1 + 0.5 * 2) = 1.
  EXPECT_EQ(trainer.tensor.front(), 1.0F);
  EXPECT_EQ(trainer.tensor.back(), 7.0F);
  const Digest expected = sync::state_digest(second, std::vector<float>(10, 2.0F));
  EXPECT_EQ(applied.round_applied().chunk_digests(1), std::string(reinterpret_cast<const char*>(&expected), sizeof expected));
}

TEST(Agent, ServesItsStateWithTheSameBits) {
  FakeGateway gateway;
  gateway.welcome.set_outer_rule(1);
  Trainer trainer(gateway, 10);
  trainer.tensor[3] = -0.0F;
  const auto connection = trainer.start(gateway);
  wire::AgentMessage request;
  request.mutable_state_request()->add_chunks(0);
  request.mutable_state_request()->add_chunks(99);  // not of this shard: ignored
  connection->send(request);
  const FakeFrame parameters = connection->read_frame();
  EXPECT_EQ(parameters.envelope.role, static_cast<std::uint16_t>(FrameRole::kStateParameters));
  const std::vector<float> values = decode(parameters.frame);
  EXPECT_EQ(sync::state_digest(values, {}), sync::state_digest(trainer.tensor, {}));
  EXPECT_TRUE(std::signbit(values[3]));
  EXPECT_EQ(connection->read_frame().envelope.role, static_cast<std::uint16_t>(FrameRole::kStateMomentum));
}

TEST(Agent, NonFiniteDeltaIsWithheldAndNamed) {
  FakeGateway gateway;
  Trainer trainer(gateway, 10);
  const auto connection = trainer.start(gateway);
  trainer.tensor[7] = std::numeric_limits<float>::quiet_NaN();
  auto result = trainer.step();
  EXPECT_TRUE(connection->read().has_ready());
  connection->send(test::opened(1, kRaw, 0.0F));
  // Nothing is contributed; the others' round replaces the bad parameters.
  connection->send_frame(envelope(FrameRole::kUpdate, 1, 0, 6), raw_frame(0, std::vector<float>(10, 1.0F)));
  connection->send(test::committed(1, 6, 1.0F, false));
  EXPECT_TRUE(connection->read().has_round_applied());
  EXPECT_EQ(result.get().outcome, StepOutcome::kLeftOut);
  EXPECT_NE(trainer.agent->last_error().find("weight[7]"), std::string::npos) << trainer.agent->last_error();
  EXPECT_EQ(trainer.agent->statistics().deltas_withheld, 1U);
  EXPECT_TRUE(std::isfinite(trainer.tensor[7]));
}

TEST(Agent, CommitWithoutItsUpdateStartsTheConversationOver) {
  FakeGateway gateway;
  Trainer trainer(gateway, 10);
  auto connection = trainer.start(gateway);
  auto result = trainer.step();
  connection->read();
  connection->send(test::committed(1, 6, 1.0F, false));
  EXPECT_TRUE(connection->reads_end());
  EXPECT_EQ(result.get().outcome, StepOutcome::kSolo);
  connection = gateway.accept();
  EXPECT_EQ(gateway.hello.round(), 0U);
}

TEST(Agent, BrokenFrameStartsTheConversationOver) {
  FakeGateway gateway;
  Trainer trainer(gateway, 10);
  auto connection = trainer.start(gateway);
  ByteVector frame = raw_frame(0, std::vector<float>(10, 1.0F));
  frame[60] ^= 1U;
  connection->send_frame(envelope(FrameRole::kUpdate, 1, 0, 6), frame);
  EXPECT_TRUE(connection->reads_end());
  connection = gateway.accept();
}

TEST(Agent, WithoutAGatewayTrainingGoesOnAndSaysSo) {
  FakeGateway gateway;
  gateway.shut();
  Trainer trainer(gateway, 10, std::chrono::milliseconds(1));
  EXPECT_TRUE(trainer.agent->start());
  EXPECT_EQ(trainer.agent->step(1, 1.0)->outcome, StepOutcome::kInner);
  EXPECT_EQ(trainer.agent->exchange()->outcome, StepOutcome::kSolo);
  EXPECT_NE(trainer.agent->announcement().text.find("training alone"), std::string::npos);
  gateway.listen();
  const auto connection = gateway.accept();
  auto result = std::async(std::launch::async, [&] {
    StepResult last;
    do {
      last = *trainer.agent->exchange();
    } while (last.outcome == StepOutcome::kSolo);  // until the welcome has been read
    return last;
  });
  play_echo_round(*connection, 1, 1);
  EXPECT_EQ(result.get().outcome, StepOutcome::kCommitted);
  EXPECT_NE(trainer.agent->announcement().text.find("back with the run"), std::string::npos);
}

TEST(Agent, RefusalIsReportedAndTrainingGoesOn) {
  FakeGateway gateway;
  Trainer trainer(gateway, 10, std::chrono::milliseconds(300));
  auto started = std::async(std::launch::async, [&] { return trainer.agent->start().has_value(); });
  const auto connection = gateway.accept_silently();
  wire::AgentMessage reject;
  reject.mutable_reject()->set_error_code(308);
  reject.mutable_reject()->set_detail("tensor 3 differs");
  connection->send(reject);
  EXPECT_TRUE(started.get());
  EXPECT_NE(trainer.agent->last_error().find("tensor 3 differs"), std::string::npos);
  EXPECT_EQ(trainer.agent->exchange()->outcome, StepOutcome::kSolo);
}

// Two processes with one rank would take the place from each other for ever.
TEST(Agent, ProcessWhoseRankIsTakenStaysAway) {
  FakeGateway gateway;
  Trainer trainer(gateway, 10);
  const auto connection = trainer.start(gateway);
  wire::AgentMessage reject;
  reject.mutable_reject()->set_error_code(static_cast<std::uint32_t>(ErrorCode::kLinkReplaced));
  reject.mutable_reject()->set_detail("another process has connected as rank 0");
  connection->send(reject);
  EXPECT_TRUE(connection->reads_end());
  EXPECT_EQ(trainer.agent->exchange()->outcome, StepOutcome::kSolo);
  EXPECT_NE(trainer.agent->last_error().find("another process"), std::string::npos);
  EXPECT_EQ(trainer.agent->statistics().reconnects, 0U);
}

TEST(Agent, TensorWithoutElementsNeedsNoMemory) {
  FakeGateway gateway;
  Trainer trainer(gateway, 10);
  EXPECT_TRUE(trainer.agent->add_tensor("empty", compression::ElementType::kFloat32, {0, 7}, nullptr));
  EXPECT_FALSE(trainer.agent->add_tensor("lost", compression::ElementType::kFloat32, {7}, nullptr));
  const auto connection = trainer.start(gateway);
  auto result = trainer.step();
  play_echo_round(*connection, 1, 1);
  EXPECT_EQ(result.get().outcome, StepOutcome::kCommitted);
}

TEST(Agent, AnnouncedSoloIsNotWaitedForUntilItsBoundThenPausedForABoundedTime) {
  FakeGateway gateway;
  gateway.welcome.set_solo_steps_max(3);
  gateway.welcome.set_solo_pause_us(1000);
  Trainer trainer(gateway, 10);
  const auto connection = trainer.start(gateway);
  auto first = trainer.step();
  connection->read();
  connection->send(test::announcement("no quorum", true));
  EXPECT_EQ(first.get().outcome, StepOutcome::kSolo);
  EXPECT_EQ(trainer.agent->announcement().text, "no quorum");
  EXPECT_EQ(trainer.step().get().outcome, StepOutcome::kSolo);
  EXPECT_EQ(trainer.step().get().outcome, StepOutcome::kSolo);  // the third step: pauses, and offers its delta
  EXPECT_TRUE(connection->read().has_ready());
  connection->send(test::announcement("quorum is back", false));
  auto next = trainer.step();
  const auto ready = connection->read();
  EXPECT_EQ(ready.ready().tokens(), 40U);
  connection->send(test::skipped(1));
  EXPECT_NE(next.get().outcome, StepOutcome::kCommitted);
}

TEST(Agent, SavedStateIsLoadedToTheBitAndAnotherModelsIsRefused) {
  FakeGateway gateway;
  Trainer trainer(gateway, 100);
  const std::string path = gateway.directory() + "/state";
  std::vector<float> saved;
  {
    const auto connection = trainer.start(gateway);
    for (float& value : trainer.tensor) value -= 0.3F;
    auto result = trainer.step();
    play_echo_round(*connection, 1, 1, kGrid, 1.0F);
    result.get();
    ASSERT_TRUE(trainer.agent->save_state(path));
    saved = trainer.tensor;
    trainer.agent.reset();
    EXPECT_TRUE(connection->read().has_goodbye());
  }
  Trainer again(gateway, 100);
  ASSERT_TRUE(again.agent->load_state(path));
  again.tensor = saved;
  const auto connection = again.start(gateway);
  EXPECT_EQ(gateway.hello.round(), 1U);
  for (float& value : again.tensor) value -= 0.3F;
  auto result = again.step();
  connection->read();
  connection->send(test::opened(2, kGrid, 1.0F));
  EXPECT_EQ(decode(connection->read_frame().frame), std::vector<float>(100, 1.0F));  // with the residual of round 1
  connection->send(test::skipped(2));
  result.get();
  Trainer other(gateway, 101);
  EXPECT_EQ(other.agent->load_state(path).error().code, ErrorCode::kAgentStateFile);
}

TEST(Agent, WrongUseIsRefusedWithAReason) {
  FakeGateway gateway;
  AgentOptions options;
  options.gateway = "tcp:nowhere";
  EXPECT_EQ(Agent::create(options).error().code, ErrorCode::kInvalidArgument);
  options.gateway = "tls:host:1";
  EXPECT_EQ(Agent::create(options).error().code, ErrorCode::kInvalidArgument);
  options.gateway = gateway.address();
  options.rank = RankId(1);
  EXPECT_EQ(Agent::create(options).error().code, ErrorCode::kInvalidArgument);
  Trainer trainer(gateway, 10);
  EXPECT_EQ(trainer.agent->step(1, 1.0).error().code, ErrorCode::kAgentOrder);
  float value = 0.0F;
  EXPECT_EQ(trainer.agent->add_tensor("half", compression::ElementType::kFloat16, {1}, &value).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(trainer.agent->add_tensor("none", compression::ElementType::kFloat32, {1}, nullptr).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::site_agent
