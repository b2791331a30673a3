#pragma once

// Waits for a descriptor that somebody else owns. Lives on one io_context's thread; destroying it cancels the waits, whose handlers then
// get operation_aborted. The descriptor must be non-blocking and outlive this object.

#include <utility>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>

namespace sluice::gateway::internal {

class Readiness {
 public:
  Readiness(asio::io_context& context, int fd) : descriptor_(context, fd) {}
  ~Readiness() {
    if (descriptor_.is_open()) descriptor_.release();
  }
  Readiness(const Readiness&) = delete;
  Readiness& operator=(const Readiness&) = delete;

  template <typename Handler>
  void wait_read(Handler&& handler) {
    descriptor_.async_wait(asio::posix::stream_descriptor::wait_read, std::forward<Handler>(handler));
  }
  template <typename Handler>
  void wait_write(Handler&& handler) {
    descriptor_.async_wait(asio::posix::stream_descriptor::wait_write, std::forward<Handler>(handler));
  }

 private:
  asio::posix::stream_descriptor descriptor_;
};

}  // namespace sluice::gateway::internal
