// Links between gateways on loopback: what is sent arrives, whatever breaks on the way; and the link knows when it is up and when not.
// Both sides run in this process on one loop that is turned until a condition holds.

#include "gateway/peer_links.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/link_pair.h"

namespace sluice::gateway {
namespace {

using test::LinkPair;
using test::test_frame;

constexpr SiteId kDialler{0};
constexpr SiteId kAcceptor{1};

wire::PeerMessage numbered(std::uint64_t number) {
  wire::PeerMessage message;
  message.mutable_fetch_round()->set_round(number);
  return message;
}

TEST(PeerLinks, BothSidesComeUpAndExchangeControlMessagesInOrder) {
  LinkPair pair;
  ASSERT_TRUE(pair.until([&] { return pair.both_up(); }));
  for (std::uint64_t number = 0; number < 500; ++number) {
    EXPECT_TRUE(pair.dialler.links->send_control(kAcceptor, numbered(number)));
    EXPECT_TRUE(pair.acceptor.links->send_control(kDialler, numbered(number)));
  }
  ASSERT_TRUE(pair.until([&] { return pair.dialler.controls.size() == 500 && pair.acceptor.controls.size() == 500; }));
  for (std::uint64_t number = 0; number < 500; ++number) {
    EXPECT_EQ(pair.dialler.controls[number].fetch_round().round(), number);
    EXPECT_EQ(pair.acceptor.controls[number].fetch_round().round(), number);
  }
  EXPECT_EQ(pair.dialler.ups.size(), 1U);
  EXPECT_TRUE(pair.dialler.ups[0].second);
}

// Links whose records are in the clear after the handshake are what `wan_exchange_bench --tls off` measures.
class PeerLinksRecords : public testing::TestWithParam<TlsRecords> {};
INSTANTIATE_TEST_SUITE_P(Both, PeerLinksRecords, testing::Values(TlsRecords::kEncrypted, TlsRecords::kHandshakeOnly));

TEST_P(PeerLinksRecords, FramesOfAllSizesArriveUnchangedAndAreAcknowledged) {
  LinkPair pair({}, GetParam());
  const std::size_t sizes[] = {0, 1, 31, 16343, 16344, 16345, 65536, 300000, wire::kFrameRecordBytesMax - wire::kFrameEnvelopeBytes};
  std::uint32_t chunk = 0;
  for (const std::size_t size : sizes) {
    EXPECT_TRUE(pair.dialler.links->send_frame(kAcceptor, test_frame(chunk, size)));  // the link need not be up
    EXPECT_TRUE(pair.acceptor.links->send_frame(kDialler, test_frame(chunk, size)));
    ++chunk;
  }
  ASSERT_TRUE(pair.until([&] { return pair.dialler.frames.size() == chunk && pair.acceptor.frames.size() == chunk; }));
  for (const auto* node : {&pair.dialler, &pair.acceptor}) {
    for (const FrameRecord& frame : node->frames) {
      const FrameRecord expected = test_frame(frame.envelope.chunk, sizes[frame.envelope.chunk]);
      EXPECT_EQ(*frame.frame, *expected.frame) << "chunk " << frame.envelope.chunk;
    }
  }
  EXPECT_TRUE(pair.until([&] { return pair.dialler.links->queued_bytes(kAcceptor) == 0; }));
  EXPECT_EQ(pair.dialler.links->stats(kAcceptor).frames_sent, chunk);
  EXPECT_EQ(pair.dialler.links->stats(kAcceptor).frames_resent, 0U);
}

// Acknowledgements overtake waiting frames and must not overtake each other: the peer takes a count that falls for a broken link.
TEST(PeerLinks, AcknowledgementsStayInOrderUnderFramesInBothDirections) {
  LinkPair pair;
  constexpr std::uint32_t kFrames = 400;
  for (std::uint32_t chunk = 0; chunk < kFrames; ++chunk) {
    EXPECT_TRUE(pair.dialler.links->send_frame(kAcceptor, test_frame(chunk, 30'000)));
    EXPECT_TRUE(pair.acceptor.links->send_frame(kDialler, test_frame(chunk, 30'000)));
  }
  ASSERT_TRUE(pair.until([&] { return pair.dialler.frames.size() >= kFrames && pair.acceptor.frames.size() >= kFrames; }));
  EXPECT_TRUE(pair.until([&] { return pair.dialler.links->queued_bytes(kAcceptor) == 0; }));
  EXPECT_TRUE(pair.dialler.downs.empty());
  EXPECT_TRUE(pair.acceptor.downs.empty());
  EXPECT_EQ(pair.dialler.links->stats(kAcceptor).frames_resent + pair.acceptor.links->stats(kDialler).frames_resent, 0U);
}

TEST(PeerLinks, DiallerThatStartsFirstFindsTheAcceptorLater) {
  LinkPair pair;
  const std::uint16_t port = pair.acceptor_port;
  pair.acceptor.links.reset();
  ASSERT_TRUE(pair.until([&] { return pair.dialler.links->stats(kAcceptor).connect_failures >= 1; }));
  pair.start_acceptor({}, port);
  EXPECT_TRUE(pair.until([&] { return pair.both_up(); }));
}

TEST(PeerLinks, BrokenBulkStreamLosesNothing) {
  LinkPair pair;
  ASSERT_TRUE(pair.until([&] { return pair.both_up() && pair.dialler.links->stats(kAcceptor).bulk_streams == 2; }));
  constexpr std::uint32_t kFrames = 400;
  for (std::uint32_t chunk = 0; chunk < kFrames; ++chunk) pair.dialler.links->send_frame(kAcceptor, test_frame(chunk, 100'000));
  ASSERT_TRUE(pair.until([&] { return pair.acceptor.frames.size() > 20; }));
  pair.dialler.links->break_stream(kAcceptor, 1);
  ASSERT_TRUE(pair.until([&] { return pair.dialler.links->queued_bytes(kAcceptor) == 0; }));
  std::set<std::uint32_t> chunks;
  for (const FrameRecord& frame : pair.acceptor.frames) chunks.insert(frame.envelope.chunk);
  EXPECT_EQ(chunks.size(), kFrames);
  const LinkStats stats = pair.dialler.links->stats(kAcceptor);
  EXPECT_LE(pair.acceptor.frames.size() - kFrames, stats.frames_resent);
  EXPECT_TRUE(pair.dialler.downs.empty());
  EXPECT_TRUE(pair.until([&] { return pair.dialler.links->stats(kAcceptor).bulk_streams == 2; }));
}

TEST(PeerLinks, LosingTheLastBulkStreamIsDownAndComesBack) {
  LinkPair pair([](PeerLinksConfig& config) { config.streams = 1; });
  ASSERT_TRUE(pair.until([&] { return pair.both_up(); }));
  pair.acceptor.links->break_stream(kDialler, 1);
  ASSERT_TRUE(pair.until([&] { return !pair.dialler.downs.empty() && !pair.acceptor.downs.empty(); }));
  ASSERT_TRUE(pair.until([&] { return pair.dialler.ups.size() == 2 && pair.acceptor.ups.size() == 2; }));
  EXPECT_FALSE(pair.dialler.ups[1].second);
}

TEST(PeerLinks, PeerThatRestartsIsANewProcessAndGetsNothingOld) {
  LinkPair pair;
  ASSERT_TRUE(pair.until([&] { return pair.both_up() && pair.dialler.links->stats(kAcceptor).bulk_streams == 2; }));
  const std::uint16_t port = pair.acceptor_port;
  pair.acceptor.links.reset();
  ASSERT_TRUE(pair.until([&] { return !pair.dialler.downs.empty() && !pair.dialler.links->is_up(kAcceptor); }));
  EXPECT_NE(pair.dialler.downs.back().second.find("shutting down"), std::string::npos) << pair.dialler.downs.back().second;
  pair.dialler.links->send_frame(kAcceptor, test_frame(1, 1000));
  pair.start_acceptor([](PeerLinksConfig& config) { config.boot_id = 999; }, port);
  ASSERT_TRUE(pair.until([&] { return pair.both_up(); }));
  EXPECT_TRUE(pair.dialler.ups.back().second);
  EXPECT_EQ(pair.dialler.links->queued_bytes(kAcceptor), 0U);
  EXPECT_FALSE(pair.dialler.links->stats(kAcceptor).last_error.empty());
}

TEST(PeerLinks, FramesWaitForTheSameProcess) {
  LinkPair pair;
  ASSERT_TRUE(pair.until([&] { return pair.both_up() && pair.dialler.links->stats(kAcceptor).bulk_streams == 2; }));
  const std::uint16_t port = pair.acceptor_port;
  pair.acceptor.links.reset();
  ASSERT_TRUE(pair.until([&] { return !pair.dialler.downs.empty(); }));
  pair.dialler.links->send_frame(kAcceptor, test_frame(1, 1000));
  pair.dialler.links->send_frame(kAcceptor, test_frame(2, 1000));
  EXPECT_EQ(pair.dialler.links->discard_frames(kAcceptor, [](const wire::FrameEnvelope& envelope) { return envelope.chunk == 1; }), 1U);
  EXPECT_FALSE(pair.dialler.links->send_control(kAcceptor, numbered(1)));
  pair.start_acceptor({}, port);  // the same boot_id, as after a cut
  ASSERT_TRUE(pair.until([&] { return pair.acceptor.frames.size() == 1; }));
  EXPECT_EQ(pair.acceptor.frames[0].envelope.chunk, 2U);
  EXPECT_FALSE(pair.dialler.ups.back().second);
}

TEST(PeerLinks, FullQueueRefusesAndSaysWhenThereIsRoom) {
  LinkPair pair([](PeerLinksConfig& config) { config.frame_queue_bytes = 1'000'000; });
  std::uint32_t taken = 0;
  while (pair.dialler.links->send_frame(kAcceptor, test_frame(taken, 100'000)) && taken < 100) ++taken;
  EXPECT_EQ(taken, 9U);
  EXPECT_TRUE(pair.until([&] { return pair.dialler.drained == 1; }));
  EXPECT_TRUE(pair.dialler.links->send_frame(kAcceptor, test_frame(taken, 100'000)));
}

TEST(PeerLinks, HeartbeatsMeasureTheRoundTripTime) {
  LinkPair pair([](PeerLinksConfig& config) { config.heartbeat_interval = std::chrono::milliseconds(20); });
  ASSERT_TRUE(pair.until([&] { return pair.both_up() && pair.dialler.links->stats(kAcceptor).rtt_p50.has_value(); }));
  const LinkStats stats = pair.dialler.links->stats(kAcceptor);
  EXPECT_GT(stats.rtt_min->count(), 0);
  EXPECT_LE(*stats.rtt_min, *stats.rtt_p50);
  EXPECT_GT(stats.sent_bytes, 1000U);
  EXPECT_GT(stats.received_bytes, 1000U);
  EXPECT_TRUE(stats.up_since.has_value());
}

TEST(PeerLinks, RateLimitPacesTheFrames) {
  LinkPair pair([](PeerLinksConfig& config) { config.rate_limit = BitsPerSecond{80e6}; });
  ASSERT_TRUE(pair.until([&] { return pair.both_up(); }));
  const TimePoint begin = Clock::now();
  for (std::uint32_t chunk = 0; chunk < 40; ++chunk) pair.dialler.links->send_frame(kAcceptor, test_frame(chunk, 100'000));
  ASSERT_TRUE(pair.until([&] { return pair.acceptor.frames.size() == 40; }));
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  EXPECT_GT(seconds, 0.35);  // 4 MB at 10 MB/s, less the burst of 0.1 MB
  EXPECT_LT(seconds, 4.0);
}

TEST(PeerLinks, FramesThatFillTheLinkMeasureItAtTheReceiver) {
  LinkPair pair([](PeerLinksConfig& config) { config.rate_limit = BitsPerSecond{160e6}; });
  ASSERT_TRUE(pair.until([&] { return pair.both_up(); }));
  EXPECT_FALSE(pair.dialler.links->estimate(kAcceptor).rate.has_value()) << "nothing was sent yet";
  for (std::uint32_t chunk = 0; chunk < 300; ++chunk) pair.dialler.links->send_frame(kAcceptor, test_frame(chunk, 100'000));
  ASSERT_TRUE(pair.until([&] { return pair.acceptor.frames.size() == 300; }));
  ASSERT_TRUE(pair.until([&] { return pair.dialler.links->estimate(kAcceptor).rate.has_value(); }));
  const topology::LinkEstimate estimate = pair.dialler.links->estimate(kAcceptor);
  EXPECT_EQ(estimate.method, topology::EstimateMethod::kPassive);
  EXPECT_NEAR(estimate.rate->p50 / 160e6, 1.0, 0.2);
  EXPECT_FALSE(pair.acceptor.links->estimate(kDialler).rate.has_value()) << "of the other direction nothing is known";
}

}  // namespace
}  // namespace sluice::gateway
