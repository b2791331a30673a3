#pragma once

// Sends and receives records over a Channel on one io thread. Base of the peers' and the agents' connections.
// Threads: everything on the thread of `context`, which others reach by post. Shared ownership: pending waits keep the object alive until
// close(). After close() no hook is called any more, except on_closed once.

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "gateway/internal/channel.h"
#include "gateway/internal/rate_limiter.h"
#include "gateway/internal/readiness.h"
#include "gateway/internal/record_parser.h"

namespace google::protobuf {
class MessageLite;
}

namespace sluice::gateway::internal {

struct OutgoingRecord {
  ByteVector head;   // record header, then a control message or an envelope
  SharedBytes body;  // frame bytes; null for control
  [[nodiscard]] std::size_t bytes() const { return head.size() + (body ? body->size() : 0); }
  [[nodiscard]] bool is_frame() const { return body != nullptr; }
};

// REQUIRES: the message is not larger than kControlBytesMax.
OutgoingRecord control_record(const google::protobuf::MessageLite& message);
OutgoingRecord frame_record(const FrameRecord& frame);

class RecordStream : public std::enable_shared_from_this<RecordStream> {
 public:
  virtual ~RecordStream() = default;
  RecordStream(const RecordStream&) = delete;
  RecordStream& operator=(const RecordStream&) = delete;

  // Begins to read and write.
  void open();
  void send(OutgoingRecord record);
  // Before everything that is not on its way yet: for small messages that must not wait for frames.
  void send_ahead(OutgoingRecord record);
  void pause_reading(bool paused);
  // From any thread: the loop has taken this many bytes of what was counted by deliver().
  void on_taken(std::size_t bytes);
  // Ends the connection at once.
  void close(Error reason);
  // Sends what is queued and the end mark, waits for the other side to close or for kFarewellTimeout, then closes. Input is thrown away.
  void finish(Error reason);
  // As a reset from the network would.
  void break_off();

  [[nodiscard]] bool is_closed() const { return is_closed_; }
  [[nodiscard]] asio::io_context& context() const { return context_; }

 protected:
  // `limiter` may be null; it is asked before frames are given to the channel.
  RecordStream(asio::io_context& context, std::unique_ptr<Channel> channel, bool takes_frames, std::shared_ptr<RateLimiter> limiter);

  virtual void on_open() {}
  virtual void on_record(ParsedRecord&& record) = 0;
  // Something has been read and the turn is over: the time to acknowledge.
  virtual void on_read_turn(TimePoint) {}
  // Records handed to the channel since the last call.
  virtual void on_written(std::size_t /*frames*/, std::size_t /*bytes*/) {}
  virtual void on_closed(const Error& reason) = 0;

  // Counts bytes handed to the loop; while more than `delivery_bytes_max` of them wait there, nothing is read.
  void deliver(std::size_t bytes);
  void set_delivery_bytes_max(std::size_t bytes) { delivery_bytes_max_ = bytes; }
  [[nodiscard]] bool is_reading_paused() const { return reading_paused_ || delivery_paused_.load(); }
  [[nodiscard]] bool is_finishing() const { return is_finishing_; }
  // Bytes of records that the channel does not have yet.
  [[nodiscard]] std::size_t unsent_bytes() const { return queue_bytes_; }
  // Null after close().
  [[nodiscard]] const Channel* channel() const { return channel_.get(); }

 private:
  void read_turn();
  bool read_some(TimePoint now, std::size_t& budget);
  void wait_readable();
  void write_turn();
  bool fill_channel(std::size_t budget);
  void append_piece();
  void advance(std::size_t bytes);
  void after_write(IoStep step);
  [[nodiscard]] std::size_t write_budget();
  void close_on_read(IoStep step);
  void resume_later();

  asio::io_context& context_;
  std::unique_ptr<Channel> channel_;
  std::shared_ptr<RateLimiter> limiter_;
  std::optional<Readiness> readiness_;
  asio::steady_timer timer_;  // rate limit
  asio::steady_timer finish_timer_;
  RecordParser parser_;
  std::deque<OutgoingRecord> queue_;
  std::size_t front_sent_ = 0;  // bytes of queue_.front() that the channel has
  std::size_t queue_bytes_ = 0;
  std::size_t frames_written_ = 0;  // not yet told to on_written
  std::size_t bytes_written_ = 0;
  Error finish_reason_;
  bool is_open_ = false;
  bool is_closed_ = false;
  bool is_finishing_ = false;
  bool end_appended_ = false;
  bool reading_paused_ = false;  // by request
  std::size_t delivery_bytes_max_ = 0;
  std::atomic<std::size_t> delivering_bytes_{0};
  std::atomic<bool> delivery_paused_{false};
  bool read_waits_ = false;  // a wait or a posted turn is pending
  bool write_waits_ = false;
  bool limit_waits_ = false;  // for the rate limit; control messages still go
};

}  // namespace sluice::gateway::internal
