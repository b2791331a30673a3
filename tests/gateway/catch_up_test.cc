// Goal: a site that missed rounds is brought back by replay when somebody still has the updates and by the state otherwise, from whoever
// lives; a silent or lying peer is left for the next. Method: a CatchUp with recording hooks, a real spool in a temporary directory, time
// passed in.
#include "gateway/catch_up.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "base/units.h"
#include "compression/grid_codec.h"
#include "gateway/wire_convert.h"

namespace sluice::gateway {
namespace {

constexpr std::uint16_t kSites = 3;

SharedBytes raw_frame(ChunkId chunk, float value) {
  const std::vector<float> delta(100, value);
  std::vector<float> residual(100, 0.0F);
  auto bytes = std::make_shared<ByteVector>();
  EXPECT_TRUE(compression::encode_raw_frame(delta, 1.0F, residual, chunk, *bytes));
  return bytes;
}

class CatchUpTest : public ::testing::Test {
 protected:
  CatchUpTest() : group_(1) {
    SpoolOptions options;
    options.directory = std::filesystem::temp_directory_path() / ("sluice-catch-up-" + std::to_string(::getpid()));
    std::filesystem::remove_all(options.directory);
    directory_ = options.directory;
    options.memory_bytes_max = 64 * kMiB;
    options.disk_bytes_max = 64 * kMiB;
    spool_.emplace(std::move(*FrameSpool::open(options)));
    CatchUpHooks hooks;
    hooks.send_peer = [this](SiteId to, const wire::PeerMessage& message) { peer_messages_.emplace_back(to, message); };
    hooks.send_peer_frame = [this](SiteId to, FrameRecord frame) { peer_frames_.emplace_back(to, std::move(frame)); };
    hooks.send_agents = [this](const wire::AgentMessage& message) { agent_messages_.push_back(message); };
    hooks.send_agent_frame = [this](ChunkId, FrameRecord frame) { agent_frames_.push_back(std::move(frame)); };
    hooks.live_peers = [this] { return live_; };
    hooks.commit_record = [this](RoundId round) -> std::optional<sync::RoundRecord> {
      const auto found = commits_.find(round);
      return found == commits_.end() ? std::nullopt : std::optional(found->second);
    };
    hooks.keep_commit_record = [this](const sync::RoundRecord& record) { commits_[record.round] = record; };
    hooks.on_update_chunk = [](const sync::RoundRecord&, ChunkId, const Digest&) {};
    hooks.say = [](std::string) {};
    catch_up_.emplace(kSites, true, *spool_, group_, std::move(hooks));
  }
  ~CatchUpTest() override { std::filesystem::remove_all(directory_); }

  void join_agent(std::uint64_t round) {
    wire::AgentHello hello;
    hello.set_ranks(1);
    hello.set_chunks(2);
    hello.set_round(round);
    hello.add_tensors()->add_shape(compression::kChunkValues + 100);
    hello.add_chunk_digests(std::string(16, 'a'));
    hello.add_chunk_digests(std::string(16, 'b'));
    ASSERT_TRUE(group_.join(AgentSessionId(1), hello));
  }
  void agent_applies(std::uint64_t round, std::uint64_t committed) {
    wire::RoundApplied applied;
    applied.set_round(round);
    ASSERT_TRUE(group_.set_applied(AgentSessionId(1), applied));
    catch_up_->on_agents_changed(RoundId(committed), now_);
  }
  static sync::RoundRecord commit(std::uint64_t round) {
    sync::RoundRecord record;
    record.epoch = EpochId(1);
    record.round = RoundId(round);
    record.committed_round = record.round;
    record.phase = sync::Phase::kCommitted;
    record.members = record.counted = SiteSet{0b011};
    record.weights = {{SiteId(0), 1}, {SiteId(1), 1}};
    record.owners = {SiteId(0), SiteId(1)};
    record.chunks = 2;
    return record;
  }
  void keep_round(std::uint64_t round) {
    commits_[RoundId(round)] = commit(round);
    for (std::uint32_t chunk = 0; chunk < 2; ++chunk) {
      ASSERT_TRUE(spool_->put(FrameKey{RoundId(round), wire::FrameRole::kUpdate, SiteId(), SiteSet{0b011}, ChunkId(chunk)},
                              raw_frame(ChunkId(chunk), 1.0F)));
    }
    ASSERT_TRUE(spool_->promote(RoundId(round), SiteSet{0b011}, 2));
    spool_->drop_round(RoundId(round));
  }
  static FrameRecord frame(wire::FrameRole role, std::uint64_t round, std::uint32_t chunk) {
    wire::FrameEnvelope envelope;
    envelope.round = round;
    envelope.chunk = chunk;
    envelope.counted = role == wire::FrameRole::kReplay ? 0b011 : 0;
    envelope.role = static_cast<std::uint16_t>(role);
    return {envelope, raw_frame(ChunkId(chunk), 2.0F)};
  }
  // Rounds that the agents were told as committed.
  std::vector<std::uint64_t> replayed() const {
    std::vector<std::uint64_t> rounds;
    for (const auto& message : agent_messages_) {
      if (message.has_round_committed()) rounds.push_back(message.round_committed().round());
    }
    return rounds;
  }

