#pragma once

// GatewayLink: keeps one connection to the gateway up, for ever. Owns the agent's only thread, which connects, says hello, reads records
// and turns them into events, and writes what others queue. After a loss it connects again, with growing pauses.
//
// Threads: start() and the destructor by the training thread; the rest by any. `deliver` and `on_problem` are called by the link's
// thread.
// Memory: at most kOutboundBytesMax and one record are queued if callers respect wait_for_room(); reading stops while deliver() reports
// more than kInboundBytesMax, until resume_reading().

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "base/clock.h"
#include "site-agent/internal/byte_stream.h"
#include "site-agent/internal/gateway_event.h"
#include "site-agent/internal/gateway_store.h"

namespace sluice::site_agent {

struct LinkConfig {
  GatewayAddress address;
  TlsClientFiles files;
  RankId rank;
  std::uint32_t ranks = 1;
  std::uint64_t boot_id = 0;
};

class GatewayLink {
 public:
  struct Callbacks {
    std::function<std::size_t(GatewayEvent&&)> deliver;  // returns the bytes that now wait
    std::function<void(const Error&)> on_problem;        // the gateway refused, or spoke nonsense
  };

  // REQUIRES: the manifest outlives the link.
  GatewayLink(LinkConfig config, const sync::Manifest& manifest, Callbacks callbacks);
  ~GatewayLink();  // stop()
  GatewayLink(const GatewayLink&) = delete;
  GatewayLink& operator=(const GatewayLink&) = delete;

  // What the next hello says of the shard's state.
  void set_state(std::uint64_t round, std::span<const Digest> chunk_digests);
  void start();
  // Says goodbye if connected, waits at most kGoodbyeTimeout for what is queued, ends the thread. No callback after it returns.
  void stop();

  // Queues a record for this connection; false, and dropped, when that connection is over.
  bool send(std::uint64_t connection, ByteVector record);
  // Waits until less than kOutboundBytesMax is queued; false when the connection is over or the deadline has passed.
  bool wait_for_room(std::uint64_t connection, TimePoint deadline);
  [[nodiscard]] std::size_t outbound_bytes();
  // A QueueDrained event comes when everything queued is written.
  void request_drained_event();
  void resume_reading();
  [[nodiscard]] bool is_reading_paused() const { return is_reading_paused_; }
  // Ends this connection and connects again: the state of the conversation is not what the session needs.
  void drop(std::uint64_t connection, std::string reason);
  void drop_current(std::string reason);

  [[nodiscard]] GatewayStore& store() { return store_; }
  [[nodiscard]] bool is_connected() const { return is_connected_; }
  [[nodiscard]] std::uint64_t bytes_sent() const { return bytes_sent_; }
  [[nodiscard]] std::uint64_t bytes_received() const { return bytes_received_; }
  [[nodiscard]] std::uint64_t connections() const { return connections_; }

 private:
  asio::awaitable<void> run();
  asio::awaitable<std::string> converse();
  asio::awaitable<void> finish_stream();
  asio::awaitable<Result<Welcome>> shake_hands(ByteStream& stream, std::uint64_t& hello_round);
  asio::awaitable<std::string> read_records(ByteStream& stream);
  asio::awaitable<Result<ByteVector>> read_record(ByteStream& stream, wire::RecordType& type);
  std::string dispatch_control(ByteSpan payload);
  std::string dispatch_frame(ByteVector record);
  void deliver(GatewayEvent&& event);
  asio::awaitable<void> wait_while_paused();
  asio::awaitable<void> keep_alive();
  void arm_handshake_timer();
  void enqueue(ByteVector record);
  void enqueue_locked(ByteVector record);
  void write_queued();
  void on_written(std::error_code error);
  void close_stream(std::string reason);
  void report_lost(const std::string& reason);

  LinkConfig config_;
  const sync::Manifest& manifest_;
  Callbacks callbacks_;
  GatewayStore store_;

  asio::io_context loop_{1};
  asio::steady_timer handshake_timer_{loop_};
  asio::steady_timer heartbeat_timer_{loop_};
  asio::steady_timer pause_timer_{loop_};   // between attempts to connect
  asio::steady_timer resume_timer_{loop_};  // cancelled when reading may go on
  std::unique_ptr<ByteStream> stream_;      // IO thread only, as the next six
  std::string close_reason_;
  std::string last_reported_;
  std::deque<ByteVector> writing_;
  bool is_writing_ = false;
  bool was_refused_ = false;
  bool is_replaced_ = false;  // by a newer process of the same rank: not to come back
  TimePoint last_received_{};

  std::mutex mutex_;  // guards what follows
  std::condition_variable room_;
  std::deque<ByteVector> queue_;
  std::size_t queued_bytes_ = 0;  // queue_ and writing_
  std::uint64_t connection_ = 0;  // current one; 0 while there is none
  bool is_write_posted_ = false;
  bool wants_drained_event_ = false;
  std::uint64_t state_round_ = 0;
  std::vector<Digest> state_digests_;

  std::atomic<bool> is_connected_{false};
  std::atomic<bool> is_reading_paused_{false};
  std::atomic<bool> is_stopping_{false};
  std::atomic<std::uint64_t> bytes_sent_{0};
  std::atomic<std::uint64_t> bytes_received_{0};
  std::atomic<std::uint64_t> connections_{0};
  std::thread thread_;
};

}  // namespace sluice::site_agent
