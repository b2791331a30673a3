// Who must not get in does not, and each is told apart by its reason: wrong, expired and foreign certificates, plain TCP, silence, garbage,
// another run, other settings, floods; and a peer that is in but misbehaves or falls silent loses its link. On loopback, with an
// authority made for the test.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "gateway/internal/greeting.h"
#include "tests/support/link_pair.h"
#include "tests/support/raw_tls_client.h"

namespace sluice::gateway {
namespace {

using test::LinkNode;
using test::RawTlsClient;
using test::TestCertificates;

constexpr SiteId kDialler{0};
constexpr SiteId kAcceptor{1};

// Site 1 alone, whose only peer, site 0, the test plays.
class LinkRefusal : public ::testing::Test {
 protected:
  void start(const std::function<void(PeerLinksConfig&)>& change = {}) {
    PeerLinksConfig config = test::link_config(1, 2);
    if (change) change(config);
    node_.links = std::make_unique<PeerLinks>(loop_, config, certificates_.site("s1"), node_.callbacks());
    ASSERT_TRUE(node_.links->start().has_value());
  }
  bool until(const std::function<bool()>& condition) { return test::run_until(loop_, condition); }
  // A client that the gateway must refuse at the latest when it says hello.
  void expect_refused(const std::shared_ptr<const TlsContext>& tls, const std::string& label) {
    start();
    RawTlsClient client(node_.links->listening_port(), tls);
    EXPECT_TRUE(until([&] {
      client.step();
      return node_.was_refused(label) && client.is_closed();
    }));
    for (const auto& [reason, detail] : node_.refusals) EXPECT_EQ(reason, label) << detail;
    EXPECT_TRUE(node_.ups.empty());
  }
  RawTlsClient connect_up() {
    RawTlsClient client(node_.links->listening_port(), certificates_.site("s0"));
    EXPECT_TRUE(until([&] { return client.step() || client.is_up(); }));
    return client;
  }
  // Control and one bulk connection of site 0: the link is up.
  std::pair<RawTlsClient, RawTlsClient> connect_link(std::uint64_t boot_id = 100) {
    PeerLinksConfig config = test::link_config(0, 2);
    config.boot_id = boot_id;
    config.heartbeat_interval = std::chrono::milliseconds(1);
    const std::size_t ups = node_.ups.size();
    RawTlsClient control = connect_up();
    control.send(internal::make_hello(config, 0));
    EXPECT_TRUE(until([&] { return control.step() || control.first(); }));
    RawTlsClient bulk = connect_up();
    bulk.send(internal::make_hello(config, 1));
    EXPECT_TRUE(until([&] { return bulk.step() || node_.ups.size() > ups; }));
    return {std::move(control), std::move(bulk)};
  }

