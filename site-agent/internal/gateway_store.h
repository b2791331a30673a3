#pragma once

// The rendezvous of the site's ranks through their gateway: KeySet, KeyWait and KeyValue on the agent's connection. Training thread
// waits, IO thread answers; thread-safe.

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>

#include "site-agent/internal/messages.h"
#include "sync/collectives.h"

namespace sluice::site_agent {

class GatewayStore final : public sync::KeyValueStore {
 public:
  // `send` hands a record to the connection that is up, or returns false.
  explicit GatewayStore(std::function<bool(ByteVector)> send) : send_(std::move(send)) {}

  Status set(const std::string& key, ByteSpan value) override;
  Result<ByteVector> wait(const std::string& key, Duration timeout) override;

  // IO thread.
  void on_value(KeyValue&& value);
  void on_link_lost();

 private:
  struct Waiting {
    bool is_answered = false;
    KeyValue answer;
  };

  std::function<bool(ByteVector)> send_;
  std::mutex mutex_;
  std::condition_variable answered_;
  std::map<std::uint64_t, Waiting> waiting_;
  std::uint64_t last_request_ = 0;
};

}  // namespace sluice::site_agent
