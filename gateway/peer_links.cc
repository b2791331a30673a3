#include "gateway/peer_links.h"

#include <map>
#include <mutex>
#include <thread>

#include <fmt/format.h>
#include <asio/post.hpp>

#include "base/assert.h"
#include "base/log.h"
#include "gateway/internal/farewell.h"
#include "gateway/internal/greeting.h"
#include "gateway/internal/listener.h"
#include "gateway/internal/peer_link.h"
#include "gateway/internal/sockets.h"

namespace sluice::gateway {

using internal::Listener;
using internal::OpenedConnection;
using internal::OpeningFailure;
using internal::OpeningPlan;
using internal::PeerLink;

class PeerLinks::Impl : public std::enable_shared_from_this<PeerLinks::Impl> {
 public:
  Impl(asio::io_context& loop, PeerLinksConfig config, std::shared_ptr<const TlsContext> tls, Callbacks callbacks)
      : shared_(loop, std::move(config), std::move(tls), std::move(callbacks)), thread_(std::this_thread::get_id()) {
    accept_tls_ = shared_.tls;
    for (const PeerEndpoint& peer : shared_.config.peers) {
      SLUICE_ASSERT(peer.site != shared_.config.self, "site {} is its own peer", peer.site);
      const bool is_new = links_.emplace(peer.site, std::make_shared<PeerLink>(shared_, peer)).second;
      SLUICE_ASSERT(is_new, "site {} twice", peer.site);
    }
  }

  Status start();
  void stop();
  [[nodiscard]] std::uint16_t listening_port() const { return port_; }
  void set_tls(std::shared_ptr<const TlsContext> tls);

  [[nodiscard]] PeerLink& link(SiteId peer) const {
    SLUICE_ASSERT(std::this_thread::get_id() == thread_, "called off the loop's thread");
    const auto found = links_.find(peer);
    SLUICE_ASSERT(found != links_.end(), "site {} is no peer", peer);
    return *found->second;
  }

 private:
  OpeningPlan accept_plan();
  void on_opened(OpenedConnection opened);
  void on_failed(const OpeningFailure& failure);
  [[nodiscard]] std::shared_ptr<PeerLink> find_by_uri(const std::string& uri) const;

