#pragma once

// A gateway for tests of the agent: a Unix socket, driven line by line by the test's own thread. Every call blocks at most 20 s and fails
// the test with an exception when the agent does something else than expected. One thread at a time per connection.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "proto/agent.pb.h"
#include "proto/record.h"

namespace sluice::test {

struct FakeFrame {
  wire::FrameEnvelope envelope;
  ByteVector frame;
};

class FakeConnection {
 public:
  explicit FakeConnection(int socket) : socket_(socket) {}
  ~FakeConnection();
  FakeConnection(const FakeConnection&) = delete;
  FakeConnection& operator=(const FakeConnection&) = delete;

  void send(const wire::AgentMessage& message);
  void send_frame(const wire::FrameEnvelope& envelope, ByteSpan frame);
  // The next control message; a frame in between is an error.
  wire::AgentMessage read();
  // The next record, which must be a frame.
  FakeFrame read_frame();
  // Whether the agent has closed the connection. Waits for it.
  bool reads_end();

  // Any record, or nothing at the end of the connection. Another thread may send or call end() meanwhile.
  struct Record {
    wire::AgentMessage message;
    std::optional<FakeFrame> frame;
  };
  std::optional<Record> try_read();
  void end();  // makes try_read() return nothing

 private:
  ByteVector read_record(wire::RecordType& type);
  int socket_;
};

class FakeGateway {
 public:
  FakeGateway();
  ~FakeGateway();
  FakeGateway(const FakeGateway&) = delete;
  FakeGateway& operator=(const FakeGateway&) = delete;

  [[nodiscard]] std::string address() const { return "unix:" + path_; }
  [[nodiscard]] std::string directory() const { return directory_; }
  // Waits for an agent, reads its hello and answers with the welcome.
  std::unique_ptr<FakeConnection> accept();
  std::unique_ptr<FakeConnection> accept_silently();  // hello read, nothing answered
  // Until listen(): connecting is refused, as when the gateway is down.
  void shut();
  void listen();

  wire::AgentWelcome welcome;  // what accept() answers
  wire::AgentHello hello;      // of the last agent accepted

 private:
  std::string directory_;
  std::string path_;
  int listener_ = -1;
};

wire::AgentMessage opened(std::uint64_t round, std::uint32_t codec, float step, bool is_member = true, std::uint64_t epoch = 1);
wire::AgentMessage committed(std::uint64_t round, std::uint32_t counted, float scale, bool was_counted);
wire::AgentMessage skipped(std::uint64_t round);
wire::AgentMessage catch_up(std::uint64_t to_round, bool with_state);
wire::AgentMessage announcement(const std::string& text, bool is_solo);

}  // namespace sluice::test
