#include "gateway/internal/opening.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <asio/post.hpp>

#include "gateway/internal/farewell.h"
#include "gateway/internal/record_stream.h"
#include "gateway/limits.h"

namespace sluice::gateway::internal {
namespace {

constexpr std::uint8_t kTlsHandshakeByte = 0x16;  // content type of a ClientHello's record

std::chrono::milliseconds phase_limit(int phase) {
  constexpr std::chrono::milliseconds limits[] = {kConnectTimeout, kConnectTimeout, kFirstByteTimeout, kHandshakeTimeout, kHelloTimeout};
  return limits[phase];
}

const char* phase_name(int phase) {
  constexpr const char* names[] = {"resolve name", "connect", "wait for TLS", "TLS handshake", "wait for hello"};
  return names[phase];
}

}  // namespace

Opening::Opening(asio::io_context& context, OpeningPlan plan, Done done)
    : context_(context), plan_(std::move(plan)), done_(std::move(done)), deadline_(context), resolver_(context) {}

void Opening::enter(Phase phase) {
  phase_ = phase;
  deadline_.expires_after(phase_limit(static_cast<int>(phase)));
  deadline_.async_wait([self = shared_from_this(), phase](const asio::error_code& error) {
    if (!error && self->phase_ == phase && self->deadline_.expiry() <= Clock::now()) self->on_deadline();
  });
}

void Opening::start(UniqueFd fd) {
  fd_ = std::move(fd);
  remote_ = remote_name(fd_.get());
  tune_tcp(fd_.get(), plan_.tcp);
  readiness_.emplace(context_, fd_.get());
  if (plan_.role == TlsRole::kClient) return begin_handshake();
  enter(Phase::kFirstByte);
  wait_first_byte();
}

void Opening::start(std::string host, std::uint16_t port) {
  remote_ = fmt::format("{}:{}", host, port);
  enter(Phase::kResolve);
  resolver_.async_resolve(host, std::to_string(port), asio::ip::resolver_base::numeric_service,
                          [self = shared_from_this()](const asio::error_code& error, const asio::ip::tcp::resolver::results_type& found) {
                            if (self->phase_ != Phase::kResolve) return;
                            if (error) return self->fail_with("", Error{ErrorCode::kConnect, "resolve name", error.message()});
                            for (const auto& entry : found) self->addresses_.push_back(entry.endpoint());
                            std::reverse(self->addresses_.begin(), self->addresses_.end());
                            self->connect_next();
                          });
}

void Opening::cancel() {
  phase_ = Phase::kDone;
  deadline_.cancel();
  resolver_.cancel();
  readiness_.reset();
  channel_.reset();
  fd_.reset(-1);
  done_ = Done{};
}

void Opening::connect_next() {
  readiness_.reset();
  if (addresses_.empty()) return fail_with("", Error{ErrorCode::kConnect, "connect", connect_error_});
  const asio::ip::tcp::endpoint address = addresses_.back();
  addresses_.pop_back();
  fd_.reset(::socket(address.protocol().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd_.is_open()) return fail_with("", Error{ErrorCode::kConnect, "open socket", std::strerror(errno)});
  tune_tcp(fd_.get(), plan_.tcp);
  enter(Phase::kConnect);
  if (::connect(fd_.get(), address.data(), static_cast<socklen_t>(address.size())) != 0 && errno != EINPROGRESS) {
    connect_error_ = std::strerror(errno);
    asio::post(context_, [self = shared_from_this()] {
      if (self->phase_ == Phase::kConnect) self->connect_next();
    });
    return;
  }
  readiness_.emplace(context_, fd_.get());
  readiness_->wait_write([self = shared_from_this(), fd = fd_.get()](const asio::error_code& error) {
    if (!error && self->phase_ == Phase::kConnect && self->fd_.get() == fd) self->on_connect_writable();
  });
}

void Opening::on_connect_writable() {
  int code = 0;
  socklen_t length = sizeof code;
  (void)::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &code, &length);
  if (code != 0) {
    connect_error_ = std::strerror(code);
    return connect_next();
  }
  begin_handshake();
}

void Opening::wait_first_byte() {
  readiness_->wait_read([self = shared_from_this()](const asio::error_code& error) {
    if (error || self->phase_ != Phase::kFirstByte) return;
    std::uint8_t first = 0;
    const ssize_t count = ::recv(self->fd_.get(), &first, 1, MSG_PEEK);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return self->wait_first_byte();
    if (count <= 0) return self->fail_with("", Error{ErrorCode::kLinkClosed, "wait for TLS", "closed before the first byte"});
    if (first != kTlsHandshakeByte) {
      return self->refuse("not_tls", ErrorCode::kLinkProtocol, fmt::format("the first byte is 0x{:02x}, not a TLS handshake", first));
    }
    if (self->plan_.admit_handshake && !self->plan_.admit_handshake()) {
      return self->refuse("flood", ErrorCode::kLimitExceeded, "too many TLS handshakes a second");
    }
    self->begin_handshake();
  });
}

void Opening::begin_handshake() {
  channel_ = std::make_unique<TlsChannel>(std::move(fd_), plan_.tls, plan_.role);
  enter(Phase::kHandshake);
  step_handshake();
}

// Waits for whatever the channel is waiting for, then calls `next`.
void Opening::wait_io(void (Opening::*next)()) {
  const auto again = [self = shared_from_this(), next, phase = phase_](const asio::error_code& error) {
    if (!error && self->phase_ == phase) ((*self).*next)();
  };
  if (channel_->unsent() > 0) {
    readiness_->wait_write(again);
  } else {
    readiness_->wait_read(again);
  }
}

void Opening::step_handshake() {
  const IoStep step = channel_->handshake();
  const IoStep flushed = channel_->flush();
  if (step == IoStep::kDone && flushed == IoStep::kDone) return on_tls_up();
  if (step == IoStep::kFailed || step == IoStep::kClosed) return fail_handshake();
  if (flushed == IoStep::kFailed) return fail_with("", Error{ErrorCode::kLinkClosed, "TLS handshake", channel_->failure()});
  wait_io(&Opening::step_handshake);
}

void Opening::fail_handshake() {
  const std::string detail = channel_->failure();
  if (channel_->is_transport_failure()) return fail_with("", Error{ErrorCode::kLinkClosed, "TLS handshake", detail});
  const long verdict = channel_->verify_result();
  if (verdict == X509_V_ERR_CERT_HAS_EXPIRED || verdict == X509_V_ERR_CERT_NOT_YET_VALID) {
    return refuse("expired", ErrorCode::kTlsHandshake, fmt::format("the certificate shown: {}", X509_verify_cert_error_string(verdict)));
  }
  if (verdict != X509_V_OK) {
    return refuse("untrusted", ErrorCode::kTlsHandshake, fmt::format("the certificate shown: {}", X509_verify_cert_error_string(verdict)));
  }
  if (detail.find("did not return a certificate") != std::string::npos) {
    return refuse("untrusted", ErrorCode::kTlsHandshake, "the other side shows no certificate");
  }
  if (detail.find("alert") != std::string::npos) {
    return fail_with("", Error{ErrorCode::kTlsHandshake, "TLS handshake", "the other side refused: " + detail});
  }
  refuse("protocol", ErrorCode::kTlsHandshake, detail);
}

void Opening::on_tls_up() {
  auto identity = channel_->identity();
  if (!identity) return refuse("san", ErrorCode::kTlsIdentity, identity.error().detail);
  const Status expected = plan_.check_identity(*identity);
  if (!expected) {
    if (plan_.role == TlsRole::kServer && plan_.wants_greeting) {
      wire::PeerMessage goodbye;
      goodbye.mutable_goodbye()->set_error_code(static_cast<std::uint32_t>(expected.error().code));
      goodbye.mutable_goodbye()->set_detail(expected.error().detail);
      readiness_.reset();
      Farewell::say(context_, std::move(channel_), goodbye);
    }
    return refuse("san", expected.error().code, expected.error().detail);
  }
  identity_ = *identity;
  if (plan_.hello) (void)channel_->append(control_record(*plan_.hello).head);
  enter(Phase::kGreeting);
  step_greeting();
}

void Opening::step_greeting() {
  if (channel_->flush() == IoStep::kFailed) {
    return fail_with("", Error{ErrorCode::kLinkClosed, "send hello", channel_->failure()});
  }
  while (plan_.wants_greeting && !greeting_) {
    std::uint8_t bytes[4096];
    const ReadResult result = channel_->read(bytes, std::min(sizeof bytes, parser_.bytes_needed()));
    if (result.step == IoStep::kWouldBlock) return wait_io(&Opening::step_greeting);
    if (result.step == IoStep::kClosed) {
      return fail_with("", Error{ErrorCode::kLinkClosed, "wait for hello", "the other side closed the connection"});
    }
    if (result.step == IoStep::kFailed) {
      const bool is_alert = channel_->failure().find("alert") != std::string::npos;
      return fail_with("", Error{is_alert ? ErrorCode::kTlsHandshake : ErrorCode::kLinkClosed, "wait for hello",
                                 is_alert ? "the other side refused our certificate: " + channel_->failure() : channel_->failure()});
    }
    std::optional<ParsedRecord> record;
    const auto used = parser_.feed(ByteSpan(bytes, result.bytes), record);
    if (!used) return refuse("protocol", used.error().code, used.error().detail);
    if (!record) continue;
    wire::PeerMessage message;
    if (!message.ParseFromArray(record->control.data(), static_cast<int>(record->control.size())) ||
        (!message.has_hello() && !message.has_goodbye())) {
      return refuse("protocol", ErrorCode::kLinkProtocol, "the first message is no hello");
    }
    greeting_ = std::move(message);
  }
  if (channel_->unsent() > 0) return wait_io(&Opening::step_greeting);
  succeed();
}

void Opening::on_deadline() {
  const int phase = static_cast<int>(phase_);
  if (phase_ == Phase::kConnect) {
    connect_error_ = fmt::format("no answer within {} ms", kConnectTimeout.count());
    return connect_next();
  }
  const std::string detail = fmt::format("{}: nothing came within {} ms", phase_name(phase), phase_limit(phase).count());
  if (phase_ == Phase::kResolve) return fail_with("", Error{ErrorCode::kTimeout, "resolve name", detail});
  refuse("timeout", ErrorCode::kTimeout, detail);
}

void Opening::refuse(std::string label, ErrorCode code, std::string detail) {
  fail_with(std::move(label), Error{code, "open connection", std::move(detail)});
}

void Opening::fail_with(std::string label, Error error) {
  const auto keep = shared_from_this();
  auto report = std::move(done_.failed);
  OpeningFailure failure{std::move(label), std::move(error), remote_};
  cancel();
  if (report) report(std::move(failure));
}

void Opening::succeed() {
  const auto keep = shared_from_this();
  auto report = std::move(done_.opened);
  phase_ = Phase::kDone;
  deadline_.cancel();
  readiness_.reset();
  OpenedConnection opened{std::move(channel_), identity_, remote_, std::move(greeting_)};
  done_ = Done{};
  if (report) report(std::move(opened));
}

}  // namespace sluice::gateway::internal