  asio::io_context loop_;
  TestCertificates certificates_;
  LinkNode node_;
};

TEST_F(LinkRefusal, CertificateOfAnotherSiteIsRefused) { expect_refused(certificates_.site("s9"), "san"); }

TEST_F(LinkRefusal, CertificateOfAnAgentIsRefused) { expect_refused(certificates_.agent("s0"), "san"); }

TEST_F(LinkRefusal, OwnSiteIsNoPeer) { expect_refused(certificates_.site("s1"), "san"); }

TEST_F(LinkRefusal, CertificateWithTwoNamesIsRefused) {
  const std::string good = site_uri(TestCertificates::kDomain, "s0");
  expect_refused(certificates_.context({good, site_uri(TestCertificates::kDomain, "s5")}, TestCertificates::now_for_days(1)), "san");
}

TEST_F(LinkRefusal, CertificateWithoutKeyUsageIsRefused) {
  const std::string good = site_uri(TestCertificates::kDomain, "s0");
  start();
  RawTlsClient client(node_.links->listening_port(), certificates_.context({good}, TestCertificates::now_for_days(1), false));
  EXPECT_TRUE(until([&] { return client.step() && !node_.refusals.empty(); }));
  EXPECT_TRUE(node_.was_refused("san") || node_.was_refused("untrusted"));
}

TEST_F(LinkRefusal, ExpiredCertificateIsRefused) {
  expect_refused(certificates_.context({site_uri(TestCertificates::kDomain, "s0")}, TestCertificates::expired()), "expired");
}

TEST_F(LinkRefusal, CertificateOfAnotherAuthorityIsRefused) {
  expect_refused(certificates_.context({site_uri(TestCertificates::kDomain, "s0")}, TestCertificates::now_for_days(1), true, true),
                 "untrusted");
}

TEST_F(LinkRefusal, PlainTcpIsRefusedByItsFirstByte) {
  start();
  const auto fd = test::connect_loopback(node_.links->listening_port());
  EXPECT_TRUE(until([&] { return ::send(fd.get(), "GET / HTTP/1.1\r\n", 16, MSG_NOSIGNAL) == 16; }));
  EXPECT_TRUE(until([&] { return node_.was_refused("not_tls") && test::is_closed_by_peer(fd.get()); }));
}

TEST_F(LinkRefusal, SilentConnectionsRunIntoTheirDeadlines) {
  start();
  const auto silent = test::connect_loopback(node_.links->listening_port());
  RawTlsClient without_hello = connect_up();
  EXPECT_TRUE(until([&] { return without_hello.step() && test::is_closed_by_peer(silent.get()) && node_.refusals.size() == 2; }));
  for (const auto& [reason, detail] : node_.refusals) EXPECT_EQ(reason, "timeout") << detail;
}

TEST_F(LinkRefusal, GarbageAndOversizedHellosAreRefused) {
  start();
  std::uint8_t header[wire::kRecordHeaderBytes];
  const std::vector<ByteVector> openings = [&] {
    std::vector<ByteVector> list;
    list.push_back(ByteVector(64, 0xff));
    for (const std::uint32_t length : {0x7fffffffU, wire::kHelloBytesMax + 1, 0U}) {
      wire::write_record_header({length, wire::RecordType::kControl}, header);
      list.emplace_back(header, header + sizeof header);
    }
    wire::write_record_header({100, wire::RecordType::kFrame}, header);
    list.emplace_back(header, header + sizeof header);
    return list;
  }();
  for (const ByteVector& opening : openings) {
    node_.refusals.clear();
    RawTlsClient client = connect_up();
    client.send(opening);
    EXPECT_TRUE(until([&] { return client.step() && node_.was_refused("protocol"); }));
  }
}

TEST_F(LinkRefusal, OtherProtocolVersionIsRefusedWithAWord) {
  start();
  RawTlsClient client = connect_up();
  wire::PeerMessage hello = internal::make_hello(test::link_config(0, 2), 0);
  hello.mutable_hello()->set_protocol_min(7);
  hello.mutable_hello()->set_protocol_max(9);
  client.send(hello);
  EXPECT_TRUE(until([&] { return client.step() && node_.was_refused("protocol"); }));
  ASSERT_TRUE(client.first().has_value());
  EXPECT_NE(client.first()->goodbye().detail().find("upgrade"), std::string::npos);
}

TEST_F(LinkRefusal, FloodOfSilentConnectionsIsCappedAndDoesNotHurtTheLink) {
  start([](PeerLinksConfig& config) { config.connections_unauthenticated = 6; });
  auto link = connect_link();
  std::vector<internal::UniqueFd> flood;
  for (int count = 0; count < 20; ++count) flood.push_back(test::connect_loopback(node_.links->listening_port()));
  EXPECT_TRUE(until(
      [&] { return std::count_if(flood.begin(), flood.end(), [](const auto& fd) { return test::is_closed_by_peer(fd.get()); }) >= 14; }));
  EXPECT_TRUE(node_.was_refused("flood"));
  EXPECT_TRUE(node_.links->is_up(kDialler));
}

TEST_F(LinkRefusal, HandshakesAreLimitedEachSecond) {
  start([](PeerLinksConfig& config) { config.handshakes_per_second = 2; });
  std::vector<RawTlsClient> clients;
  for (int count = 0; count < 6; ++count) clients.emplace_back(node_.links->listening_port(), certificates_.site("s0"));
  EXPECT_TRUE(until([&] {
    for (RawTlsClient& client : clients) client.step();
    return node_.was_refused("flood");
  }));
}

TEST_F(LinkRefusal, AcceptingGoesOnAfterDescriptorsRanOut) {
  start();
  const internal::UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::dup(0);
  ::close(next);
  const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(node_.links->listening_port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const TimePoint since = Clock::now();
  EXPECT_TRUE(until([&] { return Clock::now() - since > 2 * kAcceptPause; }));
  EXPECT_TRUE(node_.refusals.empty());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_EQ(::send(client.get(), "GET ", 4, MSG_NOSIGNAL), 4);
  EXPECT_TRUE(until([&] { return node_.was_refused("not_tls"); }));
}

TEST_F(LinkRefusal, LinkEndsWhenThePeersCertificateExpires) {
  const auto now = std::chrono::system_clock::now();
  start();
  const auto tls =
      certificates_.context({site_uri(TestCertificates::kDomain, "s0")}, {now - std::chrono::hours(1), now + std::chrono::seconds(2)});
  RawTlsClient control(node_.links->listening_port(), tls);
  ASSERT_TRUE(until([&] { return control.step() || control.is_up(); }));
  control.send(internal::make_hello(test::link_config(0, 2), 0));
  EXPECT_TRUE(until([&] { return control.step(); }));
  EXPECT_GE(std::chrono::system_clock::now(), now + std::chrono::milliseconds(900));
  EXPECT_NE(node_.links->stats(kDialler).last_error.find("expired"), std::string::npos) << node_.links->stats(kDialler).last_error;
}

TEST_F(LinkRefusal, PeerThatFallsSilentIsDown) {
  start([](PeerLinksConfig& config) { config.heartbeat_interval = std::chrono::milliseconds(50); });
  const auto link = connect_link();  // answers no heartbeat
  ASSERT_TRUE(until([&] { return !node_.downs.empty(); }));
  EXPECT_NE(node_.downs[0].second.find("silent for"), std::string::npos) << node_.downs[0].second;
}

TEST_F(LinkRefusal, OversizedFrameOfAPeerEndsItsConnection) {
  start();
  auto link = connect_link();
  const ByteVector header = {0xff, 0xff, 0xff, 0x7f, 2, 0, 0, 0};
  link.second.send(header);
  EXPECT_TRUE(until([&] {
    link.first.step();
    return link.second.step() && !node_.downs.empty();
  }));
}

TEST_F(LinkRefusal, AcknowledgementOfWhatWasNotSentEndsTheConnection) {
  start();
  auto link = connect_link();
  wire::PeerMessage ack;
  ack.mutable_frame_ack()->set_count(1);
  link.second.send(ack);
  EXPECT_TRUE(until([&] { return link.second.step() && !node_.downs.empty(); }));
}

TEST_F(LinkRefusal, NewerProcessOfTheSameSiteWinsAndTheOlderIsTold) {
  start();
  auto older = connect_link(100);
  auto newer = connect_link(200);
  EXPECT_TRUE(until([&] { return older.first.step() && older.second.step(); }));
  EXPECT_TRUE(node_.links->is_up(kDialler));
  ASSERT_EQ(node_.downs.size(), 1U);
  EXPECT_NE(node_.downs[0].second.find("another process"), std::string::npos);
  EXPECT_TRUE(node_.ups.back().second);
}

TEST(LinkMismatch, OtherSettingsAreExplainedAtBothSides) {
  const auto explain = [](std::string_view theirs) { return "theirs is " + std::string(theirs); };
  test::LinkPair pair([&](PeerLinksConfig& config) {
    config.shared_digest = config.self.value;
    config.shared_settings = config.self_name + " says this";
    config.explain_settings = explain;
  });
  ASSERT_TRUE(pair.until([&] { return pair.dialler.was_refused("settings_mismatch") && pair.acceptor.was_refused("settings_mismatch"); }));
  EXPECT_NE(pair.dialler.refusals[0].second.find("theirs is s1 says this"), std::string::npos) << pair.dialler.refusals[0].second;
  EXPECT_NE(pair.acceptor.refusals[0].second.find("settings of s1 and s0 differ"), std::string::npos) << pair.acceptor.refusals[0].second;
}

TEST(LinkMismatch, OtherRunIsRefusedAtBothSides) {
  test::LinkPair pair([](PeerLinksConfig& config) { config.run = "run of " + config.self_name; });
  EXPECT_TRUE(pair.until([&] { return pair.dialler.was_refused("run_mismatch") && pair.acceptor.was_refused("run_mismatch"); }));
}

TEST(LinkMismatch, DiallerRefusesAnAcceptorWithAnotherSitesCertificate) {
  asio::io_context loop;
  TestCertificates certificates;
  LinkNode acceptor;
  acceptor.links = std::make_unique<PeerLinks>(loop, test::link_config(1, 2), certificates.site("s7"), acceptor.callbacks());
  ASSERT_TRUE(acceptor.links->start().has_value());
  LinkNode dialler;
  PeerLinksConfig config = test::link_config(0, 2);
  config.peers[0].port = acceptor.links->listening_port();
  dialler.links = std::make_unique<PeerLinks>(loop, config, certificates.site("s0"), dialler.callbacks());
  ASSERT_TRUE(dialler.links->start().has_value());
  EXPECT_TRUE(test::run_until(loop, [&] { return dialler.was_refused("san"); }));
  EXPECT_NE(dialler.links->stats(kAcceptor).last_error.find("s7"), std::string::npos);
}

}  // namespace
}  // namespace sluice::gateway
