#pragma once

// Counts the connections that live, so that stop() can wait for their goodbyes. Any thread.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace sluice::gateway::internal {

class StreamCount {
 public:
  void add() {
    const std::lock_guard lock(mutex_);
    ++count_;
  }
  void remove() {
    const std::lock_guard lock(mutex_);
    --count_;
    changed_.notify_all();
  }
  void wait_for_none(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [this] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t count_ = 0;
};

}  // namespace sluice::gateway::internal
