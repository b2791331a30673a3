#include "gateway/internal/io_threads.h"

#include <pthread.h>
#include <signal.h>

#include <fmt/format.h>

#include "base/assert.h"

namespace sluice::gateway::internal {

IoThreads::IoThreads(const std::string& name, std::size_t count) {
  SLUICE_ASSERT(count >= 1);
  // Signals are for the main thread.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (std::size_t index = 0; index < count; ++index) {
    threads_.push_back(std::make_unique<Thread>());
    Thread* thread = threads_.back().get();
    thread->thread = std::thread([thread] { thread->context.run(); });
    pthread_setname_np(thread->thread.native_handle(), fmt::format("{}-{}", name, index).c_str());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

IoThreads::~IoThreads() { stop(); }

asio::io_context& IoThreads::worker(std::size_t index) const {
  if (threads_.size() == 1) return front();
  return threads_[1 + index % (threads_.size() - 1)]->context;
}

void IoThreads::stop() {
  for (auto& thread : threads_) thread->context.stop();
  for (auto& thread : threads_) {
    if (thread->thread.joinable()) thread->thread.join();
  }
}

}  // namespace sluice::gateway::internal
