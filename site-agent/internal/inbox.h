#pragma once

// Inbox: hands gateway events to whichever thread owns the session at the moment, in order.
//
// The session (shard state, round in progress) has no lock of its own. While the training thread attends (inside a step that is a
// boundary, a save, ...) it is the owner: the IO thread only queues, and the training thread takes. Otherwise the IO thread handles each
// event itself, under the same mutex that attend() takes, so that the training thread never sees half of an event. The queue is empty
// whenever nobody attends.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>

#include "base/clock.h"
#include "site-agent/internal/gateway_event.h"

namespace sluice::site_agent {

class Inbox {
 public:
  using Handler = std::function<void(GatewayEvent&&)>;
  explicit Inbox(Handler handler) : handler_(std::move(handler)) {}

  // IO thread. Returns the bytes now waiting.
  std::size_t deliver(GatewayEvent&& event);

  // Training thread. Waits while the IO thread handles an event. REQUIRES: not attending yet.
  void attend();
  // Handles what is still queued, then gives the session back to the IO thread. REQUIRES: attending.
  void release();
  // The next event, or nothing at the deadline. REQUIRES: attending.
  std::optional<GatewayEvent> take(TimePoint deadline);
  // Bytes waiting. Any thread.
  [[nodiscard]] std::size_t waiting_bytes();

 private:
  Handler handler_;
  std::mutex owner_mutex_;  // held by the IO thread while it handles an event, and by attend() while it takes over
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<GatewayEvent> queue_;
  std::size_t queued_bytes_ = 0;
  bool is_attended_ = false;
};

}  // namespace sluice::site_agent
