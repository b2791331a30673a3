#include "gateway/internal/http_workers.h"

#include <utility>

namespace sluice::gateway {

HttpWorkers::HttpWorkers(std::size_t threads, std::size_t queue_max) : queue_max_(queue_max) {
  for (std::size_t index = 0; index < threads; ++index) threads_.emplace_back([this] { work(); });
}

HttpWorkers::~HttpWorkers() { shutdown(); }

void HttpWorkers::enqueue(std::function<void()> job) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.size() < queue_max_; });
  jobs_.push_back(std::move(job));
  changed_.notify_all();
}

void HttpWorkers::shutdown() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void HttpWorkers::work() {
  while (true) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !jobs_.empty() || is_stopping_; });
    if (jobs_.empty()) return;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    changed_.notify_all();
    job();
  }
}

}  // namespace sluice::gateway
