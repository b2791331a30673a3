#include "gateway/agent_server.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <asio/post.hpp>

#include "base/assert.h"
#include "base/log.h"
#include "gateway/internal/accept_loop.h"
#include "gateway/internal/agent_session.h"
#include "gateway/internal/disk_file.h"
#include "gateway/internal/io_threads.h"
#include "gateway/internal/line_limiter.h"
#include "gateway/internal/listener.h"
#include "gateway/internal/sockets.h"
#include "gateway/internal/stream_count.h"

namespace sluice::gateway {

using internal::AgentSession;
using internal::OpenedConnection;
using internal::OpeningFailure;
using internal::OutgoingRecord;

class AgentServer::Impl : public std::enable_shared_from_this<AgentServer::Impl> {
 public:
  Impl(asio::io_context& loop, AgentServerConfig config, std::shared_ptr<const TlsContext> tls, Callbacks callbacks)
      : loop_(loop),
        config_(std::move(config)),
        callbacks_(std::move(callbacks)),
        io_("sluice-agent", 2),
        thread_(std::this_thread::get_id()),
        tls_(std::move(tls)) {}

  Status start();
  void stop();
  [[nodiscard]] std::uint16_t port() const { return port_; }
  void set_tls(std::shared_ptr<const TlsContext> tls);
  bool send(AgentSessionId id, OutgoingRecord record);
  void close(AgentSessionId id, std::string reason);
  void pause_reading(AgentSessionId id, bool paused);
  [[nodiscard]] std::size_t queued_bytes(AgentSessionId id) const;

 private:
  struct Session {
    std::shared_ptr<AgentSession> stream;
    std::string remote;
    std::size_t queued_bytes = 0;
    bool wants_drained = false;
  };

  Status start_unix();
  Status start_tcp();
  internal::OpeningPlan accept_plan();
  void on_unix_connection(internal::UniqueFd fd);
  void on_failed(const OpeningFailure& failure);
  void refuse(const std::string& label, const Error& error, const std::string& remote);
  void add_session(std::unique_ptr<internal::Channel> channel, const std::string& remote, bool is_tcp);
  internal::AgentSessionEvents make_events(AgentSessionId id);
  void on_written(AgentSessionId id, std::size_t bytes);
  void on_closed(AgentSessionId id, const Error& reason);
  // Posts to the loop from any thread; nothing runs there after stop().
  template <typename Action>
  void post_to_loop(Action action);

