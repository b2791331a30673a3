#include "site-agent/internal/inbox.h"

#include "base/assert.h"

namespace sluice::site_agent {

std::size_t Inbox::deliver(GatewayEvent&& event) {
  const std::unique_lock owner(owner_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (is_attended_) {
      queued_bytes_ += event_bytes(event);
      queue_.push_back(std::move(event));
      arrived_.notify_one();
      return queued_bytes_;
    }
  }
  handler_(std::move(event));
  return 0;
}

void Inbox::attend() {
  const std::lock_guard owner(owner_mutex_);
  const std::lock_guard lock(mutex_);
  SLUICE_ASSERT(!is_attended_);
  is_attended_ = true;
}

void Inbox::release() {
  while (true) {
    std::deque<GatewayEvent> rest;
    {
      const std::lock_guard lock(mutex_);
      SLUICE_ASSERT(is_attended_);
      if (queue_.empty()) {
        is_attended_ = false;
        return;
      }
      rest.swap(queue_);
      queued_bytes_ = 0;
    }
    for (GatewayEvent& event : rest) handler_(std::move(event));
  }
}

std::optional<GatewayEvent> Inbox::take(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  SLUICE_ASSERT(is_attended_);
  if (!arrived_.wait_until(lock, deadline, [&] { return !queue_.empty(); })) return std::nullopt;
  std::optional<GatewayEvent> event(std::move(queue_.front()));
  queue_.pop_front();
  queued_bytes_ -= event_bytes(*event);
  return event;
}

std::size_t Inbox::waiting_bytes() {
  const std::lock_guard lock(mutex_);
  return queued_bytes_;
}

}  // namespace sluice::site_agent
