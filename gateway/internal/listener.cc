#include "gateway/internal/listener.h"

#include <algorithm>

#include "gateway/limits.h"

namespace sluice::gateway::internal {

Listener::Listener(asio::io_context& context, UniqueFd socket, ListenerLimits limits, Callbacks callbacks)
    : context_(context),
      accept_loop_(std::make_shared<AcceptLoop>(context, std::move(socket))),
      limits_(limits),
      callbacks_(std::move(callbacks)),
      handshake_tokens_(static_cast<double>(limits.handshakes_per_second)),
      tokens_at_(Clock::now()) {}

void Listener::start() {
  accept_loop_->start([weak = weak_from_this()](UniqueFd fd) {
    const auto self = weak.lock();
    if (self && !self->is_stopped_) self->open_connection(std::move(fd));
  });
}

void Listener::stop() {
  is_stopped_ = true;
  accept_loop_->stop();
  for (const auto& opening : openings_) opening->cancel();
  openings_.clear();
  callbacks_ = Callbacks{};
}

void Listener::open_connection(UniqueFd fd) {
  const std::string address = remote_address(fd.get());
  const auto known = openings_by_address_.find(address);
  const bool is_too_many = openings_.size() >= limits_.connections_unauthenticated ||
                           (known != openings_by_address_.end() && known->second >= limits_.connections_per_address);
  if (is_too_many) {
    return callbacks_.failed(
        {"flood", Error{ErrorCode::kLimitExceeded, "accept", "too many connections that have not authenticated"}, remote_name(fd.get())});
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
