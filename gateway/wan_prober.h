#pragma once

// Active measurement of a WAN link: fills it with random bytes for a while, over the same connections, TLS and congestion control as
// frames. The receiver counts and throws away; what it reports reaches the link's estimator like any transfer. One at a time for each
// site, within a byte budget, and given up when a round opens. Asking first lets the other side say that it is busy.
// Threads: everything on the gateway's loop; owned by the engine. Sends nothing after the destructor.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/units.h"
#include "gateway/frame_record.h"
#include "proto/peer.pb.h"
#include "topology/wan_probe_schedule.h"

namespace sluice::gateway {

struct WanProberHooks {
  std::function<bool(SiteId, const wire::PeerMessage&)> send;
  std::function<bool(SiteId, FrameRecord)> send_frame;
  std::function<std::size_t(SiteId)> queued_bytes;
  std::function<void(SiteId)> discard_queued;                // probe frames that are not on their way yet
  std::function<void(SiteId, bool is_probing)> set_probing;  // what is counted from now on is a probe, or is none
  std::function<bool()> is_round_running;
  std::function<void(SiteId, topology::ProbeEnd)> ended;  // a probe that start() began, refused ones too; may be empty
};

inline constexpr std::uint64_t kProbeBytesMax = 512 * kMiB;

class WanProber {
 public:
  WanProber(asio::io_context& loop, std::chrono::milliseconds window, WanProberHooks hooks);

  // Asks the peer and begins when it agrees. kUnavailable: a round or another probe runs, or the link is down.
  // At most `bytes_max` are sent.
  Status start(SiteId peer, TimePoint now, std::uint64_t bytes_max = kProbeBytesMax);
  // What a probe of a link of this rate (bits per second) sends.
  [[nodiscard]] std::uint64_t expected_bytes(double rate) const;
  Status on_message(SiteId from, const wire::Probe& message, TimePoint now);
  // Whether a probe frame of this site is one that was agreed on.
  [[nodiscard]] bool expects_frames(SiteId from) const { return serving_ && serving_->peer == from; }
  void on_round_opened();
  void on_peer_down(SiteId peer);
  void stop();

  [[nodiscard]] bool is_running() const { return running_.has_value(); }
  // Whether another site is probing the link to here.
  [[nodiscard]] bool is_serving(TimePoint now) const { return serving_ && now < serving_->ends_at; }
  // Asked for or refused here, up to the end: to tell one answer from the one before. And whether the last went its full length.
  [[nodiscard]] std::uint64_t ended_count() const { return ended_; }
  [[nodiscard]] bool was_complete() const { return was_complete_; }
  // One line for people: what runs, or how the last one ended; empty when there was none.
  [[nodiscard]] const std::string& describe() const { return text_; }

 private:
  struct Running {
    SiteId peer;
    std::uint64_t id = 0;
    bool is_granted = false;
    TimePoint ends_at{};
    std::uint64_t bytes = 0;
    std::uint64_t bytes_max = 0;
    std::size_t backlog = 0;       // bytes kept waiting; grows with what the link takes between two ticks of the timer
    std::size_t filled_bytes = 0;  // what waited after the last tick
  };
  struct Serving {
    SiteId peer;
    std::uint64_t id = 0;
    TimePoint ends_at{};
  };

  void fill(TimePoint now);
  void end(const std::string& text, topology::ProbeEnd how);
  void arm();
  void answer(SiteId to, std::uint64_t id, std::uint32_t kind, const std::string& reason);

  std::chrono::milliseconds window_;
  WanProberHooks hooks_;
  asio::steady_timer timer_;
  SharedBytes payload_;
  std::optional<Running> running_;
  std::optional<Serving> serving_;
  std::uint64_t next_id_ = 1;
  std::string text_;
  std::uint64_t ended_ = 0;
  bool was_complete_ = false;
};

}  // namespace sluice::gateway
