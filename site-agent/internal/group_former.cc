#include "site-agent/internal/group_former.h"

#include <filesystem>

#include "site-agent/limits.h"
#include "sync/gloo/gloo_collectives.h"

namespace sluice::site_agent {

GroupFormer::GroupFormer(sync::KeyValueStore& store, GroupConfig config, std::function<void(const Error&)> failed)
    : store_(store), config_(std::move(config)), failed_(std::move(failed)), thread_([this] { run(); }) {}

GroupFormer::~GroupFormer() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void GroupFormer::form(std::uint64_t generation) {
  const std::lock_guard lock(mutex_);
  wanted_ = generation;
  formed_.reset();
  changed_.notify_all();
}

std::unique_ptr<sync::Collectives> GroupFormer::take() {
  const std::lock_guard lock(mutex_);
  return std::move(formed_);
}

bool GroupFormer::is_idle() {
  const std::lock_guard lock(mutex_);
  return !formed_ && !is_forming_ && wanted_ == tried_;
}

bool GroupFormer::wait(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [&] { return formed_ != nullptr; });
}

void GroupFormer::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_stopping_ || wanted_ != tried_; });
    if (is_stopping_) return;
    const std::uint64_t generation = tried_ = wanted_;
    is_forming_ = true;
    lock.unlock();
    sync::GlooOptions options;
    options.rank = config_.rank;
    options.ranks = config_.ranks;
    options.group = fmt::format("group-{}", generation);
    options.timeout = kRegroupTimeout;
    std::error_code ignored;
    const bool is_interface = !config_.listen.empty() && std::filesystem::exists("/sys/class/net/" + config_.listen, ignored);
    (is_interface ? options.interface : options.address) = config_.listen;
    auto group = sync::form_gloo_group(store_, options);
    lock.lock();
    is_forming_ = false;
    if (is_stopping_ || wanted_ != generation) continue;
    if (group) {
      formed_ = std::move(*group);
      changed_.notify_all();
    } else {
      lock.unlock();
      failed_(group.error());
      lock.lock();
    }
  }
}

}  // namespace sluice::site_agent
