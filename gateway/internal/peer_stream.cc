#include "gateway/internal/peer_stream.h"

#include <algorithm>

#include <fmt/format.h>
#include <asio/post.hpp>

#include "gateway/limits.h"

namespace sluice::gateway::internal {
namespace {

std::uint64_t to_us(TimePoint time) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count());
}

}  // namespace

PeerStream::PeerStream(asio::io_context& context, std::unique_ptr<Channel> channel, PeerStreamConfig config, PeerStreamEvents events)
    : RecordStream(context, std::move(channel), config.index != 0, config.limiter),
      config_(std::move(config)),
      events_(std::move(events)),
      heartbeat_timer_(context) {
  set_delivery_bytes_max(config_.delivery_bytes_max);
}

void PeerStream::post_send(OutgoingRecord record) {
  asio::post(context(), [self = shared_from_this(), this, record = std::move(record)]() mutable {
    if (is_control() && unsent_bytes() > kControlQueueBytesMax) {
      return close(Error{ErrorCode::kQueueFull, "send control message", "the peer takes nothing"});
    }
    send(std::move(record));
  });
}

void PeerStream::post_frame(FrameRecord frame) {
  asio::post(context(), [self = shared_from_this(), this, frame = std::move(frame)] { send(frame_record(frame)); });
}

void PeerStream::post_finish(Error reason, std::optional<wire::PeerMessage> goodbye) {
  asio::post(context(), [self = shared_from_this(), this, reason = std::move(reason), goodbye = std::move(goodbye)] {
    if (goodbye) send(control_record(*goodbye));
    finish(reason);
  });
}

void PeerStream::post_close(Error reason) {
  asio::post(context(), [self = shared_from_this(), this, reason = std::move(reason)] { close(reason); });
}

void PeerStream::post_break_off() {
  asio::post(context(), [self = shared_from_this(), this] { break_off(); });
}

void PeerStream::post_sample(bool is_for_report) {
  asio::post(context(), [self = shared_from_this(), this, is_for_report] {
    if (is_closed()) return;
    const auto tcp = read_tcp_sample(channel()->fd());
    const TcpSample kernel = tcp.value_or(TcpSample{});
    events_.sampled({kernel, unsent_bytes() + channel()->unsent() + kernel.unsent_bytes, Clock::now(), is_for_report});
  });
}

void PeerStream::on_open() {
  if (!is_control()) return;
  beat_due_at_ = Clock::now();
  beat();
}

// Runs once each interval on the control connection.
void PeerStream::beat() {
  if (is_closed() || is_finishing()) return;
  const TimePoint now = Clock::now();
  // When this very process was held up (stopped, swapped, starved), what the peer sent lies unread in the socket: look there first.
  const bool was_held_up = now - beat_due_at_ > config_.heartbeat_interval;
  const Duration silence = config_.life->silence(now);
  if (!was_held_up && silence > config_.silence_max) {
    return close(
        Error{ErrorCode::kLinkSilent, "heartbeat", fmt::format("silent for {:.1f} s", std::chrono::duration<double>(silence).count())});
  }
  wire::PeerMessage message;
  message.mutable_heartbeat()->set_sequence(++heartbeat_sequence_);
  message.mutable_heartbeat()->set_sent_us(to_us(now));
  send(control_record(message));
  if (is_closed()) return;
  const Duration until_silent = std::max<Duration>(config_.silence_max - silence, std::chrono::milliseconds(1));
  beat_due_at_ = now + std::min<Duration>(config_.heartbeat_interval, until_silent);
  heartbeat_timer_.expires_at(beat_due_at_);
  heartbeat_timer_.async_wait([self = shared_from_this(), this](const asio::error_code& error) {
    if (!error) beat();
  });
}

void PeerStream::on_heartbeat(const wire::Heartbeat& heartbeat) {
  if (!heartbeat.is_reply()) {
    wire::PeerMessage reply;
    *reply.mutable_heartbeat() = heartbeat;
    reply.mutable_heartbeat()->set_is_reply(true);
    return send(control_record(reply));
  }
  const std::uint64_t now_us = to_us(Clock::now());
  if (heartbeat.sent_us() > now_us || heartbeat.sequence() > heartbeat_sequence_) return;  // not an echo of ours
  events_.rtt(std::chrono::microseconds(now_us - heartbeat.sent_us()));
}

void PeerStream::on_record(ParsedRecord&& record) {
  if (record.type == wire::RecordType::kFrame) {
    ++frames_received_;
    FrameRecord frame{record.envelope, std::make_shared<const ByteVector>(std::move(record.frame))};
    deliver(frame.bytes());
    return events_.frame(std::move(frame));
  }
  wire::PeerMessage message;
  if (!message.ParseFromArray(record.control.data(), static_cast<int>(record.control.size()))) {
    return close(Error{ErrorCode::kLinkProtocol, "read control message", "it does not parse"});
  }
  on_control(std::move(message));
}

void PeerStream::on_control(wire::PeerMessage&& message) {
  const auto refuse = [this](const char* what) { close(Error{ErrorCode::kLinkProtocol, "read control message", what}); };
  switch (message.kind_case()) {
    case wire::PeerMessage::kHello:
      return refuse("a second hello");
    case wire::PeerMessage::kGoodbye: {
      const auto number = message.goodbye().error_code();
      const auto code = number == 0 || number > 999 ? ErrorCode::kLinkClosed : static_cast<ErrorCode>(number);
      // The sender's words: shown, but not at any length.
      return close(Error{code, "exchange data", "the peer says goodbye: " + message.goodbye().detail().substr(0, 512)});
    }
    case wire::PeerMessage::kFrameAck:
      if (is_control() || message.frame_ack().count() < peer_acknowledged_) return refuse("an acknowledgement out of place");
      peer_acknowledged_ = message.frame_ack().count();
      return events_.acknowledged(peer_acknowledged_);
    case wire::PeerMessage::kHeartbeat:
      if (!is_control()) return refuse("a heartbeat on a bulk connection");
      return on_heartbeat(message.heartbeat());
    case wire::PeerMessage::KIND_NOT_SET:
      return;  // a kind that a newer version knows
    default:
      if (!is_control()) return refuse("a control message on a bulk connection");
      deliver(message.ByteSizeLong());
      return events_.control(std::move(message));
  }
}

void PeerStream::on_read_turn(TimePoint now) {
  config_.life->hear(now);
  if (frames_acknowledged_ == frames_received_) return;
  frames_acknowledged_ = frames_received_;
  wire::PeerMessage message;
  message.mutable_frame_ack()->set_count(frames_acknowledged_);
  send_ahead(control_record(message));
}

void PeerStream::on_written(std::size_t frames, std::size_t /*bytes*/) {
  if (frames > 0) events_.written(frames);
}

void PeerStream::on_closed(const Error& reason) {
  heartbeat_timer_.cancel();
  const PeerStreamEvents events = std::move(events_);
  events_ = PeerStreamEvents{};
  events.closed(reason);
}

}  // namespace sluice::gateway::internal