  std::filesystem::path directory_;
  std::optional<FrameSpool> spool_;
  AgentGroup group_;
  std::map<RoundId, sync::RoundRecord> commits_;
  std::vector<SiteId> live_{SiteId(0), SiteId(1)};
  std::vector<std::pair<SiteId, wire::PeerMessage>> peer_messages_;
  std::vector<std::pair<SiteId, FrameRecord>> peer_frames_;
  std::vector<wire::AgentMessage> agent_messages_;
  std::vector<FrameRecord> agent_frames_;
  std::optional<CatchUp> catch_up_;
  TimePoint now_{};
};

TEST_F(CatchUpTest, MissedRoundsAreReplayedFromTheOwnSpoolInOrder) {
  join_agent(2);
  keep_round(3);
  keep_round(4);
  catch_up_->need_agents(RoundId(4), false, {}, "test", now_);
  EXPECT_EQ(replayed(), (std::vector<std::uint64_t>{3, 4}));
  EXPECT_EQ(agent_frames_.size(), 4U);
  EXPECT_TRUE(peer_messages_.empty());
  EXPECT_TRUE(catch_up_->is_bringing_agents());
  agent_applies(4, 4);
  EXPECT_FALSE(catch_up_->is_bringing_agents());
}

TEST_F(CatchUpTest, MissedRoundThatIsNotHereIsFetchedFromAPeer) {
  join_agent(2);
  catch_up_->need_agents(RoundId(3), false, {}, "test", now_);
  ASSERT_EQ(peer_messages_.size(), 1U);
  EXPECT_EQ(peer_messages_[0].second.fetch_round().round(), 3U);
  wire::FetchRoundReply reply;
  reply.set_round(3);
  reply.set_available(true);
  write_record(commit(3), *reply.mutable_record());
  ASSERT_TRUE(catch_up_->on_fetch_round_reply(SiteId(0), reply, now_));
  ASSERT_TRUE(catch_up_->on_frame(SiteId(0), frame(wire::FrameRole::kReplay, 3, 0), now_));
  ASSERT_TRUE(catch_up_->on_frame(SiteId(0), frame(wire::FrameRole::kReplay, 3, 1), now_));
  EXPECT_EQ(replayed(), (std::vector<std::uint64_t>{3}));
}

TEST_F(CatchUpTest, FramesThatOvertakeTheReplyCount) {
  join_agent(2);
  catch_up_->need_agents(RoundId(3), false, {}, "test", now_);
  ASSERT_TRUE(catch_up_->on_frame(SiteId(0), frame(wire::FrameRole::kReplay, 3, 1), now_));
  ASSERT_TRUE(catch_up_->on_frame(SiteId(0), frame(wire::FrameRole::kReplay, 3, 0), now_));
  wire::FetchRoundReply reply;
  reply.set_round(3);
  reply.set_available(true);
  write_record(commit(3), *reply.mutable_record());
  ASSERT_TRUE(catch_up_->on_fetch_round_reply(SiteId(0), reply, now_));
  EXPECT_EQ(replayed(), (std::vector<std::uint64_t>{3}));
}

TEST_F(CatchUpTest, SilentPeerIsLeftForTheNext) {
  join_agent(2);
  catch_up_->need_agents(RoundId(3), false, {}, "test", now_);
  EXPECT_EQ(peer_messages_.back().first, SiteId(0));
  ASSERT_TRUE(catch_up_->next_deadline());
  now_ = *catch_up_->next_deadline();
  catch_up_->on_time(RoundId(3), now_);
  EXPECT_EQ(peer_messages_.back().first, SiteId(1));
  catch_up_->on_peer_down(SiteId(1), now_);
  now_ = *catch_up_->next_deadline();
  catch_up_->on_time(RoundId(3), now_);
  EXPECT_EQ(peer_messages_.back().first, SiteId(0));
}

TEST_F(CatchUpTest, StateIsTakenWhenNobodyHasTheRound) {
  join_agent(2);
  catch_up_->need_agents(RoundId(9), false, {}, "test", now_);
  wire::FetchRoundReply reply;
  reply.set_round(3);
  ASSERT_TRUE(catch_up_->on_fetch_round_reply(SiteId(0), reply, now_));
  ASSERT_TRUE(catch_up_->on_fetch_round_reply(SiteId(1), reply, now_));
  ASSERT_TRUE(peer_messages_.back().second.has_fetch_state());
  EXPECT_EQ(peer_messages_.back().second.fetch_state().chunks_size(), 2);
}

TEST_F(CatchUpTest, StateArrivesChunkByChunkAndResumesAtAnotherPeer) {
  join_agent(0);
  catch_up_->need_agents(RoundId(9), true, {SiteId(1)}, "test", now_);
  EXPECT_EQ(peer_messages_.back().first, SiteId(1)) << "who is said to hold it is asked first";
  ASSERT_TRUE(catch_up_->on_frame(SiteId(1), frame(wire::FrameRole::kStateParameters, 9, 0), now_));
  ASSERT_TRUE(catch_up_->on_frame(SiteId(1), frame(wire::FrameRole::kStateMomentum, 9, 0), now_));
  live_ = {SiteId(0)};
  catch_up_->on_peer_down(SiteId(1), now_);
  EXPECT_EQ(peer_messages_.back().first, SiteId(0));
  ASSERT_EQ(peer_messages_.back().second.fetch_state().chunks_size(), 1);
  EXPECT_EQ(peer_messages_.back().second.fetch_state().chunks(0), 1U);
  ASSERT_TRUE(catch_up_->on_frame(SiteId(0), frame(wire::FrameRole::kStateParameters, 9, 1), now_));
  ASSERT_TRUE(catch_up_->on_frame(SiteId(0), frame(wire::FrameRole::kStateMomentum, 9, 1), now_));
  EXPECT_EQ(agent_messages_.back().catch_up().to_round(), 9U);
  agent_applies(9, 9);
  EXPECT_FALSE(catch_up_->is_bringing_agents());
}

TEST_F(CatchUpTest, RoundsCommittedDuringTheTransferAreReplayedAfterIt) {
  join_agent(0);
  catch_up_->need_agents(RoundId(9), true, {}, "test", now_);
  for (std::uint32_t chunk = 0; chunk < 2; ++chunk) {
    ASSERT_TRUE(catch_up_->on_frame(SiteId(0), frame(wire::FrameRole::kStateParameters, 9, chunk), now_));
    ASSERT_TRUE(catch_up_->on_frame(SiteId(0), frame(wire::FrameRole::kStateMomentum, 9, chunk), now_));
  }
  keep_round(10);
  agent_applies(9, 10);
  EXPECT_EQ(replayed(), (std::vector<std::uint64_t>{10}));
  agent_applies(10, 10);
  EXPECT_FALSE(catch_up_->is_bringing_agents());
}

TEST_F(CatchUpTest, FramesThatNobodyAskedForAreIgnoredOrRefused) {
  join_agent(0);
  EXPECT_TRUE(catch_up_->on_frame(SiteId(0), frame(wire::FrameRole::kReplay, 3, 0), now_));
  EXPECT_TRUE(catch_up_->on_frame(SiteId(0), frame(wire::FrameRole::kStateParameters, 3, 0), now_));
  catch_up_->need_agents(RoundId(9), true, {}, "test", now_);
  EXPECT_TRUE(catch_up_->on_frame(SiteId(2), frame(wire::FrameRole::kStateParameters, 9, 0), now_)) << "not the one asked";
  EXPECT_FALSE(catch_up_->on_frame(SiteId(0), frame(wire::FrameRole::kStateParameters, 9, 7), now_)) << "no such chunk";
  FrameRecord damaged = frame(wire::FrameRole::kStateParameters, 9, 0);
  auto bytes = std::make_shared<ByteVector>(*damaged.frame);
  (*bytes)[60] ^= 1;
  damaged.frame = bytes;
  EXPECT_EQ(catch_up_->on_frame(SiteId(0), damaged, now_).error().code, ErrorCode::kFrameHashMismatch);
  EXPECT_TRUE(agent_frames_.empty());
}

TEST_F(CatchUpTest, ServesCommittedRoundsAndSaysSoWhenItHasNone) {
  join_agent(4);
  keep_round(4);
  catch_up_->serve_round(SiteId(2), RoundId(4));
  EXPECT_TRUE(peer_messages_.back().second.fetch_round_reply().available());
  EXPECT_EQ(peer_frames_.size(), 2U);
  catch_up_->serve_round(SiteId(2), RoundId(5));
  EXPECT_FALSE(peer_messages_.back().second.fetch_round_reply().available());
}

TEST_F(CatchUpTest, ServesItsAgentsStateOnlyInSync) {
  join_agent(4);
  wire::FetchState request;
  request.add_chunks(0);
  request.add_chunks(99);
  catch_up_->serve_state(SiteId(2), request, false);
  EXPECT_FALSE(peer_messages_.back().second.fetch_state_reply().available());
  EXPECT_TRUE(agent_messages_.empty());
  catch_up_->serve_state(SiteId(2), request, true);
  EXPECT_TRUE(peer_messages_.back().second.fetch_state_reply().available());
  ASSERT_EQ(agent_messages_.size(), 1U);
  EXPECT_EQ(agent_messages_[0].state_request().chunks_size(), 1);
  catch_up_->on_agent_state_frame(frame(wire::FrameRole::kStateParameters, 4, 0));
  catch_up_->on_agent_state_frame(frame(wire::FrameRole::kStateMomentum, 4, 0));
  catch_up_->on_agent_state_frame(frame(wire::FrameRole::kStateMomentum, 4, 0));
  EXPECT_EQ(peer_frames_.size(), 2U);
}

}  // namespace
}  // namespace sluice::gateway
