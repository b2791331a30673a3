#pragma once

// Coordination: this gateway's way to the run's register. With the `local` store the register itself lives here when this site is the store
// site (journalled before it answers), and every change is told to all peers; elsewhere this is the client that asks the store site. Not
// thread-safe; owned by the gateway's loop. It sends through the hooks and never blocks on the network; a journal write is synchronous.

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "proto/peer.pb.h"
#include "sync/round_record.h"

namespace sluice::gateway {

struct CoordinationHooks {
  std::function<void(SiteId, const wire::PeerMessage&)> send;
  std::function<void(const wire::PeerMessage&)> broadcast;
  // The register has this value now (or had: versions only grow).
  std::function<void(const sync::RoundRecord&)> on_record;
  std::function<void()> on_store_found;
  std::function<void(std::string reason)> on_store_lost;
  // Durable before it returns. Called on the store site only, for epochs, commits and aborts.
  std::function<Status(const sync::RoundRecord&)> journal;
  // The store cannot write and decides nothing (a text that changes with the reason), or it can again (empty).
  std::function<void(const std::string& why)> on_trouble;
};

class Coordination {
 public:
  // `recovered` is the journal's last record, whole only at the store site. REQUIRES: site ids below `sites`.
  Coordination(SiteId self, SiteId store_site, std::uint16_t sites, const sync::RoundRecord& recovered, CoordinationHooks hooks);

  // Store site: begins the new epoch in the journal and reports the register. Elsewhere nothing.
  // Errors: those of the journal.
  Status start();

  void compare_and_set(std::uint64_t expected_version, const sync::RoundRecord& next);

  void on_peer_up(SiteId peer);
  void on_peer_down(SiteId peer, const std::string& reason);
  // Takes StoreCas, StoreReply and StoreEvent. Errors: kWireBadMessage, or kPeerNotEntitled when the sender is not the store (or this is
  // not).
  Status on_message(SiteId from, const wire::PeerMessage& message);

  // While the store cannot write its journal, everybody who asked is told the register again once a second, and asks again.
  void on_time(TimePoint now);
  [[nodiscard]] std::optional<TimePoint> next_deadline() const { return retry_at_; }

  [[nodiscard]] bool is_store() const { return store_.has_value(); }

 private:
  // The outcome and the register's value afterwards.
  sync::RegisterStore::Outcome decide(std::uint64_t expected_version, const sync::RoundRecord& next);
  void announce_register();
  void set_trouble(const std::string& why);

  SiteId self_;
  SiteId store_site_;
  std::uint16_t sites_;
  CoordinationHooks hooks_;
  std::optional<sync::RegisterStore> store_;
  std::uint64_t next_request_id_ = 1;
  std::optional<TimePoint> retry_at_;  // the journal has failed
  std::string trouble_;
};

}  // namespace sluice::gateway
