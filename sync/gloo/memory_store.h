#pragma once

// A KeyValueStore in this process's memory: for tests, and for groups whose ranks are threads of one process. Thread-safe.

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "sync/collectives.h"

namespace sluice::sync {

class MemoryStore final : public KeyValueStore {
 public:
  Status set(const std::string& key, ByteSpan value) override;
  Result<ByteVector> wait(const std::string& key, Duration timeout) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, ByteVector> values_;
};

}  // namespace sluice::sync
