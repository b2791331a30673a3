#include "gateway/internal/agent_session.h"

#include <utility>

#include <fmt/format.h>
#include <asio/post.hpp>

#include "gateway/limits.h"

namespace sluice::gateway::internal {

AgentSession::AgentSession(asio::io_context& context, std::unique_ptr<Channel> channel, AgentSessionConfig config,
                           AgentSessionEvents events)
    : RecordStream(context, std::move(channel), true, nullptr), config_(config), events_(std::move(events)), heartbeat_timer_(context) {
  set_delivery_bytes_max(kDeliveryBytesMax);
}

void AgentSession::post_open() {
  asio::post(context(), [self = shared_from_this(), this] { open(); });
}

void AgentSession::post_send(OutgoingRecord record) {
  asio::post(context(), [self = shared_from_this(), this, record = std::move(record)]() mutable { send(std::move(record)); });
}

void AgentSession::post_finish(Error reason) {
  asio::post(context(), [self = shared_from_this(), this, reason = std::move(reason)] { finish(reason); });
}

void AgentSession::post_close(Error reason) {
  asio::post(context(), [self = shared_from_this(), this, reason = std::move(reason)] { close(reason); });
}

void AgentSession::post_pause(bool paused) {
  asio::post(context(), [self = shared_from_this(), this, paused] {
    // Silence during the pause was this side's doing.
    if (!paused) heard_at_ = Clock::now();
    pause_reading(paused);
  });
}

void AgentSession::on_open() {
  heard_at_ = Clock::now();
  beat_due_at_ = heard_at_;
  if (config_.heartbeat_interval.count() > 0) beat();
}

void AgentSession::beat() {
  if (is_closed() || is_finishing()) return;
  const TimePoint now = Clock::now();
  const bool was_held_up = now - beat_due_at_ > config_.heartbeat_interval;
  if (!was_held_up && !is_reading_paused() && now - heard_at_ > config_.silence_max) {
    return close(Error{ErrorCode::kLinkSilent, "heartbeat",
                       fmt::format("silent for {:.1f} s", std::chrono::duration<double>(now - heard_at_).count())});
  }
  wire::AgentMessage message;
  message.mutable_heartbeat()->set_sequence(++heartbeat_sequence_);
  send_ahead(control_record(message));
  if (is_closed()) return;
  beat_due_at_ = now + config_.heartbeat_interval;
  heartbeat_timer_.expires_at(beat_due_at_);
  heartbeat_timer_.async_wait([self = shared_from_this(), this](const asio::error_code& error) {
    if (!error) beat();
  });
}

void AgentSession::on_record(ParsedRecord&& record) {
  if (record.type == wire::RecordType::kFrame) {
    FrameRecord frame{record.envelope, std::make_shared<const ByteVector>(std::move(record.frame))};
    deliver(frame.bytes());
    return events_.frame(std::move(frame));
  }
  wire::AgentMessage message;
  if (!message.ParseFromArray(record.control.data(), static_cast<int>(record.control.size()))) {
    return close(Error{ErrorCode::kLinkProtocol, "read agent message", "it does not parse"});
  }
  if (message.has_heartbeat()) {
    if (message.heartbeat().is_reply()) return;
    message.mutable_heartbeat()->set_is_reply(true);
    return send_ahead(control_record(message));
  }
  deliver(record.control.size());
  events_.control(std::move(message));
}

void AgentSession::on_written(std::size_t /*frames*/, std::size_t bytes) { events_.written(bytes); }

void AgentSession::on_closed(const Error& reason) {
  heartbeat_timer_.cancel();
  const AgentSessionEvents events = std::exchange(events_, AgentSessionEvents{});
  events.closed(reason);
}

}  // namespace sluice::gateway::internal
