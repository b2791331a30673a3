#pragma once

// Accepts TCP connections and opens them (internal/opening.h) under limits: connections that are not authenticated yet, in all and for each
// address, and TLS handshakes a second.
// Threads: everything on the thread of `context`, callbacks too. Shared ownership: pending handlers keep it alive until stop().

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>

#include <asio/io_context.hpp>

#include "base/clock.h"
#include "gateway/internal/accept_loop.h"
#include "gateway/internal/opening.h"
#include "gateway/internal/unique_fd.h"

namespace sluice::gateway::internal {

struct ListenerLimits {
  std::uint32_t connections_unauthenticated = 64;
  std::uint32_t connections_per_address = 40;
  std::uint32_t handshakes_per_second = 50;  // and as many at once
};

class Listener : public std::enable_shared_from_this<Listener> {
 public:
  struct Callbacks {
    std::function<OpeningPlan()> make_plan;  // for each connection, so that new certificates take effect
    std::function<void(OpenedConnection)> opened;
    std::function<void(OpeningFailure)> failed;
  };

  // Takes a bound and listening socket.
  Listener(asio::io_context& context, UniqueFd socket, ListenerLimits limits, Callbacks callbacks);

  void start();
  void stop();

 private:
  void open_connection(UniqueFd fd);
  bool take_handshake();
  void forget(const std::shared_ptr<Opening>& opening, const std::string& address);

  asio::io_context& context_;
  std::shared_ptr<AcceptLoop> accept_loop_;
  ListenerLimits limits_;
  Callbacks callbacks_;
  std::unordered_set<std::shared_ptr<Opening>> openings_;
  std::map<std::string, std::uint32_t> openings_by_address_;
  double handshake_tokens_;
  TimePoint tokens_at_;
  bool is_stopped_ = false;
};

}  // namespace sluice::gateway::internal
