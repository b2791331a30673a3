#include "gateway/internal/peer_link.h"

// A session is one control connection and the bulk connections opened while it lives. The dialler opens control first and bulk after the
// other side's hello on it, so that bulk connections of an old session cannot be taken for those of a new one. Losing control ends the
// session at both ends; losing a bulk connection only makes the dialler open that one again.

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <asio/post.hpp>

#include "base/assert.h"
#include "base/log.h"
#include "gateway/internal/farewell.h"
#include "gateway/internal/greeting.h"
#include "gateway/limits.h"

namespace sluice::gateway::internal {
namespace {

constexpr std::chrono::hours kExpiryCheck{1};

bool is_for_a_person(ErrorCode code) {
  return code == ErrorCode::kConfigMismatch || code == ErrorCode::kRunMismatch || code == ErrorCode::kTlsIdentity ||
         code == ErrorCode::kTlsHandshake || code == ErrorCode::kLinkReplaced;
}

}  // namespace

LinkContext::LinkContext(asio::io_context& gateway_loop, PeerLinksConfig links_config, std::shared_ptr<const TlsContext> tls_context,
                         PeerLinks::Callbacks links_callbacks)
    : loop(gateway_loop),
      config(std::move(links_config)),
      tls(std::move(tls_context)),
      callbacks(std::move(links_callbacks)),
      io("sluice-link", 1 + std::max(1U, config.io_threads)),
      limiter(config.rate_limit.value > 0.0 ? std::make_shared<RateLimiter>(config.rate_limit) : nullptr),
      random(config.boot_id) {}

void LinkContext::refuse(const std::string& label, const Error& error, const std::string& remote) {
  if (const auto unsaid = refusals.admit(label, Clock::now())) {
    const std::string more = *unsaid > 0 ? fmt::format(" (and {} more since the last line)", *unsaid) : "";
    log_warning("link", "refused {} ({}): {}{}", remote, label, error.to_string(), more);
  }
  if (callbacks.on_refused) callbacks.on_refused(label, fmt::format("{}: {}", remote, error.detail));
}

PeerLink::PeerLink(LinkContext& shared, PeerEndpoint peer)
    : shared_(shared),
      peer_(std::move(peer)),
      lanes_(shared.config.frame_queue_bytes),
      life_(std::make_shared<LinkLife>()),
      expiry_timer_(shared.loop),
      meter_timer_(shared.loop) {}

PeerLink::~PeerLink() = default;

void PeerLink::start() {
  if (dials()) dial(0);
}

void PeerLink::stop() {
  is_stopped_ = true;
  forget_dials();
  expiry_timer_.cancel();
  meter_timer_.cancel();
  const auto goodbye = make_goodbye(ErrorCode{0}, "shutting down");
  const Error reason{ErrorCode::kLinkClosed, "exchange data", "shut down"};
  for (auto& [index, connection] : bulk_) connection.stream->post_finish(reason, goodbye);
  if (control_.stream) control_.stream->post_finish(reason, goodbye);
}

// ---- dialling

void PeerLink::dial(unsigned index) {
  std::unique_ptr<Dial>& slot = dials_[index];
  if (!slot) slot = std::make_unique<Dial>(shared_.loop);
  if (slot->opening) return;
  const std::uint64_t attempt = ++slot->attempt;
  OpeningPlan plan;
  plan.role = TlsRole::kClient;
  plan.tls = shared_.tls;
  plan.hello = make_hello(shared_.config, index);
  plan.check_identity = [expected = site_uri(shared_.config.domain, peer_.name)](const PeerIdentity& identity) -> Status {
    if (identity.uri == expected) return {};
    return fail(ErrorCode::kTlsIdentity, "check identity", fmt::format("the certificate names {}, expected {}", identity.uri, expected));
  };
  plan.tcp.user_timeout = shared_.config.heartbeat_interval * shared_.config.heartbeat_misses;
  if (index != 0) {
    plan.tcp.congestion = shared_.config.congestion;
    plan.tcp.buffer_bytes = shared_.config.socket_buffer_bytes;
    plan.tcp.not_sent_bytes = kNotSentBytes;
    plan.tcp.pacing_bytes = static_cast<std::uint64_t>(shared_.config.rate_limit.value / 8.0);
  }
  Opening::Done done;
  const std::weak_ptr<PeerLink> weak = weak_from_this();
  asio::io_context& loop = shared_.loop;
  done.opened = [weak, &loop, index, attempt](OpenedConnection opened) {
    asio::post(loop, [weak, index, attempt, opened = std::move(opened)]() mutable {
      const auto self = weak.lock();
      if (!self || self->is_stopped_ || !self->dials_.contains(index) || self->dials_[index]->attempt != attempt) return;
      self->dials_[index]->opening.reset();
      self->on_dialled(index, std::move(opened));
    });
  };
  done.failed = [weak, &loop, index, attempt](OpeningFailure failure) {
    asio::post(loop, [weak, index, attempt, failure = std::move(failure)] {
      const auto self = weak.lock();
      if (!self || self->is_stopped_ || !self->dials_.contains(index) || self->dials_[index]->attempt != attempt) return;
      self->dials_[index]->opening.reset();
      self->on_dial_failed(index, failure);
    });
  };
  slot->opening = std::make_shared<Opening>(shared_.io.front(), std::move(plan), std::move(done));
  asio::post(shared_.io.front(), [opening = slot->opening, host = peer_.host, port = peer_.port] { opening->start(host, port); });
}

void PeerLink::dial_later(unsigned index, bool is_refused) {
  if (!dials() || is_stopped_) return;
  std::unique_ptr<Dial>& slot = dials_[index];
  if (!slot) slot = std::make_unique<Dial>(shared_.loop);
  slot->delay = std::clamp(2 * slot->delay, kReconnectDelayMin, kReconnectDelayMax);
  if (is_refused) slot->delay = kReconnectDelayRefused;
  // Half fixed, half random: two sites that lost each other at one moment do not come back at one moment.
  std::uniform_int_distribution<std::int64_t> jitter(slot->delay.count() / 2, slot->delay.count());
  slot->timer.expires_after(std::chrono::milliseconds(jitter(shared_.random)));
  slot->timer.async_wait([weak = weak_from_this(), index](const asio::error_code& error) {
    const auto self = weak.lock();
    if (error || !self || self->is_stopped_) return;
    if (index == 0 ? self->control_.stream == nullptr : self->control_.stream != nullptr && !self->bulk_.contains(index)) {
      self->dial(index);
    }
  });
}

void PeerLink::forget_dials() {
  for (auto& [index, dial] : dials_) {
    ++dial->attempt;
    dial->timer.cancel();
    if (dial->opening) asio::post(shared_.io.front(), [opening = dial->opening] { opening->cancel(); });
    dial->opening.reset();
  }
}

void PeerLink::on_dial_failed(unsigned index, const OpeningFailure& failure) {
  ++totals_.connect_failures;
  totals_.last_error = failure.error.to_string();
  if (!failure.label.empty()) {
    shared_.refuse(failure.label, failure.error, fmt::format("{} ({})", peer_.name, failure.remote));
  } else {
    log_info("link", "cannot reach {} at {}: {}", peer_.name, failure.remote, failure.error.to_string());
  }
  dial_later(index, is_for_a_person(failure.error.code));
}

void PeerLink::on_dialled(unsigned index, OpenedConnection opened) {
  const auto refused = [&](const GreetingRefusal& refusal) {
    ++totals_.connect_failures;
    const Error error{refusal.code, "connect", refusal.detail};
    totals_.last_error = error.to_string();
    if (!refusal.label.empty()) {
      shared_.refuse(refusal.label, error, fmt::format("{} ({})", peer_.name, opened.remote));
    } else {
      log_warning("link", "{}: {}", peer_.name, error.to_string());
    }
    if (!refusal.goodbye.empty()) hand_back(std::move(opened), refusal.code, refusal.goodbye);
    dial_later(index, is_for_a_person(refusal.code));
  };
  if (opened.greeting->has_goodbye()) return refused(explain_goodbye(opened.greeting->goodbye(), shared_.config, peer_.name));
  const wire::Hello hello = opened.greeting->hello();
  if (const auto refusal = check_hello(hello, shared_.config, peer_.name)) return refused(*refusal);
  if (index == 0) {
    session_boot_id_ = hello.boot_id();
    peer_interval_us_ = hello.heartbeat_interval_us();
    adopt(0, std::move(opened), std::nullopt);
    for (unsigned bulk = 1; bulk <= std::clamp(shared_.config.streams, 1U, kStreamsMax); ++bulk) dial(bulk);
    return;
  }
  if (!control_.stream) return;
  if (hello.boot_id() != session_boot_id_) {
    drop_session(Error{ErrorCode::kLinkClosed, "connect", "the peer's process is another one now"}, false);
    return dial_later(0, false);
  }
  adopt(index, std::move(opened), std::nullopt);
}

// ---- accepting

void PeerLink::accept(OpenedConnection opened) {
  const wire::Hello hello = opened.greeting->hello();
  const unsigned index = hello.stream_index();
  if (dials()) return hand_back(std::move(opened), ErrorCode::kLinkProtocol, "the site with the lower number dials");
  if (index == 0) {
    if (control_.stream) {
      const bool is_other = hello.boot_id() != session_boot_id_;
      drop_session(Error{ErrorCode::kLinkReplaced, "exchange data",
                         is_other ? "another process of this site has connected" : "replaced by a newer connection"},
                   is_other);
    }
    session_boot_id_ = hello.boot_id();
    peer_interval_us_ = hello.heartbeat_interval_us();
  } else if (!control_.stream || hello.boot_id() != session_boot_id_) {
    return hand_back(std::move(opened), ErrorCode::kLinkClosed, "no control connection of this process");
  } else if (const auto old = bulk_.find(index); old != bulk_.end()) {
    old->second.stream->post_close(Error{ErrorCode::kLinkReplaced, "exchange data", "replaced by a newer connection"});
    retire(index, old->second);
    lanes_.close_lane(index);
    bulk_.erase(old);
  }
  adopt(index, std::move(opened), make_hello(shared_.config, index));
}

void PeerLink::hand_back(OpenedConnection opened, ErrorCode code, const std::string& text) {
  asio::io_context& front = shared_.io.front();
  asio::post(front, [&front, channel = std::move(opened.channel), goodbye = make_goodbye(code, text)]() mutable {
    Farewell::say(front, std::move(channel), goodbye);
  });
}

// ---- connections

// The functions run on the connection's io thread: they touch nothing of the link, they only post to it.
PeerStreamEvents PeerLink::make_events(unsigned index, std::uint64_t id) {
  PeerStreamEvents events;
  const std::weak_ptr<PeerLink> weak = weak_from_this();
  asio::io_context& loop = shared_.loop;
  const auto to_loop = [weak, &loop](auto action) {
    asio::post(loop, [weak, action = std::move(action)] {
      const auto self = weak.lock();
      if (self && !self->is_stopped_) action(*self);
    });
  };
  events.control = [to_loop, id](wire::PeerMessage message) {
    const std::size_t bytes = message.ByteSizeLong();
    const auto kept = std::make_shared<wire::PeerMessage>(std::move(message));
    to_loop([id, bytes, kept](PeerLink& link) { link.on_control(id, bytes, kept); });
  };
  events.frame = [to_loop, index, id](FrameRecord frame) {
    to_loop([index, id, frame = std::move(frame)](PeerLink& link) { link.on_frame(index, id, frame); });
  };
  events.written = [to_loop, index, id](std::size_t frames) {
    to_loop([index, id, frames](PeerLink& link) { link.on_written(index, id, frames); });
  };
  events.acknowledged = [to_loop, index, id](std::uint64_t count) {
    to_loop([index, id, count](PeerLink& link) { link.on_acknowledged(index, id, count); });
  };
  events.rtt = [to_loop](std::chrono::microseconds rtt) { to_loop([rtt](PeerLink& link) { link.on_rtt(rtt); }); };
  events.sampled = [to_loop, index, id](const StreamSample& sample) {
    to_loop([index, id, sample](PeerLink& link) { link.on_sampled(index, id, sample); });
  };
  events.closed = [to_loop, index, id, streams = shared_.streams](const Error& reason) {
    to_loop([index, id, reason](PeerLink& link) { link.on_closed(index, id, reason); });
    streams->remove();
  };
  return events;
}

void PeerLink::adopt(unsigned index, OpenedConnection opened, std::optional<wire::PeerMessage> reply) {
  PeerStreamConfig config;
  config.index = index;
  config.heartbeat_interval =
      std::max(shared_.config.heartbeat_interval, std::chrono::milliseconds(std::min<std::uint64_t>(peer_interval_us_ / 1000, 60'000)));
  config.silence_max = config.heartbeat_interval * shared_.config.heartbeat_misses;
  config.delivery_bytes_max = kDeliveryBytesMax / (index == 0 ? 4 : std::max(1U, shared_.config.streams));
  if (index == 0) life_ = std::make_shared<LinkLife>();
  config.life = life_;
  config.limiter = index == 0 ? nullptr : shared_.limiter;
  Connection connection;
  connection.id = next_id_++;
  connection.adopted_at = Clock::now();
  connection.counters = opened.channel->counters();
  asio::io_context& context = index == 0 ? shared_.io.front() : shared_.io.worker(shared_.workers_given++);
  connection.stream = std::make_shared<PeerStream>(context, std::move(opened.channel), config, make_events(index, connection.id));
  shared_.streams->add();
  asio::post(context, [stream = connection.stream, reply = std::move(reply)] {
    if (reply) stream->send(control_record(*reply));
    stream->open();
  });
  if (index == 0) {
    control_ = connection;
    watch_expiry(opened.identity.not_after);
  } else {
    bulk_[index] = connection;
    lanes_.open_lane(index);
  }
  update_up();
}

// The certificate was good when the connection began; TLS does not look again.
void PeerLink::watch_expiry(std::chrono::system_clock::time_point not_after) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(not_after - std::chrono::system_clock::now());
  expiry_timer_.expires_after(std::clamp<std::chrono::milliseconds>(left, std::chrono::milliseconds(0), kExpiryCheck));
  expiry_timer_.async_wait([weak = weak_from_this(), not_after](const asio::error_code& error) {
    const auto self = weak.lock();
    if (error || !self || self->is_stopped_ || !self->control_.stream) return;
    if (std::chrono::system_clock::now() < not_after) return self->watch_expiry(not_after);
    self->drop_session(Error{ErrorCode::kTlsHandshake, "exchange data", "the peer's certificate has expired"}, true);
    self->dial_later(0, true);
  });
}

void PeerLink::retire(unsigned index, Connection& connection) {
  // What held for a while is dialled again at once, what flaps after growing delays.
  const auto dial = dials_.find(index);
  if (dial != dials_.end() && Clock::now() - connection.adopted_at > kReconnectDelayMax) dial->second->delay = std::chrono::milliseconds(0);
  totals_.sent_bytes += connection.counters->sent.load(std::memory_order_relaxed);
  totals_.received_bytes += connection.counters->received.load(std::memory_order_relaxed);
  meter_.on_stream_closed(connection.id);
  connection = Connection{};
}

// Ends all connections of the session; what they carried goes back to the queue.
void PeerLink::drop_session(const Error& reason, bool say_goodbye) {
  totals_.last_error = reason.to_string();
  forget_dials();
  for (auto& [index, connection] : bulk_) {
    connection.stream->post_close(reason);
    retire(index, connection);
    lanes_.close_lane(index);
  }
  bulk_.clear();
  if (control_.stream) {
    if (say_goodbye) {
      control_.stream->post_finish(reason, make_goodbye(reason.code, reason.detail));
    } else {
      control_.stream->post_close(reason);
    }
    retire(0, control_);
  }
  expiry_timer_.cancel();
  early_control_.clear();
  go_down(reason.detail);
}

void PeerLink::go_down(const std::string& reason) {
  if (!is_up_) return;
  is_up_ = false;
  totals_.up_since.reset();
  log_warning("link", "{} is down: {}", peer_.name, reason);
  if (shared_.callbacks.on_down) shared_.callbacks.on_down(peer_.site, reason);
}

void PeerLink::update_up() {
  if (is_up_ || !control_.stream || bulk_.empty()) return pump();
  is_up_ = true;
  ++totals_.links_up;
  totals_.up_since = Clock::now();
  const bool is_new_process = session_boot_id_ != known_boot_id_;
  // What waits was meant for the process before; before the first link nothing was sent to any.
  if (is_new_process && known_boot_id_ != 0) lanes_.clear();
  known_boot_id_ = session_boot_id_;
  log_info("link", "{} is up{}", peer_.name, is_new_process ? " (new process)" : "");
  if (shared_.callbacks.on_up) shared_.callbacks.on_up(peer_.site, is_new_process);
  deliver_early();
  pump();
}

void PeerLink::deliver_early() {
  std::deque<std::shared_ptr<wire::PeerMessage>> early;
  early.swap(early_control_);
  for (const auto& message : early) {
    if (shared_.callbacks.on_control) shared_.callbacks.on_control(peer_.site, *message);
  }
}

// ---- events of the connections

PeerLink::Connection* PeerLink::find(unsigned index, std::uint64_t id) {
  if (index == 0) return control_.id == id ? &control_ : nullptr;
  const auto found = bulk_.find(index);
  return found != bulk_.end() && found->second.id == id ? &found->second : nullptr;
}

void PeerLink::on_control(std::uint64_t id, std::size_t bytes, const std::shared_ptr<wire::PeerMessage>& message) {
  const Connection* connection = find(0, id);
  if (connection == nullptr) return;
  connection->stream->on_taken(bytes);
  if (message->has_goodput()) {
    const wire::Goodput& goodput = message->goodput();
    const auto elapsed = std::chrono::microseconds(std::min<std::uint64_t>(goodput.elapsed_us(), 60'000'000));
    meter_.on_report({elapsed, goodput.bytes()}, Clock::now());
    for (const auto& [index, bulk] : bulk_) bulk.stream->post_sample(true);
    return;
  }
  if (is_up_) {
    if (shared_.callbacks.on_control) shared_.callbacks.on_control(peer_.site, *message);
    return;
  }
  if (early_control_.size() >= kEarlyControlMessagesMax) {
    return connection->stream->post_close(Error{ErrorCode::kLinkProtocol, "read control message", "too many before the link is up"});
  }
  early_control_.push_back(message);
}

void PeerLink::on_frame(unsigned index, std::uint64_t id, const FrameRecord& frame) {
  // A frame of a connection that has ended meanwhile has been acknowledged to the peer, or will come again: taken in both cases.
  if (const Connection* connection = find(index, id)) connection->stream->on_taken(frame.bytes());
  ++totals_.frames_received;
  totals_.received_round_bytes += frame.round_bytes();
  wake_meter();
  if (shared_.callbacks.on_frame) shared_.callbacks.on_frame(peer_.site, frame);
}

void PeerLink::on_written(unsigned index, std::uint64_t id, std::size_t frames) {
  if (find(index, id) == nullptr) return;
  lanes_.on_written(index, frames);
  pump();
}

void PeerLink::on_acknowledged(unsigned index, std::uint64_t id, std::uint64_t count) {
  const Connection* connection = find(index, id);
  if (connection == nullptr) return;
  if (!lanes_.on_acknowledged(index, count)) {
    return connection->stream->post_close(Error{ErrorCode::kLinkProtocol, "read acknowledgement", "more than was sent"});
  }
  pump();
  if (wants_drained_ && lanes_.bytes() < lanes_.bytes_max() / 2) {
    wants_drained_ = false;
    if (shared_.callbacks.on_drained) shared_.callbacks.on_drained(peer_.site);
  }
}

void PeerLink::on_rtt(std::chrono::microseconds rtt) { meter_.on_rtt(rtt, Clock::now()); }

void PeerLink::on_sampled(unsigned index, std::uint64_t id, const StreamSample& sample) {
  if (find(index, id) != nullptr && meter_.on_sample(id, sample)) end_meter_turn();
}

void PeerLink::on_closed(unsigned index, std::uint64_t id, const Error& reason) {
  Connection* connection = find(index, id);
  if (connection == nullptr) return;
  if (index == 0) {
    drop_session(reason, false);
    return dial_later(0, is_for_a_person(reason.code));
  }
  log_info("link", "{}: bulk connection {} ended: {}", peer_.name, index, reason.to_string());
  totals_.last_error = reason.to_string();
  retire(index, *connection);
  bulk_.erase(index);
  lanes_.close_lane(index);
  if (bulk_.empty()) go_down(fmt::format("the last bulk connection ended: {}", reason.detail));
  dial_later(index, false);
  pump();
}

// ---- measuring

// While frames go or come, every kMeterInterval: what came is reported to the peer, what goes is looked at.
void PeerLink::wake_meter() {
  if (is_metering_ || is_stopped_) return;
  is_metering_ = true;
  meter_.wake();
  on_meter();
}

void PeerLink::end_meter_turn() {
  const auto report = meter_.end_turn(lanes_.waiting_bytes());
  if (!report || !is_up_) return;
  wire::PeerMessage message;
  message.mutable_goodput()->set_elapsed_us(
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(report->elapsed).count()));
  message.mutable_goodput()->set_bytes(report->bytes);
  send_control(message);
}

void PeerLink::on_meter() {
  const TimePoint now = Clock::now();
  std::vector<std::uint64_t> connections;
  for (const auto& [index, connection] : bulk_) connections.push_back(connection.id);
  if (meter_.begin_turn(connections)) {
    for (const auto& [index, connection] : bulk_) connection.stream->post_sample(false);
  }
  is_metering_ = lanes_.bytes() > 0 || (!meter_.is_quiet() && !bulk_.empty());
  if (!is_metering_) return open_more_streams();
  meter_timer_.expires_at(now + kMeterInterval);
  meter_timer_.async_wait([weak = weak_from_this()](const asio::error_code& error) {
    const auto self = weak.lock();
    if (!error && self && !self->is_stopped_) self->on_meter();
  });
}

// The send buffer of one connection bounds what it has under way; where the link has more, further connections are opened, and they stay.
void PeerLink::open_more_streams() {
  if (!dials() || !control_.stream || !is_up_) return;
  const topology::LinkEstimate estimate = meter_.estimate(Clock::now());
  if (!estimate.rate || !estimate.rtt) return;
  const double under_way = estimate.rate->p90 / 8.0 * std::chrono::duration<double>(estimate.rtt->min).count();
  const auto wanted = static_cast<unsigned>(std::min(std::ceil(under_way / kBytesUnderWayPerStream), double{kStreamsMax}));
  for (unsigned bulk = shared_.config.streams + 1; bulk <= wanted; ++bulk) {
    if (!bulk_.contains(bulk)) dial(bulk);
  }
}

// ---- sending

void PeerLink::pump() {
  while (auto assignment = lanes_.assign()) bulk_.at(assignment->lane).stream->post_frame(std::move(assignment->frame));
}

bool PeerLink::send_control(const wire::PeerMessage& message) {
  if (!is_up_) return false;
  control_.stream->post_send(control_record(message));
  return true;
}

bool PeerLink::send_frame(FrameRecord frame) {
  if (!lanes_.push(std::move(frame))) {
    wants_drained_ = true;
    return false;
  }
  wake_meter();
  pump();
  return true;
}

void PeerLink::break_stream(unsigned index) {
  if (const auto found = bulk_.find(index); found != bulk_.end()) found->second.stream->post_break_off();
}

LinkStats PeerLink::stats() const {
  LinkStats stats = totals_;
  stats.is_up = is_up_;
  stats.bulk_streams = static_cast<unsigned>(bulk_.size());
  const auto add = [&stats](const Connection& connection) {
    if (!connection.counters) return;
    stats.sent_bytes += connection.counters->sent.load(std::memory_order_relaxed);
    stats.received_bytes += connection.counters->received.load(std::memory_order_relaxed);
  };
  add(control_);
  for (const auto& [index, connection] : bulk_) add(connection);
  stats.frames_sent = lanes_.acknowledged();
  stats.sent_round_bytes = lanes_.acknowledged_round_bytes();
  stats.frames_resent = lanes_.resent();
  if (const auto rtt = meter_.estimate(Clock::now()).rtt) {
    stats.rtt_min = rtt->min;
    stats.rtt_p50 = rtt->p50;
  }
  return stats;
}

}  // namespace sluice::gateway::internal
