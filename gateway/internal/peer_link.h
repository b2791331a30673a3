#pragma once

// The link to one peer site, as the loop sees it: its connections, the queue of frames, and when to dial again.
// Threads: everything on the loop. Shared ownership, so that events still on their way find it gone rather than destroyed.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "gateway/internal/frame_lanes.h"
#include "gateway/internal/io_threads.h"
#include "gateway/internal/line_limiter.h"
#include "gateway/internal/link_meter.h"
#include "gateway/internal/opening.h"
#include "gateway/internal/peer_stream.h"
#include "gateway/internal/rate_limiter.h"
#include "gateway/internal/stream_count.h"
#include "gateway/peer_links.h"

namespace sluice::gateway::internal {

// What the links of a gateway share. Lives as long as they do; on the loop, unless a member says otherwise.
struct LinkContext {
  LinkContext(asio::io_context& gateway_loop, PeerLinksConfig links_config, std::shared_ptr<const TlsContext> tls_context,
              PeerLinks::Callbacks links_callbacks);

  // Logs and reports a connection that this side refused.
  void refuse(const std::string& label, const Error& error, const std::string& remote);

  asio::io_context& loop;
  PeerLinksConfig config;
  std::shared_ptr<const TlsContext> tls;  // for new connections
  PeerLinks::Callbacks callbacks;
  IoThreads io;
  std::shared_ptr<RateLimiter> limiter;  // null when there is no limit
  std::shared_ptr<StreamCount> streams = std::make_shared<StreamCount>();
  std::mt19937_64 random;  // jitter of the reconnect delays
  std::size_t workers_given = 0;
  LineLimiter refusals;
};

class PeerLink : public std::enable_shared_from_this<PeerLink> {
 public:
  PeerLink(LinkContext& shared, PeerEndpoint peer);
  ~PeerLink();

  // Begins to dial, if this side dials.
  void start();
  // Ends everything with a goodbye and dials no more. No callbacks.
  void stop();

  // An accepted connection whose hello has passed check_hello.
  void accept(OpenedConnection opened);

  bool send_control(const wire::PeerMessage& message);
  bool send_frame(FrameRecord frame);
  std::size_t discard(const std::function<bool(const wire::FrameEnvelope&)>& is_stale) { return lanes_.discard(is_stale); }
  [[nodiscard]] std::size_t queued_bytes() const { return lanes_.bytes(); }
  [[nodiscard]] bool is_up() const { return is_up_; }
  [[nodiscard]] LinkStats stats() const;
  [[nodiscard]] topology::LinkEstimate estimate() const { return meter_.estimate(Clock::now()); }
  void set_probing(bool is_probing) { meter_.set_probing(is_probing); }
  void break_stream(unsigned index);
  [[nodiscard]] const PeerEndpoint& peer() const { return peer_; }

 private:
  struct Connection {
    std::shared_ptr<PeerStream> stream;
    std::shared_ptr<ByteCounters> counters;
    std::uint64_t id = 0;  // never used twice: events of earlier connections are told apart by it
    TimePoint adopted_at{};
  };
  struct Dial {
    explicit Dial(asio::io_context& loop) : timer(loop) {}
    asio::steady_timer timer;
    std::shared_ptr<Opening> opening;
    std::uint64_t attempt = 0;
    std::chrono::milliseconds delay{0};  // before the next attempt
  };

  [[nodiscard]] bool dials() const { return shared_.config.self < peer_.site; }
  void dial(unsigned index);
  void dial_later(unsigned index, bool is_refused);
  void on_dialled(unsigned index, OpenedConnection opened);
  void on_dial_failed(unsigned index, const OpeningFailure& failure);
  void forget_dials();

  void adopt(unsigned index, OpenedConnection opened, std::optional<wire::PeerMessage> reply);
  PeerStreamEvents make_events(unsigned index, std::uint64_t id);
  void hand_back(OpenedConnection opened, ErrorCode code, const std::string& text);
  void watch_expiry(std::chrono::system_clock::time_point not_after);

  [[nodiscard]] Connection* find(unsigned index, std::uint64_t id);
  void on_control(std::uint64_t id, std::size_t bytes, const std::shared_ptr<wire::PeerMessage>& message);
  void on_frame(unsigned index, std::uint64_t id, const FrameRecord& frame);
  void on_written(unsigned index, std::uint64_t id, std::size_t frames);
  void on_acknowledged(unsigned index, std::uint64_t id, std::uint64_t count);
  void on_rtt(std::chrono::microseconds rtt);
  void on_sampled(unsigned index, std::uint64_t id, const StreamSample& sample);
  void on_closed(unsigned index, std::uint64_t id, const Error& reason);

  void wake_meter();
  void on_meter();
  void end_meter_turn();
  void open_more_streams();
  void pump();
  void update_up();
  void go_down(const std::string& reason);
  void drop_session(const Error& reason, bool say_goodbye);
  void retire(unsigned index, Connection& connection);
  void deliver_early();

  LinkContext& shared_;
  PeerEndpoint peer_;
  Connection control_;
  std::map<unsigned, Connection> bulk_;
  FrameLanes lanes_;
  std::map<unsigned, std::unique_ptr<Dial>> dials_;
  std::shared_ptr<LinkLife> life_;
  asio::steady_timer expiry_timer_;
  std::deque<std::shared_ptr<wire::PeerMessage>> early_control_;
  std::uint64_t next_id_ = 1;
  std::uint64_t session_boot_id_ = 0;  // of the peer's process on the present control connection
  std::uint64_t known_boot_id_ = 0;    // of the last link that was up
  std::uint64_t peer_interval_us_ = 0;
  bool is_up_ = false;
  bool is_stopped_ = false;
  bool wants_drained_ = false;
  LinkMeter meter_;
  asio::steady_timer meter_timer_;
  bool is_metering_ = false;
  LinkStats totals_;  // of connections that are gone; the rest is filled in by stats()
};

}  // namespace sluice::gateway::internal
