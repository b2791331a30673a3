#pragma once

// Accepts the site's agents (training processes) on a Unix socket and, if asked to, on TCP with mutual TLS. Transport only: what the
// messages mean is the engine's affair.
//
// Threads: as PeerLinks: everything on the thread that runs `loop`, callbacks too, never from inside a method, none after stop().
// Order: what is sent on one session arrives in the order of the send_* calls, control and frames alike, and is delivered so.
// The Unix socket has mode 0600 and takes only processes of the gateway's own user or root. On TCP the certificate must be of the same
// CA and carry the one URI spiffe://<domain>/agent/<anything>; sessions there are pinged and end after three silent intervals.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <asio/io_context.hpp>

#include "base/ids.h"
#include "base/result.h"
#include "gateway/frame_record.h"
#include "gateway/limits.h"
#include "gateway/tls_context.h"
#include "proto/agent.pb.h"

namespace sluice::gateway {

// One connection of an agent; never used twice in the life of the server.
using AgentSessionId = StrongId<struct AgentSessionIdTag, std::uint64_t>;

struct AgentServerConfig {
  std::filesystem::path socket;   // Unix socket; empty = none. A file left by a dead gateway is replaced, one of a live one is not
  std::string listen_host;        // TCP with TLS; empty = none
  std::uint16_t listen_port = 0;  // 0 = any free one, see port()
  std::string domain;             // SPIFFE trust domain, for TCP
  std::chrono::milliseconds heartbeat_interval{2'000};  // on TCP
  unsigned heartbeat_misses = 3;
  std::uint32_t handshakes_per_second = 50;
  std::uint32_t connections_unauthenticated = 64;
};

class AgentServer {
 public:
  struct Callbacks {
    std::function<void(AgentSessionId)> on_connected;
    std::function<void(AgentSessionId, const wire::AgentMessage&)> on_control;  // everything but heartbeats
    std::function<void(AgentSessionId, FrameRecord)> on_frame;
    std::function<void(AgentSessionId, std::string reason)> on_disconnected;      // not after close()
    std::function<void(std::string_view reason, std::string detail)> on_refused;  // labels as in PeerLinks, and "user"
    // The session's unsent bytes have fallen below a quarter of kAgentQueueBytesMax after having been above half of it.
    std::function<void(AgentSessionId)> on_drained;
  };

  // `tls` may be null when no TCP address is given.
  AgentServer(asio::io_context& loop, AgentServerConfig config, std::shared_ptr<const TlsContext> tls, Callbacks callbacks);
  ~AgentServer();

  // Fails with kListen when a socket cannot be bound, or when another live process serves the Unix socket. REQUIRES: called once.
  Status start();
  // Closes all sessions (what is queued is sent if it goes at once), removes the socket file, joins the thread.
  void stop();
  [[nodiscard]] std::uint16_t port() const;  // of TCP; 0 when there is none

  void set_tls(std::shared_ptr<const TlsContext> tls);

  // False when the session is gone. A session whose unsent bytes pass kAgentQueueBytesMax is ended.
  bool send_control(AgentSessionId session, const wire::AgentMessage& message);
  bool send_frame(AgentSessionId session, FrameRecord frame);
  // Sends what is queued, for at most kFarewellTimeout, then ends the session.
  void close(AgentSessionId session, std::string reason);
  // Nothing more is read from the session until it is resumed; what has been read already is still delivered.
  void pause_reading(AgentSessionId session, bool paused);
  // Bytes taken by send_* that the kernel has not.
  [[nodiscard]] std::size_t queued_bytes(AgentSessionId session) const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace sluice::gateway
