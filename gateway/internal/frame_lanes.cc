#include "gateway/internal/frame_lanes.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/assert.h"

namespace sluice::gateway::internal {

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

void FrameLanes::clear() {
  for (const FrameRecord& frame : queue_) bytes_ -= frame.bytes();
  queue_.clear();
}

void FrameLanes::open_lane(unsigned lane) {
  const bool is_new = lanes_.try_emplace(lane).second;
  SLUICE_ASSERT(is_new, "lane {}", lane);
}

void FrameLanes::close_lane(unsigned lane) {
  const auto found = lanes_.find(lane);
  SLUICE_ASSERT(found != lanes_.end(), "lane {}", lane);
  resent_ += found->second.written;
  std::deque<FrameRecord>& given = found->second.given;
  queue_.insert(queue_.begin(), std::make_move_iterator(given.begin()), std::make_move_iterator(given.end()));
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

std::optional<FrameLanes::Assignment> FrameLanes::assign() {
  if (queue_.empty()) return std::nullopt;
  const std::size_t bytes = queue_.front().bytes();
  auto best = lanes_.end();
  for (auto lane = lanes_.begin(); lane != lanes_.end(); ++lane) {
    if (!has_room(lane->second, bytes)) continue;
    const bool is_better =
        best == lanes_.end() || lane->second.unwritten_bytes < best->second.unwritten_bytes ||
        (lane->second.unwritten_bytes == best->second.unwritten_bytes && lane->second.given_bytes < best->second.given_bytes);
    if (is_better) best = lane;
  }
  if (best == lanes_.end()) return std::nullopt;
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
