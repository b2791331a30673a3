#pragma once

// One established connection of a link: control (stream 0) or bulk (1..k). On its io thread it answers heartbeats, acknowledges frames,
// and finds the link silent; everything else goes to the loop through PeerStreamEvents.
// Threads: methods on the thread of `context` unless they say otherwise. Events are called there too; their receiver posts to the loop.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include <asio/steady_timer.hpp>

#include "gateway/internal/link_meter.h"
#include "gateway/internal/record_stream.h"
#include "proto/peer.pb.h"

namespace sluice::gateway::internal {

// Shared by the connections of one link: when anything was last heard from the peer, in ticks of Clock. Any thread.
struct LinkLife {
  std::atomic<Duration::rep> heard_at{Clock::now().time_since_epoch().count()};

  void hear(TimePoint now) { heard_at.store(now.time_since_epoch().count(), std::memory_order_relaxed); }
  [[nodiscard]] Duration silence(TimePoint now) const {
    return now.time_since_epoch() - Duration(heard_at.load(std::memory_order_relaxed));
  }
};

struct PeerStreamEvents {
  std::function<void(wire::PeerMessage)> control;
  std::function<void(FrameRecord)> frame;
  std::function<void(std::size_t frames)> written;        // more frames that the channel has
  std::function<void(std::uint64_t count)> acknowledged;  // frames, since the connection began
  std::function<void(std::chrono::microseconds)> rtt;
  std::function<void(const StreamSample&)> sampled;  // answers post_sample
  std::function<void(const Error&)> closed;  // the last event
};

struct PeerStreamConfig {
  unsigned index = 0;
  std::chrono::milliseconds heartbeat_interval{1'000};
  std::chrono::milliseconds silence_max{3'000};
  std::size_t delivery_bytes_max = 0;
  std::shared_ptr<LinkLife> life;
  std::shared_ptr<RateLimiter> limiter;  // may be null
};

class PeerStream final : public RecordStream {
 public:
  PeerStream(asio::io_context& context, std::unique_ptr<Channel> channel, PeerStreamConfig config, PeerStreamEvents events);

  // From any thread: the work is posted.
  void post_send(OutgoingRecord record);
  void post_frame(FrameRecord frame);
  void post_finish(Error reason, std::optional<wire::PeerMessage> goodbye);
  void post_close(Error reason);
  void post_break_off();
  void post_sample(bool is_for_report);

 private:
  void on_open() override;
  void on_record(ParsedRecord&& record) override;
  void on_read_turn(TimePoint now) override;
  void on_written(std::size_t frames, std::size_t bytes) override;
  void on_closed(const Error& reason) override;

  void on_control(wire::PeerMessage&& message);
  void on_heartbeat(const wire::Heartbeat& heartbeat);
  void beat();
  [[nodiscard]] bool is_control() const { return config_.index == 0; }

  PeerStreamConfig config_;
  PeerStreamEvents events_;
  asio::steady_timer heartbeat_timer_;
  std::uint64_t heartbeat_sequence_ = 0;
  TimePoint beat_due_at_;
  std::uint64_t frames_received_ = 0;
  std::uint64_t frames_acknowledged_ = 0;
  std::uint64_t peer_acknowledged_ = 0;
};

}  // namespace sluice::gateway::internal
