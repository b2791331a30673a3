// The server for site agents over a real Unix socket and over TCP with TLS: order, large frames, backpressure, who is let in, and what
// happens when an agent goes, falls silent or takes nothing. Clients are sockets in the same thread.

#include "gateway/agent_server.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <fstream>

#include "gateway/internal/record_stream.h"
#include "tests/support/link_pair.h"
#include "tests/support/raw_tls_client.h"

namespace sluice::gateway {
namespace {

using test::TestCertificates;

struct Arrival {
  bool is_frame = false;
  std::uint64_t number = 0;
};

class AgentServerTest : public ::testing::Test {
 protected:
  void start(AgentServerConfig config) {
    config.domain = TestCertificates::kDomain;
    AgentServer::Callbacks callbacks;
    callbacks.on_connected = [this](AgentSessionId id) { connected_.push_back(id); };
    callbacks.on_control = [this](AgentSessionId, const wire::AgentMessage& message) {
      arrivals_.push_back({false, message.ready().round()});
    };
    callbacks.on_frame = [this](AgentSessionId, FrameRecord frame) {
      arrivals_.push_back({true, frame.envelope.chunk});
      frame_bytes_ += frame.frame->size();
    };
    callbacks.on_disconnected = [this](AgentSessionId, std::string reason) { disconnected_.push_back(std::move(reason)); };
    callbacks.on_refused = [this](std::string_view reason, std::string) { refused_.emplace_back(reason); };
    server_ = std::make_unique<AgentServer>(loop_, config, certificates_.site("s0"), callbacks);
    const Status started = server_->start();
    ASSERT_TRUE(started.has_value()) << started.error().to_string();
  }
  void start_unix() {
    AgentServerConfig config;
    config.socket = socket_path();
    start(config);
  }
  [[nodiscard]] std::filesystem::path socket_path() const { return certificates_.directory() / "agent.sock"; }
  internal::UniqueFd connect_unix() const {
    internal::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_path().c_str());
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  static void put(internal::Channel& channel, const internal::OutgoingRecord& record) {
    (void)channel.append(record.head);
    if (record.body) (void)channel.append(*record.body);
  }
  static wire::AgentMessage ready(std::uint64_t round) {
    wire::AgentMessage message;
    message.mutable_ready()->set_round(round);
    return message;
  }
  bool until(const std::function<bool()>& condition) { return test::run_until(loop_, condition); }

