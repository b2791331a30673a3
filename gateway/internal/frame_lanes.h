#pragma once

// The frames on their way to one peer: a queue, and for each bulk connection (a lane) what it has been given. Decides which lane takes the
// next frame, takes back what a broken one has not had acknowledged, and adapts the lanes' windows. Pure; not thread-safe.
// TCP connections of one path differ in speed, by ten times after a loss: a lane's speed is its share of what was acknowledged lately, and
// near the end of the queue a slow lane gets no frame that the others would finish sooner.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>

#include "gateway/frame_record.h"
#include "gateway/limits.h"

namespace sluice::gateway::internal {

class FrameLanes {
 public:
  explicit FrameLanes(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  // False when the frame would pass bytes_max and something is waiting already.
  bool push(FrameRecord frame);
  // Drops waiting frames; those given to a lane stay. Returns how many.
  std::size_t discard(const std::function<bool(const wire::FrameEnvelope&)>& is_stale);
  // Forgets everything that waits.
  void clear();

  // REQUIRES: the lane is not open / is open.
  void open_lane(unsigned lane);
  void close_lane(unsigned lane);
  [[nodiscard]] bool is_open(unsigned lane) const { return lanes_.contains(lane); }

  struct Assignment {
    unsigned lane;
    FrameRecord frame;
  };
  // The next frame in the queue and the open lane with room that will be through with it first; nothing when no lane has room, or when
  // it is better to wait for one that has none.
  std::optional<Assignment> assign();
  // The lane has passed `frames` more frames to the kernel.
  void on_written(unsigned lane, std::size_t frames);
  // The peer has `count` frames of this lane by now. False when that is more than it was given.
  bool on_acknowledged(unsigned lane, std::uint64_t count);

  // Waiting and not acknowledged.
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  // Of these, waiting for a lane.
  [[nodiscard]] std::size_t waiting_bytes() const;
  [[nodiscard]] std::size_t bytes_max() const { return bytes_max_; }
  [[nodiscard]] std::uint64_t acknowledged() const { return acknowledged_; }
  [[nodiscard]] std::uint64_t acknowledged_round_bytes() const { return acknowledged_round_bytes_; }
  [[nodiscard]] std::uint64_t resent() const { return resent_; }

 private:
  struct Lane {
    std::deque<FrameRecord> given;  // not acknowledged, oldest first
    std::size_t written = 0;        // how many of them the kernel has
    std::size_t given_bytes = 0;
    std::size_t unwritten_bytes = 0;
    std::uint64_t acknowledged = 0;  // since it was opened
    std::size_t window = kStreamWindowBytes;
    bool was_held_by_window = false;
    double speed = 1.0;  // bytes acknowledged lately, older ones counting less; only the ratio between lanes means anything
  };
  using Lanes = std::map<unsigned, Lane>;

  [[nodiscard]] bool has_room(Lane& lane, std::size_t bytes) const;
  // When the lane will be through with this frame behind what it has, in units of its speed.
  [[nodiscard]] double finish(const Lane& lane, std::size_t bytes) const;
  // When all lanes together will be through with everything, in the same units.
  [[nodiscard]] double finish_all() const;
  [[nodiscard]] double speed_min() const;
  void learn_speed(Lane& lane, std::size_t acknowledged);

  std::size_t bytes_max_;
  std::deque<FrameRecord> queue_;
  Lanes lanes_;
  std::size_t bytes_ = 0;
  double speeds_ = 0.0;  // sum over the open lanes
  std::uint64_t acknowledged_ = 0;
  std::uint64_t acknowledged_round_bytes_ = 0;
  std::uint64_t resent_ = 0;
};

}  // namespace sluice::gateway::internal
