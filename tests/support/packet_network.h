#pragma once

// What a WAN does to packets, without sockets and clocks: K sites, full mesh, each directed pair (a path) with its own delay, rate, queue
// and loss; all paths out of a site may share its uplink, all paths into it its downlink.
//
//   site A --[ uplink A ]--[ loss | path A->B: rate, queue ]--( delay )--[ downlink B ]--> site B
//
// A line is a token bucket with a finite drop-tail queue in front; a packet leaves it when its last byte does. Loss is independent for each
// segment, drawn before the lines from a seeded sequence of the path. Packets of a path never overtake each other.
// Pure; time is passed in and must not go back; not thread-safe. Units: IP bytes, bits per second, nanoseconds of the steady clock.

#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <random>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/units.h"
#include "tests/support/link_clock.h"
#include "tests/support/wan_packet.h"

namespace sluice::support {

// A line's rate and queue. queue_bytes 0 = 20 ms of the rate, at least 64 KiB. burst_bytes: what passes at once after a pause.
struct LineShape {
  BitsPerSecond rate{};  // 0 = unlimited, no queue
  std::size_t queue_bytes = 0;
  std::size_t burst_bytes = 0;
};

// One directed pair. queue_bytes 0 = twice the delay at the rate (the bandwidth-delay product of a symmetric pair), and at least what a
// LineShape has.
struct PathShape {
  Duration delay{};  // one way
  BitsPerSecond rate{};
  std::size_t queue_bytes = 0;
  std::size_t burst_bytes = 0;
  double loss = 0.0;  // share of the segments, 0..1
  bool is_blackhole = false;
};
PathShape path_shape(const LinkShape& link);

// Segments of one path since the start.
struct PathCounters {
  std::uint64_t sent = 0;
  std::uint64_t delivered = 0;
  std::uint64_t delivered_bytes = 0;  // IP bytes
  std::uint64_t lost = 0;             // drawn
  std::uint64_t dropped = 0;          // a queue was full
  std::uint64_t swallowed = 0;        // in a blackhole
};

class TokenLine {
 public:
  void set_shape(const LineShape& shape);
  [[nodiscard]] bool is_limited() const { return shape_.rate.value > 0.0; }
  // When the last of the bytes leaves the line, or nothing when the queue has no room for them. `now` never goes back.
  std::optional<TimePoint> admit(std::size_t bytes, TimePoint now);
  // Bytes that are in front of the line or on it.
  [[nodiscard]] std::size_t queued_bytes(TimePoint now) const;
  [[nodiscard]] Duration time_of(std::size_t bytes) const;

 private:
  LineShape shape_;
  TimePoint free_at_{};  // when what was admitted will have passed, were there no burst
};

class PacketNetwork {
 public:
  PacketNetwork(std::uint16_t sites, std::uint64_t seed);

  // From the next packet on; packets under way keep their time.
  void set_path(SiteId from, SiteId to, const PathShape& shape);
  void set_uplink(SiteId site, const LineShape& shape);
  void set_downlink(SiteId site, const LineShape& shape);
  [[nodiscard]] const PathShape& path(SiteId from, SiteId to) const;

  void send(SiteId from, SiteId to, WanPacket packet, TimePoint now);
  // Hands over what has arrived by `now`, oldest first.
  void deliver_due(TimePoint now, const std::function<void(SiteId to, const WanPacket& packet)>& deliver);
  // When deliver_due() has something to do again.
  [[nodiscard]] std::optional<TimePoint> next_deadline() const;
  [[nodiscard]] const PathCounters& counters(SiteId from, SiteId to) const;
  // Bytes under way. More than kHeldBytesMax are dropped as a full queue would.
  [[nodiscard]] std::size_t held_bytes() const { return held_bytes_; }
  static constexpr std::size_t kHeldBytesMax = 512 * kMiB;

 private:
  struct Path {
    PathShape shape;
    TokenLine line;
    TimePoint arrived_at{};  // of its last packet
    std::mt19937_64 random;
    PathCounters counters;
  };
  struct Flight {
    TimePoint at;
    std::uint64_t order = 0;  // first in, first out among equals
    SiteId from;
    SiteId to;
    bool is_past_downlink = false;
    WanPacket packet;
    bool operator<(const Flight& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  [[nodiscard]] Path& path_of(SiteId from, SiteId to);
  [[nodiscard]] const Path& path_of(SiteId from, SiteId to) const;
  // When the segment arrives at the far end, or nothing when it does not.
  std::optional<TimePoint> fate_of(Path& path, TokenLine& uplink, std::size_t bytes, TimePoint now);
  [[nodiscard]] std::size_t run_segments_max(const Path& path, const TokenLine& uplink, std::size_t bytes) const;
  void enter_downlink(Flight flight);
  void take_off(Flight flight);

  std::uint16_t sites_;
  std::vector<Path> paths_;  // [from * sites + to]
  std::vector<TokenLine> uplinks_;
  std::vector<TokenLine> downlinks_;
  std::priority_queue<Flight> flights_;
  std::uint64_t next_order_ = 0;
  std::size_t held_bytes_ = 0;
};

}  // namespace sluice::support
