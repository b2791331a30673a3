// Goal: the register changes only along the allowed transitions, is durable before anybody hears of a commit, and only its site speaks for
// it. Method: a store and a client joined by hooks that record what is sent.
#include "gateway/coordination.h"

#include <gtest/gtest.h>

#include <vector>

#include "gateway/wire_convert.h"

namespace sluice::gateway {
namespace {

struct Recorder {
  std::vector<std::pair<SiteId, wire::PeerMessage>> sent;
  std::vector<wire::PeerMessage> broadcasts;
  std::vector<sync::RoundRecord> seen;
  std::vector<sync::RoundRecord> journalled;
  std::vector<std::string> order;
  int found = 0;
  std::vector<std::string> lost;
  bool is_disk_full = false;
  std::vector<std::string> troubles;

  CoordinationHooks hooks() {
    CoordinationHooks hooks;
    hooks.send = [this](SiteId to, const wire::PeerMessage& message) { sent.emplace_back(to, message); };
    hooks.broadcast = [this](const wire::PeerMessage& message) {
      order.push_back("broadcast");
      broadcasts.push_back(message);
    };
    hooks.on_record = [this](const sync::RoundRecord& record) { seen.push_back(record); };
    hooks.on_store_found = [this] { ++found; };
    hooks.on_store_lost = [this](std::string reason) { lost.push_back(std::move(reason)); };
    hooks.on_trouble = [this](const std::string& why) { troubles.push_back(why); };
    hooks.journal = [this](const sync::RoundRecord& record) -> Status {
      if (is_disk_full) return fail(ErrorCode::kUnavailable, "append", "disk full");
      order.push_back("journal");
      journalled.push_back(record);
      return {};
    };
    return hooks;
  }
};

sync::RoundRecord open_record(const sync::RoundRecord& current) {
  sync::RoundRecord next = current;
  const sync::RoundKey key = sync::next_key(current);
  next.epoch = key.epoch;
  next.round = key.round;
  next.phase = sync::Phase::kOpen;
  next.attempt = 0;
  next.members = SiteSet{0b11};
  next.counted = SiteSet();
  next.weights = {{SiteId(0), 1}, {SiteId(1), 1}};
  next.owners = {SiteId(0), SiteId(1)};
  next.chunks = 2;
  next.manifest_hash = 5;
  next.step = 1e-3F;
  next.codec = 2;
  return next;
}

TEST(Coordination, StoreBeginsADurableEpochBeforeItSpeaks) {
  Recorder recorder;
  Coordination store(SiteId(0), SiteId(0), 2, {}, recorder.hooks());
  ASSERT_TRUE(store.start());
  ASSERT_EQ(recorder.journalled.size(), 1U);
  EXPECT_GT(recorder.journalled[0].epoch, EpochId(0));
  ASSERT_EQ(recorder.seen.size(), 1U);
  EXPECT_EQ(recorder.seen[0], recorder.journalled[0]);
}

TEST(Coordination, StoreDoesNotStartWithoutItsJournal) {
  Recorder recorder;
  recorder.is_disk_full = true;
  Coordination store(SiteId(0), SiteId(0), 2, {}, recorder.hooks());
  EXPECT_FALSE(store.start());
  EXPECT_TRUE(recorder.seen.empty());
}

TEST(Coordination, AcceptedChangeIsToldToAll) {
  Recorder recorder;
  Coordination store(SiteId(0), SiteId(0), 2, {}, recorder.hooks());
  ASSERT_TRUE(store.start());
  const sync::RoundRecord current = recorder.seen.back();
  store.compare_and_set(current.version, open_record(current));
  ASSERT_EQ(recorder.broadcasts.size(), 1U);
  EXPECT_EQ(recorder.seen.back().phase, sync::Phase::kOpen);
}

TEST(Coordination, StaleChangeIsRefusedAndAnsweredWithTheCurrentValue) {
  Recorder recorder;
  Coordination store(SiteId(0), SiteId(0), 2, {}, recorder.hooks());
  ASSERT_TRUE(store.start());
  const sync::RoundRecord current = recorder.seen.back();
  wire::PeerMessage request;
  request.mutable_store_cas()->set_request_id(4);
  request.mutable_store_cas()->set_expected_version(current.version + 10);
  write_record(open_record(current), *request.mutable_store_cas()->mutable_record());
  ASSERT_TRUE(store.on_message(SiteId(1), request));
  ASSERT_EQ(recorder.sent.size(), 1U);
  EXPECT_FALSE(recorder.sent[0].second.store_reply().accepted());
  EXPECT_EQ(recorder.sent[0].second.store_reply().request_id(), 4U);
  EXPECT_TRUE(recorder.broadcasts.empty());
}

// A store that answered "no" at once was asked again at once, for ever: 100 MB of log in a minute and no way to stop it.
TEST(Coordination, StoreThatCannotWriteIsAskedAgainOnceASecondAndSaysSoOnce) {
  Recorder recorder;
  Coordination store(SiteId(0), SiteId(0), 2, {}, recorder.hooks());
  ASSERT_TRUE(store.start());
  store.compare_and_set(recorder.seen.back().version, open_record(recorder.seen.back()));
  sync::RoundRecord aborted = recorder.seen.back();
  aborted.phase = sync::Phase::kAborted;
  const std::size_t seen = recorder.seen.size();
  recorder.is_disk_full = true;
  for (int attempt = 0; attempt < 3; ++attempt) store.compare_and_set(recorder.seen.back().version, aborted);
  wire::PeerMessage request;
  request.mutable_store_cas()->set_expected_version(recorder.seen.back().version);
  write_record(aborted, *request.mutable_store_cas()->mutable_record());
  EXPECT_TRUE(store.on_message(SiteId(1), request));
  EXPECT_EQ(recorder.seen.size(), seen);
  EXPECT_TRUE(recorder.sent.empty());
  ASSERT_EQ(recorder.troubles.size(), 1U);
  EXPECT_NE(recorder.troubles[0].find("disk full"), std::string::npos);
  ASSERT_TRUE(store.next_deadline());
  const TimePoint due = *store.next_deadline();
  store.on_time(due - std::chrono::milliseconds(1));
  EXPECT_EQ(recorder.seen.size(), seen);
  store.on_time(due);
  EXPECT_EQ(recorder.seen.size(), seen + 1);  // and all peers hear it
  recorder.is_disk_full = false;
  store.compare_and_set(recorder.seen.back().version, aborted);
  EXPECT_EQ(recorder.seen.back().phase, sync::Phase::kAborted);
  ASSERT_EQ(recorder.troubles.size(), 2U);
  EXPECT_TRUE(recorder.troubles[1].empty());
}

TEST(Coordination, OnlyTheStoreSiteSpeaksForTheStore) {
  Recorder recorder;
  Coordination client(SiteId(1), SiteId(0), 3, {}, recorder.hooks());
  ASSERT_TRUE(client.start());
  EXPECT_TRUE(recorder.seen.empty());
  wire::PeerMessage event;
  write_record(open_record({}), *event.mutable_store_event()->mutable_current());
  EXPECT_EQ(client.on_message(SiteId(2), event).error().code, ErrorCode::kPeerNotEntitled);
  ASSERT_TRUE(client.on_message(SiteId(0), event));
  EXPECT_EQ(recorder.seen.size(), 1U);
  EXPECT_EQ(recorder.found, 1);
  wire::PeerMessage request;
  request.mutable_store_cas();
  EXPECT_EQ(client.on_message(SiteId(0), request).error().code, ErrorCode::kPeerNotEntitled);
}

TEST(Coordination, LosingTheStoreSiteLosesTheStore) {
  Recorder recorder;
  Coordination client(SiteId(1), SiteId(0), 3, {}, recorder.hooks());
  client.on_peer_down(SiteId(2), "cable");
  EXPECT_TRUE(recorder.lost.empty());
  client.on_peer_down(SiteId(0), "cable");
  EXPECT_EQ(recorder.lost.size(), 1U);
}

}  // namespace
}  // namespace sluice::gateway
