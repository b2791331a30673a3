#include "gateway/internal/accept_loop.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "gateway/limits.h"

namespace sluice::gateway::internal {

AcceptLoop::AcceptLoop(asio::io_context& context, UniqueFd socket) : context_(context), socket_(std::move(socket)), pause_(context) {}

void AcceptLoop::start(std::function<void(UniqueFd)> on_connection) {
  on_connection_ = std::move(on_connection);
  readiness_.emplace(context_, socket_.get());
  wait_connection();
}

void AcceptLoop::stop() {
  is_stopped_ = true;
  pause_.cancel();
  readiness_.reset();
  socket_.reset(-1);
}

void AcceptLoop::wait_connection() {
  readiness_->wait_read([self = shared_from_this()](const asio::error_code&) {
    if (!self->is_stopped_) self->accept_some();
  });
}

void AcceptLoop::accept_some() {
  // Bounded, so that a flood does not keep the other work of this thread waiting.
  constexpr int kAcceptsInARow = 16;
  for (int count = 0; count < kAcceptsInARow && !is_stopped_; ++count) {
    UniqueFd fd(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.is_open()) {
      on_connection_(std::move(fd));
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) break;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) return pause(errno);
    // Everything else concerns the one connection that was about to be accepted, which is gone.
  }
  if (!is_stopped_) wait_connection();
}

void AcceptLoop::pause(int error_number) {
  const TimePoint now = Clock::now();
  if (now - pause_logged_at_ > std::chrono::seconds(1)) {
    pause_logged_at_ = now;
    log_warning("link", "cannot accept connections for the moment: {}", std::strerror(error_number));
  }
  pause_.expires_after(kAcceptPause);
  pause_.async_wait([self = shared_from_this()](const asio::error_code&) {
    if (!self->is_stopped_) self->wait_connection();
  });
}

}  // namespace sluice::gateway::internal
