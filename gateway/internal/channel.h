#pragma once

// The bytes of one connection over a non-blocking socket, plain (Unix socket) or TLS. Not thread-safe: one io thread at a time; it may be
// handed to another thread while nobody uses it. Owns the descriptor. Never raises SIGPIPE.
// Writing has two steps, so that many small pieces make one system call: append() never refuses and grows the send buffer, flush() gives
// it to the kernel; the caller keeps unsent() near kWriteBufferBytes.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "gateway/internal/openssl_ptr.h"
#include "gateway/internal/unique_fd.h"
#include "gateway/tls_context.h"

namespace sluice::gateway::internal {

// Bytes that went through the socket. Written by the io thread, read by any.
struct ByteCounters {
  std::atomic<std::uint64_t> sent{0};
  std::atomic<std::uint64_t> received{0};
};

enum class IoStep {
  kDone,
  kWouldBlock,  // for reading: until readable; for flushing: until writable
  kClosed,      // the other side ended the connection in order
  kFailed,      // failure() says why
};

struct ReadResult {
  IoStep step = IoStep::kDone;
  std::size_t bytes = 0;  // with kDone, at least 1
};

class Channel {
 public:
  explicit Channel(UniqueFd fd);
  virtual ~Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Up to `size` bytes of plaintext.
  virtual ReadResult read(std::uint8_t* to, std::size_t size) = 0;
  // False when the connection cannot be written to any more.
  virtual bool append(ByteSpan plaintext) = 0;
  // Appends what tells the other side that nothing more comes (TLS close_notify).
  virtual void append_end() = 0;

  IoStep flush();
  [[nodiscard]] std::size_t unsent() const { return out_.size() - out_at_; }

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] const std::string& failure() const { return failure_; }
  // Whether it was the network or the other side's end of the connection that failed, rather than what came over it.
  [[nodiscard]] bool is_transport_failure() const { return is_transport_failure_; }
  [[nodiscard]] const std::shared_ptr<ByteCounters>& counters() const { return counters_; }
  // From the small buffer of a connection that nobody knows yet to the full one.
  void enlarge_read_buffer();
  // Half-closes the socket after the last flush.
  void shut_down_writing();
  // The next close() resets the connection instead of ending it in order.
  void make_close_abortive();

 protected:
  // Bytes from the kernel that have not been consumed; when there are none, asks the kernel once.
  IoStep fill();
  [[nodiscard]] ByteSpan filled() const { return ByteSpan(in_).subspan(in_at_, in_end_ - in_at_); }
  void consume(std::size_t bytes) { in_at_ += bytes; }
  ReadResult read_raw(std::uint8_t* to, std::size_t size);
  void append_raw(ByteSpan bytes);
  void set_failure(std::string text, bool is_transport) {
    failure_ = std::move(text);
    is_transport_failure_ = is_transport;
  }
  IoStep receive(std::uint8_t* to, std::size_t size, std::size_t& received);

 private:
  UniqueFd fd_;
  std::shared_ptr<ByteCounters> counters_ = std::make_shared<ByteCounters>();
  ByteVector in_;
  std::size_t in_at_ = 0;
  std::size_t in_end_ = 0;
  ByteVector out_;
  std::size_t out_at_ = 0;
  std::string failure_;
  bool is_transport_failure_ = false;
};

class PlainChannel final : public Channel {
 public:
  explicit PlainChannel(UniqueFd fd) : Channel(std::move(fd)) {}
  ReadResult read(std::uint8_t* to, std::size_t size) override { return read_raw(to, size); }
  bool append(ByteSpan plaintext) override;
  void append_end() override {}
};

class TlsChannel final : public Channel {
 public:
  // Keeps the context for as long as it lives.
  TlsChannel(UniqueFd fd, std::shared_ptr<const TlsContext> context, TlsRole role);

  // Goes on with the handshake as far as the bytes that are there allow; the caller flushes, whatever the outcome: an alert may wait.
  IoStep handshake();
  // Why the other side's certificate was refused; X509_V_OK when it was not.
  [[nodiscard]] long verify_result() const;
  // REQUIRES: the handshake is done.
  [[nodiscard]] Result<PeerIdentity> identity() const;

  ReadResult read(std::uint8_t* to, std::size_t size) override;
  bool append(ByteSpan plaintext) override;
  void append_end() override;

 private:
  struct BioFunctions;

  IoStep explain(int outcome);

  std::shared_ptr<const TlsContext> context_;
  TlsRole role_;
  SslPtr ssl_;
  std::uint64_t key_bytes_ = 0;  // encrypted with the present key
  bool saw_end_of_stream_ = false;
  bool is_in_the_clear_ = false;  // TlsRecords::kHandshakeOnly, and the handshake is done
};

}  // namespace sluice::gateway::internal
