#pragma once

// AdminServer: metrics, health, JSON status and dashboard over HTTP/1.1, for people and Prometheus on the same machine. It has no
// authentication and changes nothing: it listens on loopback only, answers GET and HEAD only, checks the Host header (DNS rebinding), and
// reads nothing but the published snapshot and the metrics, so that no request ever waits for or disturbs the gateway's loop.
// The one exception asks for an active probe of a link, which is bounded by itself: POST with the header X-Sluice-Command, which no page of
// another site can send without being asked by the browser first, and this server does not agree.
// Own threads: one that accepts, kAdminThreads that answer. start(), port() and stop() may be called from any one thread at a time.
//
//     /                 dashboard            /livez           the process and its loop are alive; says nothing of peers
//     /metrics          Prometheus           /readyz          configuration, listeners, agents' socket, certificate; ?verbose
//     /api/v1/status    JSON, ?rounds=N      /api/v1/links    /api/v1/rounds    /api/v1/wan
//     POST /api/v1/wan/probe?peer=NAME       202, and the outcome appears in /api/v1/wan

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "gateway/metrics.h"
#include "gateway/status.h"

namespace sluice::gateway {

inline constexpr std::size_t kAdminThreads = 4;
inline constexpr std::size_t kAdminQueueMax = 64;  // connections that wait for a thread; more are closed at once

struct AdminOptions {
  std::string host = "127.0.0.1";                      // an IPv4 or IPv6 loopback address, or "localhost"
  std::uint16_t port = 0;                              // 0 = any free one
  std::chrono::milliseconds io_timeout{5'000};         // of one read or write
  std::chrono::milliseconds loop_silence_max{30'000};  // /livez fails when the last snapshot is older; 0 = never
  // Asked to probe the link to this site; any thread. Empty: not offered.
  std::function<void(const std::string& peer)> probe = nullptr;
};

class AdminServer {
 public:
  // Binds, listens and answers from then on. kListen when the address is not loopback or cannot be bound.
  // `board` and `metrics` are borrowed and outlive the server.
  static Result<std::unique_ptr<AdminServer>> start(AdminOptions options, const StatusBoard& board, const Metrics& metrics);
  ~AdminServer();  // stop()
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;

  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] std::string url() const;  // "http://127.0.0.1:7480/"
  void stop();                            // closes the listener and joins the threads; idempotent

 private:
  struct Impl;
  explicit AdminServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Whether an address stays on this machine: 127.0.0.0/8, ::1, "localhost".
bool is_loopback_host(const std::string& host);

}  // namespace sluice::gateway