  asio::io_context loop_;
  TestCertificates certificates_;
  std::vector<AgentSessionId> connected_;
  std::vector<Arrival> arrivals_;
  std::size_t frame_bytes_ = 0;
  std::vector<std::string> disconnected_;
  std::vector<std::string> refused_;
  std::unique_ptr<AgentServer> server_;
};

TEST_F(AgentServerTest, ControlAndFramesKeepTheirOrderInBothDirections) {
  start_unix();
  internal::PlainChannel client(connect_unix());
  ASSERT_TRUE(until([&] { return connected_.size() == 1; }));
  constexpr std::uint64_t kCount = 60;
  for (std::uint64_t number = 0; number < kCount; ++number) {
    put(client, internal::control_record(ready(number)));
    put(client, internal::frame_record(test::test_frame(static_cast<std::uint32_t>(number), 50'000)));
    EXPECT_TRUE(server_->send_control(connected_[0], ready(number)));
    EXPECT_TRUE(server_->send_frame(connected_[0], test::test_frame(static_cast<std::uint32_t>(number), 50'000)));
  }
  std::vector<Arrival> received;
  internal::RecordParser parser(wire::kControlBytesMax, true);
  const auto read_client = [&] {
    std::uint8_t bytes[65536];
    for (auto result = client.read(bytes, sizeof bytes); result.step == internal::IoStep::kDone;
         result = client.read(bytes, sizeof bytes)) {
      for (ByteSpan rest(bytes, result.bytes); !rest.empty();) {
        std::optional<internal::ParsedRecord> record;
        const auto used = parser.feed(rest, record);
        ASSERT_TRUE(used.has_value());
        rest = rest.subspan(*used);
        if (!record) continue;
        wire::AgentMessage message;
        (void)message.ParseFromArray(record->control.data(), static_cast<int>(record->control.size()));
        const bool is_frame = record->type == wire::RecordType::kFrame;
        received.push_back({is_frame, is_frame ? record->envelope.chunk : message.ready().round()});
      }
    }
  };
  ASSERT_TRUE(until([&] {
    (void)client.flush();
    read_client();
    return arrivals_.size() == 2 * kCount && received.size() == 2 * kCount;
  }));
  for (const auto* list : {&arrivals_, &received}) {
    for (std::uint64_t index = 0; index < 2 * kCount; ++index) {
      EXPECT_EQ((*list)[index].number, index / 2);
      EXPECT_EQ((*list)[index].is_frame, index % 2 == 1);
    }
  }
  EXPECT_TRUE(until([&] { return server_->queued_bytes(connected_[0]) == 0; }));
}

TEST_F(AgentServerTest, SocketIsPrivateAndGoesWithTheServer) {
  start_unix();
  struct stat status {};
  ASSERT_EQ(::lstat(socket_path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(socket_path()));
}

TEST_F(AgentServerTest, StaleSocketIsReplacedAndAServedOneIsNot) {
  {
    const internal::UniqueFd stale(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_path().c_str());
    ASSERT_EQ(::bind(stale.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  start_unix();
  AgentServerConfig config;
  config.socket = socket_path();
  AgentServer second(loop_, config, nullptr, {});
  const Status started = second.start();
  ASSERT_FALSE(started.has_value());
  EXPECT_EQ(started.error().code, ErrorCode::kListen);
  EXPECT_TRUE(std::filesystem::exists(socket_path()));
}

TEST_F(AgentServerTest, FileInThePlaceOfTheSocketIsLeftAlone) {
  std::ofstream(socket_path()) << "precious";
  AgentServerConfig config;
  config.socket = socket_path();
  AgentServer server(loop_, config, nullptr, {});
  EXPECT_FALSE(server.start().has_value());
  EXPECT_TRUE(std::filesystem::is_regular_file(socket_path()));
}

TEST_F(AgentServerTest, PausedSessionHoldsTheAgentBack) {
  start_unix();
  internal::PlainChannel client(connect_unix());
  ASSERT_TRUE(until([&] { return connected_.size() == 1; }));
  server_->pause_reading(connected_[0], true);
  constexpr std::uint32_t kCount = 40;
  for (std::uint32_t chunk = 0; chunk < kCount; ++chunk) put(client, internal::frame_record(test::test_frame(chunk, 1'000'000)));
  // Whatever was read before the pause took hold, the rest stays with the client until the pause ends.
  TimePoint since = Clock::now();
  std::size_t seen = arrivals_.size();
  ASSERT_TRUE(until([&] {
    (void)client.flush();
    if (arrivals_.size() != seen) since = Clock::now();
    seen = arrivals_.size();
    return Clock::now() - since > std::chrono::milliseconds(100);
  }));
  EXPECT_LT(arrivals_.size(), kCount);
  EXPECT_GT(client.unsent(), 0U);
  server_->pause_reading(connected_[0], false);
  EXPECT_TRUE(until([&] {
    (void)client.flush();
    return arrivals_.size() == kCount;
  }));
  EXPECT_EQ(frame_bytes_, kCount * 1'000'000U);
}

TEST_F(AgentServerTest, AgentThatLeavesIsReported) {
  start_unix();
  {
    internal::PlainChannel client(connect_unix());
    put(client, internal::control_record(ready(7)));
    (void)client.flush();
    ASSERT_TRUE(until([&] { return arrivals_.size() == 1; }));
  }
  EXPECT_TRUE(until([&] { return disconnected_.size() == 1; }));
  EXPECT_FALSE(server_->send_control(connected_[0], ready(1)));
}

TEST_F(AgentServerTest, ClosedSessionGetsWhatWasQueuedAndIsNotReported) {
  start_unix();
  internal::PlainChannel client(connect_unix());
  ASSERT_TRUE(until([&] { return connected_.size() == 1; }));
  server_->send_control(connected_[0], ready(3));
  server_->close(connected_[0], "enough");
  std::size_t received = 0;
  EXPECT_TRUE(until([&] {
    std::uint8_t bytes[256];
    const auto result = client.read(bytes, sizeof bytes);
    received += result.bytes;
    return result.step == internal::IoStep::kClosed;
  }));
  EXPECT_EQ(received, internal::control_record(ready(3)).bytes());
  EXPECT_TRUE(disconnected_.empty());
}

TEST_F(AgentServerTest, AgentThatTakesNothingIsEndedAtTheLimit) {
  start_unix();
  internal::PlainChannel client(connect_unix());
  ASSERT_TRUE(until([&] { return connected_.size() == 1; }));
  const FrameRecord frame = test::test_frame(1, 2'000'000);
  std::size_t sent = 0;
  while (server_->send_frame(connected_[0], frame) && sent < 2 * kAgentQueueBytesMax) sent += frame.bytes();
  EXPECT_LE(sent, kAgentQueueBytesMax);
  EXPECT_TRUE(until([&] { return disconnected_.size() == 1; }));
  EXPECT_NE(disconnected_[0].find("kQueueFull"), std::string::npos) << disconnected_[0];
}

TEST_F(AgentServerTest, GarbageEndsTheSession) {
  start_unix();
  internal::PlainChannel client(connect_unix());
  (void)client.append(ByteVector(100, 0xee));
  (void)client.flush();
  EXPECT_TRUE(until([&] { return disconnected_.size() == 1; }));
  EXPECT_NE(disconnected_[0].find("kLinkProtocol"), std::string::npos) << disconnected_[0];
}

TEST_F(AgentServerTest, TcpTakesAgentsCertificatesOnlyAndFindsSilence) {
  AgentServerConfig config;
  config.listen_host = "127.0.0.1";
  config.heartbeat_interval = std::chrono::milliseconds(100);
  start(config);
  test::RawTlsClient agent(server_->port(), certificates_.agent("s0"));
  ASSERT_TRUE(until([&] { return agent.step() || connected_.size() == 1; }));
  test::RawTlsClient site(server_->port(), certificates_.site("s0"));
  EXPECT_TRUE(until([&] { return site.step() && !refused_.empty(); }));
  EXPECT_EQ(refused_[0], "san");
  EXPECT_TRUE(until([&] { return disconnected_.size() == 1; }));
  EXPECT_NE(disconnected_[0].find("silent"), std::string::npos) << disconnected_[0];
}

}  // namespace
}  // namespace sluice::gateway
