#include "tests/support/packet_network.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/assert.h"

namespace sluice::support {
namespace {

constexpr std::chrono::milliseconds kQueueTimeMin{20};
constexpr std::size_t kQueueBytesMin = 64 * kKiB;
// The segments of a large packet arrive in runs that take a line about this long: fewer packets, and still a smooth flow.
constexpr std::chrono::microseconds kRunTime{1'000};

std::size_t bytes_in(BitsPerSecond rate, Duration time) {
  return static_cast<std::size_t>(rate.value / 8.0 * std::chrono::duration<double>(time).count());
}

std::size_t default_queue(BitsPerSecond rate, Duration time) {
  return std::max(kQueueBytesMin, bytes_in(rate, std::max<Duration>(time, kQueueTimeMin)));
}

}  // namespace

PathShape path_shape(const LinkShape& link) {
  PathShape shape;
  shape.delay = link.delay;
  shape.rate = link.rate;
  shape.queue_bytes = link.queue_bytes;
  shape.is_blackhole = link.is_blackhole;
  return shape;
}

// ---- one line

void TokenLine::set_shape(const LineShape& shape) {
  shape_ = shape;
  if (shape_.queue_bytes == 0) shape_.queue_bytes = default_queue(shape.rate, Duration::zero());
}

Duration TokenLine::time_of(std::size_t bytes) const {
  if (!is_limited()) return Duration::zero();
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(static_cast<double>(bytes) * 8.0 / shape_.rate.value));
}

std::size_t TokenLine::queued_bytes(TimePoint now) const {
  if (!is_limited()) return 0;
  const TimePoint empty_at = free_at_ - time_of(shape_.burst_bytes);
  return empty_at > now ? bytes_in(shape_.rate, empty_at - now) : 0;
}

std::optional<TimePoint> TokenLine::admit(std::size_t bytes, TimePoint now) {
  if (!is_limited()) return now;
  // An empty queue takes a packet of any size.
  const std::size_t queued = queued_bytes(now);
  if (queued > 0 && queued + bytes > shape_.queue_bytes) return std::nullopt;
  free_at_ = std::max(free_at_, now) + time_of(bytes);
  return std::max(now, free_at_ - time_of(shape_.burst_bytes));
}

// ---- the network

PacketNetwork::PacketNetwork(std::uint16_t sites, std::uint64_t seed)
    : sites_(sites), paths_(std::size_t{sites} * sites), uplinks_(sites), downlinks_(sites) {
  SLUICE_ASSERT(sites > 0 && sites <= kSitesMax, "{} sites", sites);
  for (std::size_t index = 0; index < paths_.size(); ++index) paths_[index].random.seed(seed * 0x9E3779B97F4A7C15ULL + index);
}

PacketNetwork::Path& PacketNetwork::path_of(SiteId from, SiteId to) {
  SLUICE_ASSERT(from.value < sites_ && to.value < sites_, "{} -> {}", from, to);
  return paths_[std::size_t{from.value} * sites_ + to.value];
}
const PacketNetwork::Path& PacketNetwork::path_of(SiteId from, SiteId to) const {
  SLUICE_ASSERT(from.value < sites_ && to.value < sites_, "{} -> {}", from, to);
  return paths_[std::size_t{from.value} * sites_ + to.value];
}

void PacketNetwork::set_path(SiteId from, SiteId to, const PathShape& shape) {
  SLUICE_ASSERT(shape.loss >= 0.0 && shape.loss <= 1.0, "loss {}", shape.loss);
  Path& path = path_of(from, to);
  path.shape = shape;
  LineShape line{shape.rate, shape.queue_bytes, shape.burst_bytes};
  if (line.queue_bytes == 0) line.queue_bytes = default_queue(shape.rate, 2 * shape.delay);
  path.line.set_shape(line);
}

void PacketNetwork::set_uplink(SiteId site, const LineShape& shape) { uplinks_.at(site.value).set_shape(shape); }
void PacketNetwork::set_downlink(SiteId site, const LineShape& shape) { downlinks_.at(site.value).set_shape(shape); }
const PathShape& PacketNetwork::path(SiteId from, SiteId to) const { return path_of(from, to).shape; }
const PathCounters& PacketNetwork::counters(SiteId from, SiteId to) const { return path_of(from, to).counters; }

std::optional<TimePoint> PacketNetwork::fate_of(Path& path, TokenLine& uplink, std::size_t bytes, TimePoint now) {
  ++path.counters.sent;
  if (path.shape.is_blackhole) {
    ++path.counters.swallowed;
    return std::nullopt;
  }
  if (path.shape.loss > 0.0 && std::uniform_real_distribution<double>(0.0, 1.0)(path.random) < path.shape.loss) {
    ++path.counters.lost;
    return std::nullopt;
  }
  const auto left_site = held_bytes_ + bytes > kHeldBytesMax ? std::nullopt : uplink.admit(bytes, now);
  const auto left_line = left_site ? path.line.admit(bytes, *left_site) : std::nullopt;
  if (!left_line) {
    ++path.counters.dropped;
    return std::nullopt;
  }
  path.arrived_at = std::max(path.arrived_at, *left_line + path.shape.delay);
  return path.arrived_at;
}

std::size_t PacketNetwork::run_segments_max(const Path& path, const TokenLine& uplink, std::size_t bytes) const {
  const Duration time = std::max({path.line.time_of(bytes), uplink.time_of(bytes), Duration(1)});
  return std::max<std::size_t>(1, static_cast<std::size_t>(Duration(kRunTime) / time));
}

void PacketNetwork::send(SiteId from, SiteId to, WanPacket packet, TimePoint now) {
  Path& path = path_of(from, to);
  TokenLine& uplink = uplinks_[from.value];
  const std::size_t segments = segment_count(packet);
  const std::size_t run_max = run_segments_max(path, uplink, segment_bytes(packet, 0));
  std::size_t run = 0;  // segments before the present one that arrive together
  TimePoint run_arrives{};
  const auto end_run = [&](std::size_t end) {
    if (run == 0) return;
    Flight flight{run_arrives, 0, from, to, false, {}};
    flight.packet = run == segments ? std::move(packet) : cut_segments(packet, end - run, run);
    held_bytes_ += flight.packet.ip.size();
    take_off(std::move(flight));
    run = 0;
  };
  for (std::size_t index = 0; index < segments; ++index) {
    const auto arrives = fate_of(path, uplink, segment_bytes(packet, index), now);
    if (!arrives || run == run_max) end_run(index);
    if (!arrives) continue;
    ++run;
    run_arrives = *arrives;
  }
  end_run(segments);
}

void PacketNetwork::take_off(Flight flight) {
  flight.order = next_order_++;
  flights_.push(std::move(flight));
}

// The downlink takes packets in the order in which they come, from whatever site: that is known only when they are there.
void PacketNetwork::enter_downlink(Flight flight) {
  Path& path = path_of(flight.from, flight.to);
  TokenLine& line = downlinks_[flight.to.value];
  const std::size_t segments = segment_count(flight.packet);
  const TimePoint now = flight.at;
  std::size_t kept = 0;
  while (kept < segments) {
    const auto left = line.admit(segment_bytes(flight.packet, kept), now);
    if (!left) break;
    flight.at = *left;
    ++kept;
  }
  path.counters.dropped += segments - kept;
  const std::size_t bytes = flight.packet.ip.size();
  if (kept < segments) flight.packet = kept == 0 ? WanPacket{} : cut_segments(flight.packet, 0, kept);
  held_bytes_ -= bytes - flight.packet.ip.size();
  flight.is_past_downlink = true;
  if (kept > 0) take_off(std::move(flight));
}

void PacketNetwork::deliver_due(TimePoint now, const std::function<void(SiteId to, const WanPacket& packet)>& deliver) {
  while (!flights_.empty() && flights_.top().at <= now) {
    // top() is const only to keep its place in the heap, which pop() gives up at once.
    Flight flight = std::move(const_cast<Flight&>(flights_.top()));
    flights_.pop();
    if (!flight.is_past_downlink && downlinks_[flight.to.value].is_limited()) {
      enter_downlink(std::move(flight));
      continue;
    }
    PathCounters& counters = path_of(flight.from, flight.to).counters;
    const std::size_t segments = segment_count(flight.packet);
    counters.delivered += segments;
    for (std::size_t index = 0; index < segments; ++index) counters.delivered_bytes += segment_bytes(flight.packet, index);
    held_bytes_ -= flight.packet.ip.size();
    deliver(flight.to, flight.packet);
  }
}

std::optional<TimePoint> PacketNetwork::next_deadline() const {
  if (flights_.empty()) return std::nullopt;
  return flights_.top().at;
}

}  // namespace sluice::support
