#pragma once

// Threads that each run one io_context: a connection belongs to one of them for good, so its state needs no lock.
// Thread 0, the front, does handshakes and control connections and is mostly idle: a control message never waits for bulk data there.
// Construct, stop and destroy on one thread; context() from any.

#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>

namespace sluice::gateway::internal {

class IoThreads {
 public:
  // `name` shows in ps and debuggers, at most 12 characters. REQUIRES: count >= 1.
  IoThreads(const std::string& name, std::size_t count);
  ~IoThreads();
  IoThreads(const IoThreads&) = delete;
  IoThreads& operator=(const IoThreads&) = delete;

  [[nodiscard]] asio::io_context& front() const { return threads_.front()->context; }
  // A thread for bulk data; `index` may be anything. The front itself when there is no other thread.
  [[nodiscard]] asio::io_context& worker(std::size_t index) const;

  // Ends the threads; handlers that have not run stay unrun.
  void stop();

 private:
  struct Thread {
    asio::io_context context{1};
    asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
    std::thread thread;
  };

  std::vector<std::unique_ptr<Thread>> threads_;
};

}  // namespace sluice::gateway::internal