  internal::LinkContext shared_;
  std::thread::id thread_;
  std::map<SiteId, std::shared_ptr<PeerLink>> links_;
  std::shared_ptr<Listener> listener_;
  std::mutex accept_tls_mutex_;  // the listener reads it on its thread
  std::shared_ptr<const TlsContext> accept_tls_;
  std::uint16_t port_ = 0;
  bool is_started_ = false;
  bool is_stopped_ = false;
};

Status PeerLinks::Impl::start() {
  SLUICE_ASSERT(!is_started_);
  is_started_ = true;
  thread_ = std::this_thread::get_id();
  std::string& congestion = shared_.config.congestion;
  if (!congestion.empty() && !internal::has_congestion_control(congestion)) {
    log_warning("link", "the kernel has no congestion control `{}` (modprobe tcp_{}): bulk connections use `{}`, its default", congestion,
                congestion, internal::default_congestion_control());
    congestion.clear();
  }
  const PeerLinksConfig& config = shared_.config;
  SLUICE_TRY(internal::UniqueFd socket, internal::listen_tcp(config.listen_host, config.listen_port));
  port_ = internal::local_port(socket.get());
  internal::ListenerLimits limits;
  limits.connections_unauthenticated = config.connections_unauthenticated;
  limits.connections_per_address = kUnauthenticatedPerAddressMax;
  limits.handshakes_per_second = config.handshakes_per_second;
  const std::weak_ptr<Impl> weak = weak_from_this();
  asio::io_context& loop = shared_.loop;
  Listener::Callbacks callbacks;
  // The listener is stopped, and its thread joined, before this object goes: it may use `this`.
  callbacks.make_plan = [this] { return accept_plan(); };
  callbacks.opened = [weak, &loop](OpenedConnection opened) {
    asio::post(loop, [weak, opened = std::move(opened)]() mutable {
      const auto self = weak.lock();
      if (self && !self->is_stopped_) self->on_opened(std::move(opened));
    });
  };
  callbacks.failed = [weak, &loop](OpeningFailure failure) {
    asio::post(loop, [weak, failure = std::move(failure)] {
      const auto self = weak.lock();
      if (self && !self->is_stopped_) self->on_failed(failure);
    });
  };
  listener_ = std::make_shared<Listener>(shared_.io.front(), std::move(socket), limits, std::move(callbacks));
  asio::post(shared_.io.front(), [listener = listener_] { listener->start(); });
  log_info("link", "{} listens on {}:{}", config.self_name, config.listen_host, port_);
  for (const auto& [site, link] : links_) link->start();
  return {};
}

void PeerLinks::Impl::stop() {
  if (is_stopped_) return;
  is_stopped_ = true;
  if (listener_) asio::post(shared_.io.front(), [listener = listener_] { listener->stop(); });
  for (const auto& [site, link] : links_) link->stop();
  shared_.streams->wait_for_none(kFarewellTimeout + std::chrono::milliseconds(500));
  shared_.io.stop();
}

void PeerLinks::Impl::set_tls(std::shared_ptr<const TlsContext> tls) {
  const std::lock_guard lock(accept_tls_mutex_);
  accept_tls_ = tls;
  shared_.tls = std::move(tls);
}

std::shared_ptr<PeerLink> PeerLinks::Impl::find_by_uri(const std::string& uri) const {
  for (const auto& [site, link] : links_) {
    if (uri == site_uri(shared_.config.domain, link->peer().name)) return link;
  }
  return nullptr;
}

// On the listener's thread: reads only what never changes, and the TLS context under its lock.
OpeningPlan PeerLinks::Impl::accept_plan() {
  OpeningPlan plan;
  plan.role = TlsRole::kServer;
  {
    const std::lock_guard lock(accept_tls_mutex_);
    plan.tls = accept_tls_;
  }
  plan.check_identity = [this](const PeerIdentity& identity) -> Status {
    if (find_by_uri(identity.uri)) return {};
    return fail(ErrorCode::kTlsIdentity, "check identity", fmt::format("the certificate names {}, no peer of this site", identity.uri));
  };
  const PeerLinksConfig& config = shared_.config;
  plan.tcp.user_timeout = config.heartbeat_interval * config.heartbeat_misses;
  plan.tcp.congestion = config.congestion;
  plan.tcp.buffer_bytes = config.socket_buffer_bytes;
  plan.tcp.not_sent_bytes = kNotSentBytes;
  plan.tcp.pacing_bytes = static_cast<std::uint64_t>(config.rate_limit.value / 8.0);
  return plan;
}

void PeerLinks::Impl::on_failed(const OpeningFailure& failure) {
  if (!failure.label.empty()) return shared_.refuse(failure.label, failure.error, failure.remote);
  log_debug("link", "connection from {} came to nothing: {}", failure.remote, failure.error.to_string());
}

void PeerLinks::Impl::on_opened(OpenedConnection opened) {
  const auto link = find_by_uri(opened.identity.uri);
  SLUICE_ASSERT(link != nullptr, "{} has passed check_identity", opened.identity.uri);
  const std::string& name = link->peer().name;
  const std::string remote = fmt::format("{} ({})", name, opened.remote);
  asio::io_context& front = shared_.io.front();
  const auto hand_back = [&](ErrorCode code, const std::string& text) {
    asio::post(front, [&front, channel = std::move(opened.channel), goodbye = internal::make_goodbye(code, text)]() mutable {
      internal::Farewell::say(front, std::move(channel), goodbye);
    });
  };
  if (opened.greeting->has_goodbye()) {
    const auto refusal = internal::explain_goodbye(opened.greeting->goodbye(), shared_.config, name);
    return shared_.refuse(refusal.label.empty() ? "protocol" : refusal.label, Error{refusal.code, "accept", refusal.detail}, remote);
  }
  if (const auto refusal = internal::check_hello(opened.greeting->hello(), shared_.config, name)) {
    shared_.refuse(refusal->label, Error{refusal->code, "accept", refusal->detail}, remote);
    return hand_back(refusal->code, refusal->goodbye);
  }
  link->accept(std::move(opened));
}

PeerLinks::PeerLinks(asio::io_context& loop, PeerLinksConfig config, std::shared_ptr<const TlsContext> tls, Callbacks callbacks)
    : impl_(std::make_shared<Impl>(loop, std::move(config), std::move(tls), std::move(callbacks))) {}
PeerLinks::~PeerLinks() { stop(); }

Status PeerLinks::start() { return impl_->start(); }
void PeerLinks::stop() { impl_->stop(); }
std::uint16_t PeerLinks::listening_port() const { return impl_->listening_port(); }
void PeerLinks::set_tls(std::shared_ptr<const TlsContext> tls) { impl_->set_tls(std::move(tls)); }
bool PeerLinks::send_control(SiteId peer, const wire::PeerMessage& message) { return impl_->link(peer).send_control(message); }
bool PeerLinks::send_frame(SiteId peer, FrameRecord frame) { return impl_->link(peer).send_frame(std::move(frame)); }
std::size_t PeerLinks::discard_frames(SiteId peer, const std::function<bool(const wire::FrameEnvelope&)>& is_stale) {
  return impl_->link(peer).discard(is_stale);
}
std::size_t PeerLinks::queued_bytes(SiteId peer) const { return impl_->link(peer).queued_bytes(); }
bool PeerLinks::is_up(SiteId peer) const { return impl_->link(peer).is_up(); }
topology::LinkEstimate PeerLinks::estimate(SiteId peer) const { return impl_->link(peer).estimate(); }
void PeerLinks::set_probing(SiteId peer, bool is_probing) { impl_->link(peer).set_probing(is_probing); }
LinkStats PeerLinks::stats(SiteId peer) const { return impl_->link(peer).stats(); }
void PeerLinks::break_stream(SiteId peer, unsigned stream_index) { impl_->link(peer).break_stream(stream_index); }

}  // namespace sluice::gateway
