#include "site-agent/internal/agent_status.h"

#include "base/log.h"

namespace sluice::site_agent {

AgentStatistics AgentStatus::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

void AgentStatus::announce(const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    if (announced_.text == text) return;
    announced_.text = text;
    ++announced_.count;
  }
  log_warning("agent", "{}", text);
}

void AgentStatus::report(const Error& error) {
  const std::string text = error.to_string();
  {
    const std::lock_guard lock(mutex_);
    if (last_error_ == text) return;
    last_error_ = text;
  }
  log_warning("agent", "{}", text);
}

Announced AgentStatus::announcement() const {
  const std::lock_guard lock(mutex_);
  return announced_;
}

std::string AgentStatus::last_error() const {
  const std::lock_guard lock(mutex_);
  return last_error_;
}

}  // namespace sluice::site_agent
