#pragma once

// Forms the site's collective group in the background, as soon as the gateway says that all ranks are connected, so that no training step
// waits for a rendezvous. Owns one thread. Every method may be called from any thread.

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "sync/collectives.h"

namespace sluice::site_agent {

struct GroupConfig {
  RankId rank;
  std::uint32_t ranks = 1;
  std::string listen;  // interface or address; empty: 127.0.0.1
};

class GroupFormer {
 public:
  // `failed` is called by the thread when the ranks have not met in time. REQUIRES: the store outlives the former.
  GroupFormer(sync::KeyValueStore& store, GroupConfig config, std::function<void(const Error&)> failed);
  ~GroupFormer();
  GroupFormer(const GroupFormer&) = delete;
  GroupFormer& operator=(const GroupFormer&) = delete;

  // Starts to form this generation; an older one that has not been taken is given up.
  void form(std::uint64_t generation);
  // The newest group, once.
  std::unique_ptr<sync::Collectives> take();
  // Whether there is nothing to be taken and nothing being formed.
  bool is_idle();
  // Whether a group is there to be taken, waiting until the deadline.
  bool wait(TimePoint deadline);

 private:
  void run();

  sync::KeyValueStore& store_;
  GroupConfig config_;
  std::function<void(const Error&)> failed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t wanted_ = 0;
  std::uint64_t tried_ = 0;
  bool is_forming_ = false;
  std::unique_ptr<sync::Collectives> formed_;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace sluice::site_agent
