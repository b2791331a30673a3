#include "tests/support/link_clock.h"

#include <algorithm>

namespace sluice::support {
namespace {

constexpr std::size_t kQueueBytesMin = 256 * kKiB;
constexpr double kQueueSeconds = 0.010;
constexpr std::size_t kSegmentBytesMin = 1460;  // one Ethernet packet's payload
constexpr std::size_t kSegmentBytesMax = 256 * kKiB;
constexpr std::size_t kRoomUnlimited = 64 * kMiB;

Duration time_on_line(std::size_t bytes, double bits_per_second) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(8.0 * static_cast<double>(bytes) / bits_per_second));
}

std::size_t bytes_in(Duration time, double bits_per_second) {
  return static_cast<std::size_t>(std::chrono::duration<double>(time).count() * bits_per_second / 8.0);
}

}  // namespace

std::size_t default_queue_bytes(BitsPerSecond rate) {
  return std::max(kQueueBytesMin, static_cast<std::size_t>(kQueueSeconds * rate.value / 8.0));
}

TimePoint PacedLine::admit(std::size_t bytes, TimePoint now) {
  if (!is_limited()) return now;
  free_at_ = std::max(free_at_, now) + time_on_line(bytes, rate_.value);
  return free_at_;
}

void LinkClock::set_shape(const LinkShape& shape) {
  shape_ = shape;
  line_.set_rate(shape.rate);
}

TimePoint LinkClock::admit(std::size_t bytes, TimePoint now) {
  // Cut-through: a slower second line starts with the first byte, not with the last.
  const TimePoint left_site = egress_ == nullptr ? now : egress_->admit(bytes, now);
  const TimePoint left_line = line_.admit(bytes, now);
  return std::max(left_site, left_line) + shape_.delay;
}

std::size_t LinkClock::segment_bytes(Duration resolution) const {
  if (!is_limited()) return kSegmentBytesMax;
  return std::clamp(bytes_in(resolution, limiting_rate()), kSegmentBytesMin, kSegmentBytesMax);
}

std::size_t LinkClock::room(TimePoint now) const {
  if (!is_limited()) return kRoomUnlimited;
  const std::size_t waiting = bytes_in(backlog(now), limiting_rate());
  const std::size_t room_min = queue_limit() / 4;  // no trickle of tiny reads at a full queue
  return waiting + room_min > queue_limit() ? 0 : queue_limit() - waiting;
}

TimePoint LinkClock::room_at(TimePoint now) const {
  if (room(now) > 0) return now;
  return now + backlog(now) - time_on_line(queue_limit() / 2, limiting_rate());
}

std::size_t LinkClock::queue_limit() const {
  return shape_.queue_bytes != 0 ? shape_.queue_bytes : default_queue_bytes(BitsPerSecond{limiting_rate()});
}

Duration LinkClock::backlog(TimePoint now) const {
  const Duration of_site = egress_ == nullptr ? Duration::zero() : egress_->backlog(now);
  return std::max(line_.backlog(now), of_site);
}

double LinkClock::limiting_rate() const {
  const double of_site = egress_ == nullptr ? 0.0 : egress_->rate().value;
  if (!line_.is_limited()) return of_site;
  return of_site > 0.0 ? std::min(of_site, line_.rate().value) : line_.rate().value;
}

}  // namespace sluice::support
