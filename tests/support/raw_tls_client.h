#pragma once

// A client of a gateway's port that keeps to no protocol but TLS: for tests of what the gateway refuses. Non-blocking; step() does what can
// be done now, so that a test turns it together with the gateway's loop.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "gateway/internal/channel.h"
#include "gateway/internal/record_parser.h"
#include "gateway/internal/unique_fd.h"
#include "proto/peer.pb.h"

namespace sluice::test {

inline gateway::internal::UniqueFd connect_loopback(std::uint16_t port) {
  gateway::internal::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  SLUICE_ASSERT(fd.is_open(), "socket: errno {}", errno);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int code = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  SLUICE_ASSERT(code == 0 || errno == EINPROGRESS, "connect: errno {}", errno);
  return fd;
}

// Whether the other side has closed a plain socket.
inline bool is_closed_by_peer(int fd) {
  char byte = 0;
  const ssize_t count = ::recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOTCONN);
}

class RawTlsClient {
 public:
  RawTlsClient(std::uint16_t port, std::shared_ptr<const gateway::TlsContext> tls)
      : channel_(std::make_unique<gateway::internal::TlsChannel>(connect_loopback(port), std::move(tls), gateway::TlsRole::kClient)) {}

  // Goes on as far as possible; returns whether the connection has ended.
  bool step() {
    using gateway::internal::IoStep;
    if (is_closed_) return true;
    if (!is_up_) {
      const IoStep step = channel_->handshake();
      (void)channel_->flush();
      if (step == IoStep::kWouldBlock) return false;
      if (step != IoStep::kDone) return end();
      is_up_ = true;
    }
    (void)channel_->flush();
    for (;;) {
      std::uint8_t bytes[4096];
      const auto result = channel_->read(bytes, sizeof bytes);
      if (result.step == IoStep::kWouldBlock) return false;
      if (result.step != IoStep::kDone) return end();
      take(ByteSpan(bytes, result.bytes));
    }
  }
  void send(ByteSpan bytes) {
    SLUICE_ASSERT(is_up_);
    if (!is_closed_) (void)channel_->append(bytes);
  }
  void send(const wire::PeerMessage& message) {
    ByteVector record(wire::kRecordHeaderBytes + message.ByteSizeLong());
    wire::write_record_header({static_cast<std::uint32_t>(message.ByteSizeLong()), wire::RecordType::kControl}, record.data());
    const bool written = message.SerializeToArray(record.data() + wire::kRecordHeaderBytes, static_cast<int>(message.ByteSizeLong()));
    SLUICE_ASSERT(written);
    send(record);
  }
  [[nodiscard]] bool is_up() const { return is_up_; }
  [[nodiscard]] bool is_closed() const { return is_closed_; }
  // The first message that came, and how many.
  [[nodiscard]] const std::optional<wire::PeerMessage>& first() const { return first_; }

 private:
  bool end() {
    is_closed_ = true;
    return true;
  }
  void take(ByteSpan bytes) {
    while (!bytes.empty()) {
      std::optional<gateway::internal::ParsedRecord> record;
      const auto used = parser_.feed(bytes, record);
      SLUICE_ASSERT(used.has_value(), "the gateway sends garbage");
      bytes = bytes.subspan(*used);
      if (!record || first_ || record->type != wire::RecordType::kControl) continue;
      wire::PeerMessage message;
      const bool parsed = message.ParseFromArray(record->control.data(), static_cast<int>(record->control.size()));
      SLUICE_ASSERT(parsed);
      first_ = message;
    }
  }

  std::unique_ptr<gateway::internal::TlsChannel> channel_;
  gateway::internal::RecordParser parser_{wire::kControlBytesMax, true};
  bool is_up_ = false;
  bool is_closed_ = false;
  std::optional<wire::PeerMessage> first_;
};

}  // namespace sluice::test
