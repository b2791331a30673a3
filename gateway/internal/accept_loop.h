#pragma once

// Accepts connections from a listening socket, TCP or Unix. When the process has no descriptors or memory left it pauses and tries again
// instead of spinning; no error ends it.
// Threads: everything on the thread of `context`. Shared ownership: a pending wait keeps it alive until stop().

#include <functional>
#include <memory>
#include <optional>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "base/clock.h"
#include "gateway/internal/readiness.h"
#include "gateway/internal/unique_fd.h"

namespace sluice::gateway::internal {

class AcceptLoop : public std::enable_shared_from_this<AcceptLoop> {
 public:
  // Takes a bound and listening socket.
  AcceptLoop(asio::io_context& context, UniqueFd socket);

  void start(std::function<void(UniqueFd)> on_connection);
  void stop();

 private:
  void wait_connection();
  void accept_some();
  void pause(int error_number);

  asio::io_context& context_;
  UniqueFd socket_;
  std::function<void(UniqueFd)> on_connection_;
  std::optional<Readiness> readiness_;
  asio::steady_timer pause_;
  TimePoint pause_logged_at_;
  bool is_stopped_ = false;
};

}  // namespace sluice::gateway::internal
