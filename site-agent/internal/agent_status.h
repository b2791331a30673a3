#pragma once

// What other threads may ask of an agent: counters, the last error, the last announcement. Thread-safe.

#include <mutex>
#include <string>

#include "base/error.h"
#include "site-agent/agent.h"

namespace sluice::site_agent {

class AgentStatus {
 public:
  // Runs `change` on the counters under the lock.
  template <typename Change>
  void update(Change&& change) {
    const std::lock_guard lock(mutex_);
    change(statistics_);
  }
  [[nodiscard]] AgentStatistics statistics() const;

  // Also logged. The same text twice in a row counts once.
  void announce(const std::string& text);
  void report(const Error& error);
  [[nodiscard]] Announced announcement() const;
  [[nodiscard]] std::string last_error() const;

 private:
  mutable std::mutex mutex_;
  AgentStatistics statistics_;
  Announced announced_;
  std::string last_error_;
};

}  // namespace sluice::site_agent
