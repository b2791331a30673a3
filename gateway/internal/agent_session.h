#pragma once

// One connection of a site agent, on its io thread. Everything but heartbeats goes to the loop through AgentSessionEvents.
// Threads: methods on the thread of `context` unless they say otherwise. Events are called there too; their receiver posts to the loop.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include <asio/steady_timer.hpp>

#include "gateway/internal/record_stream.h"
#include "proto/agent.pb.h"

namespace sluice::gateway::internal {

struct AgentSessionEvents {
  std::function<void(wire::AgentMessage)> control;
  std::function<void(FrameRecord)> frame;
  std::function<void(std::size_t bytes)> written;  // of records handed to the channel
  std::function<void(const Error&)> closed;        // the last event
};

struct AgentSessionConfig {
  std::chrono::milliseconds heartbeat_interval{0};  // 0 = none: a Unix socket tells by itself when its other end has gone
  std::chrono::milliseconds silence_max{0};
};

class AgentSession final : public RecordStream {
 public:
  AgentSession(asio::io_context& context, std::unique_ptr<Channel> channel, AgentSessionConfig config, AgentSessionEvents events);

  // All from any thread: the work is posted, in order.
  void post_open();
  void post_send(OutgoingRecord record);
  void post_finish(Error reason);
  void post_close(Error reason);
  void post_pause(bool paused);

 private:
  void on_open() override;
  void on_record(ParsedRecord&& record) override;
  void on_read_turn(TimePoint now) override { heard_at_ = now; }
  void on_written(std::size_t frames, std::size_t bytes) override;
  void on_closed(const Error& reason) override;

  void beat();

  AgentSessionConfig config_;
  AgentSessionEvents events_;
  asio::steady_timer heartbeat_timer_;
  std::uint64_t heartbeat_sequence_ = 0;
  TimePoint heard_at_;
  TimePoint beat_due_at_;
};

}  // namespace sluice::gateway::internal
