#pragma once

// The timing of one directed WAN link, without sockets: when do bytes that enter now leave at the far end, and is there room for more?
// A link is a line of a given rate with a bounded queue in front and a propagation delay behind; the line that leaves a site may be shared
// by all links of that site. Fluid model: bytes occupy a line for bytes / rate and pass lines in order of arrival.
// Pure value types, time is passed in; not thread-safe. Units: bytes, bits per second, nanoseconds of the steady clock.

#include <cstddef>

#include "base/clock.h"
#include "base/units.h"

namespace sluice::support {

// What a link does to its bytes. Symmetric settings are two of these.
struct LinkShape {
  Duration delay{};             // one way
  BitsPerSecond rate{};         // 0 = unlimited
  std::size_t queue_bytes = 0;  // waiting in front of the line; 0 = default_queue_bytes(rate)
  bool is_blackhole = false;    // nothing passes and nothing is lost: what TCP sees while packets vanish
};

// 10 ms of the rate, at least 256 KiB: deep enough to keep the line busy between two turns of the relay.
std::size_t default_queue_bytes(BitsPerSecond rate);

// A line that bytes pass one after the other.
class PacedLine {
 public:
  explicit PacedLine(BitsPerSecond rate = {}) : rate_(rate) {}
  void set_rate(BitsPerSecond rate) { rate_ = rate; }
  [[nodiscard]] BitsPerSecond rate() const { return rate_; }
  [[nodiscard]] bool is_limited() const { return rate_.value > 0.0; }
  // Takes `bytes` at `now`; returns when the last of them has left.
  TimePoint admit(std::size_t bytes, TimePoint now);
  // How long the bytes already taken keep the line busy.
  [[nodiscard]] Duration backlog(TimePoint now) const { return free_at_ > now ? free_at_ - now : Duration::zero(); }

 private:
  BitsPerSecond rate_;
  TimePoint free_at_{};
};

class LinkClock {
 public:
  // `egress` is the sending site's shared line; it outlives the link. nullptr = none.
  LinkClock(const LinkShape& shape, PacedLine* egress) : shape_(shape), line_(shape.rate), egress_(egress) {}

  void set_shape(const LinkShape& shape);
  [[nodiscard]] const LinkShape& shape() const { return shape_; }
  [[nodiscard]] bool is_limited() const { return line_.is_limited() || (egress_ != nullptr && egress_->is_limited()); }
  // Takes `bytes` at `now`; returns when the last of them arrives at the far end.
  TimePoint admit(std::size_t bytes, TimePoint now);
  // The largest piece whose time on the line stays near `resolution`; what the relay cuts its reads into.
  [[nodiscard]] std::size_t segment_bytes(Duration resolution) const;
  // Bytes that may enter before the queue is full, 0 from three quarters on; a large number on an unlimited link.
  [[nodiscard]] std::size_t room(TimePoint now) const;
  // When half of a full queue has drained; `now` on a link with room.
  [[nodiscard]] TimePoint room_at(TimePoint now) const;

 private:
  [[nodiscard]] std::size_t queue_limit() const;
  [[nodiscard]] Duration backlog(TimePoint now) const;
  [[nodiscard]] double limiting_rate() const;

  LinkShape shape_;
  PacedLine line_;
  PacedLine* egress_;
};

}  // namespace sluice::support
