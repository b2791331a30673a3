#include "gateway/internal/frame_lanes.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "base/assert.h"

namespace sluice::gateway::internal {
namespace {

// Speeds are halved when their sum passes this: what was acknowledged 64 MiB ago counts little.
constexpr double kSpeedMemoryBytes = 32.0 * static_cast<double>(kMiB);
// No lane is taken for slower than this share of the average: one that had no frames for a while gets a chance to show better.
constexpr double kSpeedShareMin = 0.125;
// A lane may finish a frame this much later than all lanes together finish everything: estimates are rough, and an idle lane is a loss too.
constexpr double kFinishSlack = 1.25;

}  // namespace

bool FrameLanes::push(FrameRecord frame) {
  if (bytes_ > 0 && bytes_ + frame.bytes() > bytes_max_) return false;
  bytes_ += frame.bytes();
  queue_.push_back(std::move(frame));
  return true;
}

std::size_t FrameLanes::discard(const std::function<bool(const wire::FrameEnvelope&)>& is_stale) {
  const std::size_t before = queue_.size();
  std::erase_if(queue_, [&](const FrameRecord& frame) {
    if (!is_stale(frame.envelope)) return false;
    bytes_ -= frame.bytes();
    return true;
  });
  return before - queue_.size();
}

std::size_t FrameLanes::waiting_bytes() const {
  std::size_t given = 0;
  for (const auto& [lane, state] : lanes_) given += state.given_bytes;
  return bytes_ - given;
}

void FrameLanes::clear() {
  for (const FrameRecord& frame : queue_) bytes_ -= frame.bytes();
  queue_.clear();
}

// A new lane is taken for an average one.
void FrameLanes::open_lane(unsigned lane) {
  const double speed = lanes_.empty() ? 1.0 : speeds_ / static_cast<double>(lanes_.size());
  const auto [at, is_new] = lanes_.try_emplace(lane);
  SLUICE_ASSERT(is_new, "lane {}", lane);
  at->second.speed = speed;
  speeds_ += speed;
}

void FrameLanes::close_lane(unsigned lane) {
  const auto found = lanes_.find(lane);
  SLUICE_ASSERT(found != lanes_.end(), "lane {}", lane);
  resent_ += found->second.written;
  std::deque<FrameRecord>& given = found->second.given;
  queue_.insert(queue_.begin(), std::make_move_iterator(given.begin()), std::make_move_iterator(given.end()));
  speeds_ = std::max(0.0, speeds_ - found->second.speed);
  lanes_.erase(found);
}

// A lane without anything under way always has room, so that no frame is too large for a window; one whose frames the kernel has all taken
// has room in its backlog for a frame of any size, or a lane of large frames would stand still for a round trip after each.
bool FrameLanes::has_room(Lane& lane, std::size_t bytes) const {
  if (lane.given.empty()) return true;
  if (lane.unwritten_bytes > 0 && lane.unwritten_bytes + bytes > kStreamBacklogBytes) return false;
  if (lane.given_bytes + bytes > lane.window) {
    lane.was_held_by_window = true;
    return false;
  }
  return true;
}

double FrameLanes::speed_min() const { return kSpeedShareMin * speeds_ / static_cast<double>(std::max<std::size_t>(1, lanes_.size())); }

double FrameLanes::finish(const Lane& lane, std::size_t bytes) const {
  return static_cast<double>(lane.given_bytes + bytes) / std::max({lane.speed, speed_min(), 1e-9});
}

// bytes_ is what waits and what the lanes have.
double FrameLanes::finish_all() const { return static_cast<double>(bytes_) / std::max(speeds_, 1e-9); }

void FrameLanes::learn_speed(Lane& lane, std::size_t acknowledged) {
  lane.speed += static_cast<double>(acknowledged);
  speeds_ += static_cast<double>(acknowledged);
  if (speeds_ < kSpeedMemoryBytes) return;
  speeds_ = 0.0;
  for (auto& [index, each] : lanes_) speeds_ += each.speed /= 2;
}

std::optional<FrameLanes::Assignment> FrameLanes::assign() {
  if (queue_.empty()) return std::nullopt;
  const std::size_t bytes = queue_.front().bytes();
  auto best = lanes_.end();  // of those with room
  double best_finish = 0.0;
  double first_finish = std::numeric_limits<double>::max();  // of all
  for (auto lane = lanes_.begin(); lane != lanes_.end(); ++lane) {
    const double at = finish(lane->second, bytes);
    first_finish = std::min(first_finish, at);
    if (!has_room(lane->second, bytes) || (best != lanes_.end() && at >= best_finish)) continue;
    best = lane;
    best_finish = at;
  }
  if (best == lanes_.end()) return std::nullopt;
  // The lane that would be first has something under way, whose acknowledgement will ask again.
  if (best_finish > first_finish && best_finish > kFinishSlack * finish_all()) return std::nullopt;
  Assignment assignment{best->first, std::move(queue_.front())};
  queue_.pop_front();
  best->second.given.push_back(assignment.frame);
  best->second.given_bytes += bytes;
  best->second.unwritten_bytes += bytes;
  return assignment;
}

void FrameLanes::on_written(unsigned lane, std::size_t frames) {
  Lane& state = lanes_.at(lane);
  for (; frames > 0 && state.written < state.given.size(); --frames) {
    state.unwritten_bytes -= state.given[state.written].bytes();
    ++state.written;
  }
}

bool FrameLanes::on_acknowledged(unsigned lane, std::uint64_t count) {
  Lane& state = lanes_.at(lane);
  if (count < state.acknowledged || count - state.acknowledged > state.given.size()) return false;
  const std::uint64_t fresh = count - state.acknowledged;
  for (std::uint64_t index = 0; index < fresh; ++index) {
    const std::size_t bytes = state.given.front().bytes();
    // on_written always comes first: a peer that acknowledges what was not sent is broken or hostile.
    if (state.written == 0) return false;
    --state.written;
    state.given_bytes -= bytes;
    bytes_ -= bytes;
    learn_speed(state, bytes);
    acknowledged_round_bytes_ += state.given.front().round_bytes();
    state.given.pop_front();
  }
  state.acknowledged = count;
  acknowledged_ += fresh;
  // The network took everything and the window was all that held the lane back.
  if (fresh > 0 && std::exchange(state.was_held_by_window, false) && state.unwritten_bytes == 0) {
    state.window = std::min(2 * state.window, kStreamWindowBytesMax);
  }
  return true;
}

}  // namespace sluice::gateway::internal
