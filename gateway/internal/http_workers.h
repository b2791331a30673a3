#pragma once

// HttpWorkers: the threads that answer the admin server's connections. A fixed number of them, and a queue that is full at a limit: then
// the accepting thread waits, and further connections wait in the kernel's short backlog. Owned by the HTTP server, which calls enqueue()
// and shutdown() from its accepting thread.

#include <httplib.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace sluice::gateway {

class HttpWorkers : public httplib::TaskQueue {
 public:
  HttpWorkers(std::size_t threads, std::size_t queue_max);
  ~HttpWorkers() override;
  HttpWorkers(const HttpWorkers&) = delete;
  HttpWorkers& operator=(const HttpWorkers&) = delete;

  void enqueue(std::function<void()> job) override;
  void shutdown() override;  // answers what is queued, then joins; idempotent

 private:
  void work();

  std::size_t queue_max_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool is_stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace sluice::gateway