  asio::io_context& loop_;
  AgentServerConfig config_;
  Callbacks callbacks_;
  internal::IoThreads io_;
  std::thread::id thread_;
  std::shared_ptr<internal::StreamCount> streams_ = std::make_shared<internal::StreamCount>();
  std::map<AgentSessionId, Session> sessions_;
  AgentSessionId last_id_;
  std::shared_ptr<internal::AcceptLoop> unix_accept_;
  std::shared_ptr<internal::Listener> listener_;
  std::mutex tls_mutex_;  // the listener reads it on its thread
  std::shared_ptr<const TlsContext> tls_;
  std::uint16_t port_ = 0;
  internal::LineLimiter refusals_;
  bool is_stopped_ = false;
};

template <typename Action>
void AgentServer::Impl::post_to_loop(Action action) {
  asio::post(loop_, [weak = weak_from_this(), action = std::move(action)]() mutable {
    const auto self = weak.lock();
    if (self && !self->is_stopped_) action(*self);
  });
}

Status AgentServer::Impl::start() {
  thread_ = std::this_thread::get_id();
  if (!config_.socket.empty()) SLUICE_CHECK_OK(start_unix());
  if (!config_.listen_host.empty()) SLUICE_CHECK_OK(start_tcp());
  return {};
}

Status AgentServer::Impl::start_unix() {
  // A folder that is made is its owner's only, as the socket is.
  if (config_.socket.has_parent_path()) SLUICE_CHECK_OK(make_directories(config_.socket.parent_path()));
  SLUICE_TRY(internal::UniqueFd socket, internal::listen_unix(config_.socket));
  unix_accept_ = std::make_shared<internal::AcceptLoop>(io_.front(), std::move(socket));
  // The threads are joined before this object goes: what runs on them may use `this`.
  asio::post(io_.front(),
             [this, accept = unix_accept_] { accept->start([this](internal::UniqueFd fd) { on_unix_connection(std::move(fd)); }); });
  log_info("agent", "listening on {}", config_.socket.string());
  return {};
}

Status AgentServer::Impl::start_tcp() {
  SLUICE_ASSERT(tls_ != nullptr, "TCP for agents needs TLS");
  SLUICE_TRY(internal::UniqueFd socket, internal::listen_tcp(config_.listen_host, config_.listen_port));
  port_ = internal::local_port(socket.get());
  internal::ListenerLimits limits;
  limits.connections_unauthenticated = config_.connections_unauthenticated;
  limits.connections_per_address = config_.connections_unauthenticated;  // a node has many ranks
  limits.handshakes_per_second = config_.handshakes_per_second;
  internal::Listener::Callbacks callbacks;
  callbacks.make_plan = [this] { return accept_plan(); };
  callbacks.opened = [this](OpenedConnection opened) {
    post_to_loop([opened = std::move(opened)](Impl& self) mutable {
      const std::string remote = fmt::format("{} ({})", opened.identity.uri, opened.remote);
      self.add_session(std::move(opened.channel), remote, true);
    });
  };
  callbacks.failed = [this](OpeningFailure failure) {
    post_to_loop([failure = std::move(failure)](Impl& self) { self.on_failed(failure); });
  };
  listener_ = std::make_shared<internal::Listener>(io_.front(), std::move(socket), limits, std::move(callbacks));
  asio::post(io_.front(), [listener = listener_] { listener->start(); });
  log_info("agent", "listening on {}:{}", config_.listen_host, port_);
  return {};
}

void AgentServer::Impl::stop() {
  if (is_stopped_) return;
  is_stopped_ = true;
  if (unix_accept_) asio::post(io_.front(), [accept = unix_accept_] { accept->stop(); });
  if (listener_) asio::post(io_.front(), [listener = listener_] { listener->stop(); });
  const Error reason{ErrorCode::kLinkClosed, "serve agent", "the gateway shuts down"};
  for (auto& [id, session] : sessions_) session.stream->post_finish(reason);
  streams_->wait_for_none(kFarewellTimeout + std::chrono::milliseconds(500));
  io_.stop();
  sessions_.clear();
  if (unix_accept_) ::unlink(config_.socket.c_str());
}

void AgentServer::Impl::set_tls(std::shared_ptr<const TlsContext> tls) {
  const std::lock_guard lock(tls_mutex_);
  tls_ = std::move(tls);
}

// On the listener's thread.
internal::OpeningPlan AgentServer::Impl::accept_plan() {
  internal::OpeningPlan plan;
  plan.role = TlsRole::kServer;
  plan.wants_greeting = false;
  {
    const std::lock_guard lock(tls_mutex_);
    plan.tls = tls_;
  }
  plan.check_identity = [this](const PeerIdentity& identity) -> Status {
    if (is_agent_uri(identity.uri, config_.domain)) return {};
    return fail(ErrorCode::kTlsIdentity, "check identity", fmt::format("the certificate names {}, no agent of this run", identity.uri));
  };
  plan.tcp.user_timeout = config_.heartbeat_interval * config_.heartbeat_misses;
  return plan;
}

// On the front thread.
void AgentServer::Impl::on_unix_connection(internal::UniqueFd fd) {
  const auto user = internal::remote_user(fd.get());
  if (!user || (*user != ::geteuid() && *user != 0)) {
    const std::string detail = user ? fmt::format("a process of user {}", *user) : user.error().detail;
    return post_to_loop([detail](Impl& self) { self.refuse("user", Error{ErrorCode::kTlsIdentity, "accept", detail}, "unix"); });
  }
  auto channel = std::make_unique<internal::PlainChannel>(std::move(fd));
  post_to_loop([channel = std::move(channel)](Impl& self) mutable { self.add_session(std::move(channel), "unix", false); });
}

void AgentServer::Impl::on_failed(const OpeningFailure& failure) {
  if (!failure.label.empty()) return refuse(failure.label, failure.error, failure.remote);
  log_debug("agent", "connection from {} came to nothing: {}", failure.remote, failure.error.to_string());
}

void AgentServer::Impl::refuse(const std::string& label, const Error& error, const std::string& remote) {
  if (const auto unsaid = refusals_.admit(label, Clock::now())) {
    const std::string more = *unsaid > 0 ? fmt::format(" (and {} more since the last line)", *unsaid) : "";
    log_warning("agent", "refused {} ({}): {}{}", remote, label, error.to_string(), more);
  }
  if (callbacks_.on_refused) callbacks_.on_refused(label, fmt::format("{}: {}", remote, error.detail));
}

void AgentServer::Impl::add_session(std::unique_ptr<internal::Channel> channel, const std::string& remote, bool is_tcp) {
  if (sessions_.size() >= kAgentSessionsMax) {
    return refuse("flood", Error{ErrorCode::kLimitExceeded, "accept", "too many agents"}, remote);
  }
  last_id_ = last_id_.next();
  const AgentSessionId id = last_id_;
  internal::AgentSessionConfig config;
  if (is_tcp) {
    config.heartbeat_interval = config_.heartbeat_interval;
    config.silence_max = config_.heartbeat_interval * config_.heartbeat_misses;
  }
  auto stream = std::make_shared<AgentSession>(io_.worker(id.value), std::move(channel), config, make_events(id));
  streams_->add();
  sessions_[id] = Session{stream, remote};
  if (callbacks_.on_connected) callbacks_.on_connected(id);
  stream->post_open();
}

// The functions run on the session's io thread: they touch nothing here, they only post.
internal::AgentSessionEvents AgentServer::Impl::make_events(AgentSessionId id) {
  internal::AgentSessionEvents events;
  events.control = [this, id](wire::AgentMessage message) {
    const std::size_t bytes = message.ByteSizeLong();
    post_to_loop([id, bytes, message = std::move(message)](Impl& self) {
      const auto found = self.sessions_.find(id);
      if (found == self.sessions_.end()) return;
      found->second.stream->on_taken(bytes);
      if (self.callbacks_.on_control) self.callbacks_.on_control(id, message);
    });
  };
  events.frame = [this, id](FrameRecord frame) {
    post_to_loop([id, frame = std::move(frame)](Impl& self) {
      const auto found = self.sessions_.find(id);
      if (found == self.sessions_.end()) return;
      found->second.stream->on_taken(frame.bytes());
      if (self.callbacks_.on_frame) self.callbacks_.on_frame(id, frame);
    });
  };
  events.written = [this, id](std::size_t bytes) { post_to_loop([id, bytes](Impl& self) { self.on_written(id, bytes); }); };
  events.closed = [this, id, streams = streams_](const Error& reason) {
    post_to_loop([id, reason](Impl& self) { self.on_closed(id, reason); });
    streams->remove();
  };
  return events;
}

void AgentServer::Impl::on_written(AgentSessionId id, std::size_t bytes) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  session.queued_bytes -= std::min(bytes, session.queued_bytes);  // heartbeats are written too, and never counted
  if (!session.wants_drained || session.queued_bytes > kAgentQueueBytesMax / 4) return;
  session.wants_drained = false;
  if (callbacks_.on_drained) callbacks_.on_drained(id);
}

