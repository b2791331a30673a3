#pragma once

// The first seconds of one connection, while nobody knows who is there: TCP connect or the wait for a first byte, TLS handshake, check of
// the certificate's URI, and the Hello of a peer gateway. Every phase has a deadline, and until the end the connection holds one 16 KiB
// read buffer, OpenSSL's own and at most one Hello.
// Threads: all on the thread of `context`. Keeps itself alive until it has called `done` exactly once, or cancel() was called.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>

#include "base/error.h"
#include "gateway/internal/channel.h"
#include "gateway/internal/readiness.h"
#include "gateway/internal/record_parser.h"
#include "gateway/internal/sockets.h"
#include "gateway/tls_context.h"
#include "proto/peer.pb.h"

namespace sluice::gateway::internal {

// A connection whose other side is known.
struct OpenedConnection {
  std::unique_ptr<TlsChannel> channel;
  PeerIdentity identity;
  std::string remote;                         // address and port
  std::optional<wire::PeerMessage> greeting;  // the first message, when one was asked for
};

struct OpeningFailure {
  std::string label;  // of a refusal by this side (PeerLinks::Callbacks::on_refused); empty when it was not this side that refused
  Error error;
  std::string remote;
};

struct OpeningPlan {
  TlsRole role = TlsRole::kServer;
  std::shared_ptr<const TlsContext> tls;
  std::function<Status(const PeerIdentity&)> check_identity;
  std::optional<wire::PeerMessage> hello;  // sent as soon as TLS is up
  bool wants_greeting = true;              // waits for the other side's first message
  TcpOptions tcp;
  std::function<bool()> admit_handshake;  // server: asked when the first byte is there; false = too many
};

class Opening : public std::enable_shared_from_this<Opening> {
 public:
  struct Done {
    std::function<void(OpenedConnection)> opened;
    std::function<void(OpeningFailure)> failed;
  };

  Opening(asio::io_context& context, OpeningPlan plan, Done done);

  // An accepted connection.
  void start(UniqueFd fd);
  // Connects to each address of the name in turn.
  void start(std::string host, std::uint16_t port);
  // Neither callback comes any more.
  void cancel();

 private:
  enum class Phase { kResolve, kConnect, kFirstByte, kHandshake, kGreeting, kDone };

  void enter(Phase phase);
  void connect_next();
  void on_connect_writable();
  void wait_first_byte();
  void begin_handshake();
  void step_handshake();
  void on_tls_up();
  void step_greeting();
  void wait_io(void (Opening::*next)());
  void on_deadline();
  void refuse(std::string label, ErrorCode code, std::string detail);
  void fail_with(std::string label, Error error);
  void fail_handshake();
  void succeed();

  asio::io_context& context_;
  OpeningPlan plan_;
  Done done_;
  Phase phase_ = Phase::kDone;
  asio::steady_timer deadline_;
  asio::ip::tcp::resolver resolver_;
  std::vector<asio::ip::tcp::endpoint> addresses_;  // still to try, the next one last
  std::string connect_error_;
  UniqueFd fd_;  // until the channel owns it
  std::unique_ptr<TlsChannel> channel_;
  std::optional<Readiness> readiness_;
  RecordParser parser_{wire::kHelloBytesMax, false};
  PeerIdentity identity_;
  std::optional<wire::PeerMessage> greeting_;
  std::string remote_;
};

}  // namespace sluice::gateway::internal
