#include "sync/gloo/memory_store.h"

namespace sluice::sync {

Status MemoryStore::set(const std::string& key, ByteSpan value) {
  const std::lock_guard lock(mutex_);
  values_[key] = ByteVector(value.begin(), value.end());
  changed_.notify_all();
  return {};
}

Result<ByteVector> MemoryStore::wait(const std::string& key, Duration timeout) {
  std::unique_lock lock(mutex_);
  const bool found = changed_.wait_until(lock, Clock::now() + timeout, [&] { return values_.contains(key); });
  if (!found) return fail(ErrorCode::kTimeout, "wait for key", key);
  return values_[key];
}

}  // namespace sluice::sync
