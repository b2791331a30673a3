#include "gateway/internal/channel.h"

// TLS runs over a BIO of our own: it reads from a buffer filled by one recv() for many records and writes to one that one send() empties.
// Compared with a memory BIO pair this saves a copy, and the counters see exactly the bytes on the socket.

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/assert.h"
#include "gateway/limits.h"

namespace sluice::gateway::internal {
namespace {

// A key encrypts at most this much; AES-GCM's margin is 2^24.5 records (RFC 8446, 5.5), 388 GB of full ones.
constexpr std::uint64_t kKeyBytesMax = 64 * kGiB;

}  // namespace

Channel::Channel(UniqueFd fd) : fd_(std::move(fd)), in_(kGreetingBufferBytes) {}

void Channel::enlarge_read_buffer() { in_.resize(kReadBufferBytes); }

void Channel::shut_down_writing() { (void)::shutdown(fd_.get(), SHUT_WR); }

void Channel::make_close_abortive() {
  const linger reset{1, 0};
  (void)::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
}

IoStep Channel::receive(std::uint8_t* to, std::size_t size, std::size_t& received) {
  for (;;) {
    const ssize_t count = ::recv(fd_.get(), to, size, 0);
    if (count > 0) {
      received = static_cast<std::size_t>(count);
      counters_->received.fetch_add(received, std::memory_order_relaxed);
      return IoStep::kDone;
    }
    if (count == 0) return IoStep::kClosed;
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return IoStep::kWouldBlock;
    set_failure(std::strerror(errno), true);
    return IoStep::kFailed;
  }
}

IoStep Channel::fill() {
  if (in_at_ < in_end_) return IoStep::kDone;
  in_at_ = in_end_ = 0;
  return receive(in_.data(), in_.size(), in_end_);
}

void Channel::append_raw(ByteSpan bytes) {
  if (out_at_ == out_.size()) {
    out_.clear();
    out_at_ = 0;
  }
  out_.insert(out_.end(), bytes.begin(), bytes.end());
}

IoStep Channel::flush() {
  while (out_at_ < out_.size()) {
    const ssize_t count = ::send(fd_.get(), out_.data() + out_at_, out_.size() - out_at_, MSG_NOSIGNAL);
    if (count >= 0) {
      out_at_ += static_cast<std::size_t>(count);
      counters_->sent.fetch_add(static_cast<std::uint64_t>(count), std::memory_order_relaxed);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return IoStep::kWouldBlock;
    set_failure(std::strerror(errno), true);
    return IoStep::kFailed;
  }
  out_.clear();
  out_at_ = 0;
  return IoStep::kDone;
}

ReadResult Channel::read_raw(std::uint8_t* to, std::size_t size) {
  if (filled().empty() && size >= kReadChunkBytes) {
    ReadResult result;
    result.step = receive(to, size, result.bytes);
    return result;
  }
  const IoStep step = fill();
  if (step != IoStep::kDone) return {step, 0};
  const std::size_t bytes = std::min(size, filled().size());
  std::memcpy(to, filled().data(), bytes);
  consume(bytes);
  return {IoStep::kDone, bytes};
}

bool PlainChannel::append(ByteSpan plaintext) {
  append_raw(plaintext);
  return true;
}

struct TlsChannel::BioFunctions {
  static TlsChannel* channel(BIO* bio) { return static_cast<TlsChannel*>(BIO_get_data(bio)); }

  static int write(BIO* bio, const char* data, int size) {
    BIO_clear_retry_flags(bio);
    channel(bio)->append_raw(ByteSpan(reinterpret_cast<const std::uint8_t*>(data), static_cast<std::size_t>(size)));
    return size;
  }

  static int read(BIO* bio, char* to, int size) {
    BIO_clear_retry_flags(bio);
    TlsChannel* self = channel(bio);
    const IoStep step = self->fill();
    if (step == IoStep::kWouldBlock) {
      BIO_set_retry_read(bio);
      return -1;
    }
    if (step == IoStep::kClosed) {
      self->saw_end_of_stream_ = true;
      return 0;
    }
    if (step == IoStep::kFailed) return -1;
    const std::size_t bytes = std::min(static_cast<std::size_t>(size), self->filled().size());
    std::memcpy(to, self->filled().data(), bytes);
    self->consume(bytes);
    return static_cast<int>(bytes);
  }

  static long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

  static const BIO_METHOD* method() {
    static const BioMethodPtr table = [] {
      BioMethodPtr made(BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "sluice channel"));
      SLUICE_ASSERT(made != nullptr);
      BIO_meth_set_write(made.get(), &BioFunctions::write);
      BIO_meth_set_read(made.get(), &BioFunctions::read);
      BIO_meth_set_ctrl(made.get(), &BioFunctions::control);
      return made;
    }();
    return table.get();
  }
};

TlsChannel::TlsChannel(UniqueFd fd, std::shared_ptr<const TlsContext> context, TlsRole role)
    : Channel(std::move(fd)), context_(std::move(context)), role_(role), ssl_(SSL_new(context_->native())) {
  SLUICE_ASSERT(ssl_ != nullptr, "SSL_new: out of memory");
  BIO* bio = BIO_new(BioFunctions::method());
  SLUICE_ASSERT(bio != nullptr, "BIO_new: out of memory");
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
  if (role == TlsRole::kServer) {
    SSL_set_accept_state(ssl_.get());
  } else {
    SSL_set_connect_state(ssl_.get());
  }
}

// Classifies a failed call in one place, because OpenSSL's answers for an unexpected end differ between versions.
IoStep TlsChannel::explain(int outcome) {
  const int code = SSL_get_error(ssl_.get(), outcome);
  if (code == SSL_ERROR_WANT_READ) return IoStep::kWouldBlock;
  if (code == SSL_ERROR_ZERO_RETURN) return IoStep::kClosed;
  if (saw_end_of_stream_) {
    ERR_clear_error();
    set_failure("the connection ended without notice", true);
    return IoStep::kFailed;
  }
  if (code == SSL_ERROR_SYSCALL && !failure().empty()) {
    ERR_clear_error();
    return IoStep::kFailed;
  }
  set_failure("TLS: " + take_openssl_error(), false);
  return IoStep::kFailed;
}

IoStep TlsChannel::handshake() {
  ERR_clear_error();
  const int outcome = SSL_do_handshake(ssl_.get());
  if (outcome != 1) return explain(outcome);
  // OpenSSL has taken exactly the bytes of the handshake (no read-ahead), and sends nothing after it (no session tickets).
  is_in_the_clear_ = context_->records() == TlsRecords::kHandshakeOnly;
  return IoStep::kDone;
}

long TlsChannel::verify_result() const { return SSL_get_verify_result(ssl_.get()); }

Result<PeerIdentity> TlsChannel::identity() const {
  const X509* certificate = SSL_get0_peer_certificate(ssl_.get());
  if (certificate == nullptr) return fail(ErrorCode::kTlsIdentity, "read certificate", "the other side showed none");
  return read_identity(certificate, role_ == TlsRole::kServer ? TlsRole::kClient : TlsRole::kServer);
}

ReadResult TlsChannel::read(std::uint8_t* to, std::size_t size) {
  if (is_in_the_clear_) return read_raw(to, size);
  ERR_clear_error();
  std::size_t bytes = 0;
  const int outcome = SSL_read_ex(ssl_.get(), to, size, &bytes);
  if (outcome == 1) return {IoStep::kDone, bytes};
  return {explain(outcome), 0};
}

bool TlsChannel::append(ByteSpan plaintext) {
  if (is_in_the_clear_) {
    append_raw(plaintext);
    return true;
  }
  ERR_clear_error();
  key_bytes_ += plaintext.size();
  if (key_bytes_ > kKeyBytesMax) {
    key_bytes_ = 0;
    (void)SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);
  }
  while (!plaintext.empty()) {
    std::size_t written = 0;
    const int outcome = SSL_write_ex(ssl_.get(), plaintext.data(), plaintext.size(), &written);
    if (outcome != 1) {
      explain(outcome);
      return false;
    }
    plaintext = plaintext.subspan(written);
  }
  return true;
}

void TlsChannel::append_end() {
  if (is_in_the_clear_) return;
  ERR_clear_error();
  (void)SSL_shutdown(ssl_.get());
  ERR_clear_error();
}

}  // namespace sluice::gateway::internal
