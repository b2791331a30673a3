#include "site-agent/internal/gateway_store.h"

namespace sluice::site_agent {
namespace {

// The gateway answers at the timeout that it was given; this much later the answer itself is late.
constexpr std::chrono::seconds kAnswerMargin{2};

}  // namespace

Status GatewayStore::set(const std::string& key, ByteSpan value) {
  if (send_(make_key_set(key, value))) return {};
  return fail(ErrorCode::kGatewayLost, "set key", key);
}

Result<ByteVector> GatewayStore::wait(const std::string& key, Duration timeout) {
  std::unique_lock lock(mutex_);
  const std::uint64_t id = ++last_request_;
  waiting_.emplace(id, Waiting{});
  lock.unlock();
  const bool is_sent = send_(make_key_wait(id, key, timeout));
  lock.lock();
  if (is_sent) answered_.wait_until(lock, Clock::now() + timeout + kAnswerMargin, [&] { return waiting_.at(id).is_answered; });
  const Waiting waited = std::move(waiting_.at(id));
  waiting_.erase(id);
  if (!is_sent) return fail(ErrorCode::kGatewayLost, "wait for key", key);
  if (!waited.is_answered || !waited.answer.is_found) return fail(ErrorCode::kTimeout, "wait for key", key);
  return waited.answer.value;
}

void GatewayStore::on_value(KeyValue&& value) {
  const std::lock_guard lock(mutex_);
  const auto found = waiting_.find(value.request_id);
  if (found == waiting_.end()) return;
  found->second.answer = std::move(value);
  found->second.is_answered = true;
  answered_.notify_all();
}

void GatewayStore::on_link_lost() {
  const std::lock_guard lock(mutex_);
  for (auto& [id, waiting] : waiting_) waiting.is_answered = true;
  answered_.notify_all();
}

}  // namespace sluice::site_agent
