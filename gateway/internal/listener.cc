#include "gateway/internal/listener.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/log.h"
#include "gateway/limits.h"

namespace sluice::gateway::internal {

Listener::Listener(asio::io_context& context, UniqueFd socket, ListenerLimits limits, Callbacks callbacks)
    : context_(context),
      socket_(std::move(socket)),
      limits_(limits),
      callbacks_(std::move(callbacks)),
      pause_(context),
      handshake_tokens_(static_cast<double>(limits.handshakes_per_second)),
      tokens_at_(Clock::now()) {}

void Listener::start() {
  readiness_.emplace(context_, socket_.get());
  wait_connection();
}

void Listener::stop() {
  is_stopped_ = true;
  pause_.cancel();
  readiness_.reset();
  socket_.reset(-1);
  for (const auto& opening : openings_) opening->cancel();
  openings_.clear();
  callbacks_ = Callbacks{};
}

void Listener::wait_connection() {
  readiness_->wait_read([self = shared_from_this()](const asio::error_code&) {
    if (!self->is_stopped_) self->accept_some();
  });
}

void Listener::accept_some() {
  // Bounded, so that a flood does not keep the handshakes and control connections of this thread waiting.
  constexpr int kAcceptsInARow = 16;
  for (int count = 0; count < kAcceptsInARow; ++count) {
    UniqueFd fd(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.is_open()) {
      open_connection(std::move(fd));
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) break;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) return pause_accepting(errno);
    // Everything else concerns the one connection that was about to be accepted, which is gone.
  }
  wait_connection();
}

void Listener::pause_accepting(int error_number) {
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

void Listener::open_connection(UniqueFd fd) {
  const std::string address = remote_address(fd.get());
  const auto known = openings_by_address_.find(address);
  const bool is_too_many = openings_.size() >= limits_.connections_unauthenticated ||
                           (known != openings_by_address_.end() && known->second >= limits_.connections_per_address);
  if (is_too_many) {
    return callbacks_.failed({"flood", Error{ErrorCode::kLimitExceeded, "accept", "too many connections that have not authenticated"},
                              remote_name(fd.get())});
  }
  ++openings_by_address_[address];
  OpeningPlan plan = callbacks_.make_plan();
  const std::weak_ptr<Listener> weak = weak_from_this();
  plan.admit_handshake = [weak] {
    const auto self = weak.lock();
    return self && self->take_handshake();
  };
  const auto cell = std::make_shared<std::weak_ptr<Opening>>();
  Opening::Done done;
  done.opened = [weak, cell, address](OpenedConnection opened) {
    const auto self = weak.lock();
    if (!self || self->is_stopped_) return;
    self->forget(cell->lock(), address);
    self->callbacks_.opened(std::move(opened));
  };
  done.failed = [weak, cell, address](OpeningFailure failure) {
    const auto self = weak.lock();
    if (!self || self->is_stopped_) return;
    self->forget(cell->lock(), address);
    self->callbacks_.failed(std::move(failure));
  };
  auto opening = std::make_shared<Opening>(context_, std::move(plan), std::move(done));
  *cell = opening;
  openings_.insert(opening);
  opening->start(std::move(fd));
}

bool Listener::take_handshake() {
  const TimePoint now = Clock::now();
  const double rate = static_cast<double>(limits_.handshakes_per_second);
  handshake_tokens_ = std::min(rate, handshake_tokens_ + std::chrono::duration<double>(now - tokens_at_).count() * rate);
  tokens_at_ = now;
  if (handshake_tokens_ < 1.0) return false;
  handshake_tokens_ -= 1.0;
  return true;
}

void Listener::forget(const std::shared_ptr<Opening>& opening, const std::string& address) {
  openings_.erase(opening);
  const auto known = openings_by_address_.find(address);
  if (known != openings_by_address_.end() && --known->second == 0) openings_by_address_.erase(known);
}

}  // namespace sluice::gateway::internal