void AgentServer::Impl::on_closed(AgentSessionId id, const Error& reason) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  log_info("agent", "{} has gone: {}", found->second.remote, reason.to_string());
  sessions_.erase(found);
  if (callbacks_.on_disconnected) callbacks_.on_disconnected(id, reason.to_string());
}

bool AgentServer::Impl::send(AgentSessionId id, OutgoingRecord record) {
  SLUICE_ASSERT(std::this_thread::get_id() == thread_, "called off the loop's thread");
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return false;
  Session& session = found->second;
  session.queued_bytes += record.bytes();
  session.wants_drained = session.wants_drained || session.queued_bytes > kAgentQueueBytesMax / 2;
  if (session.queued_bytes > kAgentQueueBytesMax) {
    session.stream->post_close(Error{ErrorCode::kQueueFull, "send to agent", "the agent takes data too slowly"});
    return false;
  }
  session.stream->post_send(std::move(record));
  return true;
}

void AgentServer::Impl::close(AgentSessionId id, std::string reason) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  log_info("agent", "closing {}: {}", found->second.remote, reason);
  found->second.stream->post_finish(Error{ErrorCode::kLinkClosed, "serve agent", std::move(reason)});
  sessions_.erase(found);
}

void AgentServer::Impl::pause_reading(AgentSessionId id, bool paused) {
  const auto found = sessions_.find(id);
  if (found != sessions_.end()) found->second.stream->post_pause(paused);
}

std::size_t AgentServer::Impl::queued_bytes(AgentSessionId id) const {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? 0 : found->second.queued_bytes;
}

AgentServer::AgentServer(asio::io_context& loop, AgentServerConfig config, std::shared_ptr<const TlsContext> tls, Callbacks callbacks)
    : impl_(std::make_shared<Impl>(loop, std::move(config), std::move(tls), std::move(callbacks))) {}
AgentServer::~AgentServer() { stop(); }

Status AgentServer::start() { return impl_->start(); }
void AgentServer::stop() { impl_->stop(); }
std::uint16_t AgentServer::port() const { return impl_->port(); }
void AgentServer::set_tls(std::shared_ptr<const TlsContext> tls) { impl_->set_tls(std::move(tls)); }
bool AgentServer::send_control(AgentSessionId session, const wire::AgentMessage& message) {
  return impl_->send(session, internal::control_record(message));
}
bool AgentServer::send_frame(AgentSessionId session, FrameRecord frame) { return impl_->send(session, internal::frame_record(frame)); }
void AgentServer::close(AgentSessionId session, std::string reason) { impl_->close(session, std::move(reason)); }
void AgentServer::pause_reading(AgentSessionId session, bool paused) { impl_->pause_reading(session, paused); }
std::size_t AgentServer::queued_bytes(AgentSessionId session) const { return impl_->queued_bytes(session); }

}  // namespace sluice::gateway
