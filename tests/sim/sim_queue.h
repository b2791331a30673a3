#pragma once

// Virtual time: what is to happen, in order of time and, at the same time, of having been asked for.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace sluice::sim {

class EventQueue {
 public:
  [[nodiscard]] TimePoint now() const { return now_; }
  [[nodiscard]] std::uint64_t done() const { return done_; }
  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] TimePoint next_time() const { return heap_.front().time; }

  void at(TimePoint time, std::function<void()> what) {
    heap_.push_back({std::max(time, now_), serial_++, std::move(what)});
    std::push_heap(heap_.begin(), heap_.end(), Later{});
  }
  void after(Duration delay, std::function<void()> what) { at(now_ + delay, std::move(what)); }

  // REQUIRES: not empty.
  void run_one() {
    std::pop_heap(heap_.begin(), heap_.end(), Later{});
    Entry entry = std::move(heap_.back());
    heap_.pop_back();
    now_ = entry.time;
    ++done_;
    entry.what();
  }

 private:
  struct Entry {
    TimePoint time;
    std::uint64_t serial;
    std::function<void()> what;
  };
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const { return a.time != b.time ? a.time > b.time : a.serial > b.serial; }
  };

  TimePoint now_{};
  std::uint64_t serial_ = 0;
  std::uint64_t done_ = 0;
  std::vector<Entry> heap_;
};

}  // namespace sluice::sim
