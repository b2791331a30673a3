#include "gateway/peer_routes.h"

#include <utility>

#include "base/assert.h"

namespace sluice::gateway {

PeerRoutes::PeerRoutes(SiteId self, std::uint16_t sites, bool may_relay)
    : self_(self), sites_(sites), may_relay_(may_relay), reach_(sites), hops_(sites) {}

std::vector<RouteChange> PeerRoutes::set_direct(SiteId peer, bool is_up) {
  SLUICE_ASSERT(is_peer(peer), "site {} of {}", peer, sites_);
  if (is_up) {
    direct_.insert(peer);
  } else {
    direct_.erase(peer);
    reach_[peer.value] = SiteSet();
  }
  return update();
}

std::vector<RouteChange> PeerRoutes::set_reach(SiteId peer, SiteSet up) {
  SLUICE_ASSERT(is_peer(peer), "site {} of {}", peer, sites_);
  if (!direct_.contains(peer)) return {};
  reach_[peer.value] = up;
  return update();
}

bool PeerRoutes::may_pass_on(SiteId from, SiteId to) const {
  return may_relay_ && from != to && is_peer(from) && is_peer(to) && direct_.contains(from) && direct_.contains(to);
}

bool PeerRoutes::leads_over(SiteId site, SiteId over) const {
  return may_relay_ && over != site && is_peer(over) && is_peer(site) && direct_.contains(site) && direct_.contains(over) &&
         reach_[over.value].contains(site) && reach_[site.value].contains(over);
}

bool PeerRoutes::may_take(SiteId origin, SiteId by) const {
  return may_relay_ && origin != by && is_peer(origin) && is_peer(by) && direct_.contains(by);
}

std::optional<SiteId> PeerRoutes::choose(SiteId site) const {
  if (direct_.contains(site)) return site;
  if (!may_relay_) return std::nullopt;
  const auto leads_there = [&](SiteId middle) {
    return middle != site && is_peer(middle) && direct_.contains(middle) && reach_[middle.value].contains(site);
  };
  // A way that still leads there stays: each change of way costs what is on it.
  if (const auto now = hops_[site.value]; now && leads_there(*now)) return now;
  for (std::uint16_t middle = 0; middle < sites_; ++middle) {
    if (leads_there(SiteId(middle))) return SiteId(middle);
  }
  return std::nullopt;
}

std::vector<RouteChange> PeerRoutes::update() {
  std::vector<RouteChange> changes;
  for (std::uint16_t index = 0; index < sites_; ++index) {
    const SiteId site(index);
    if (site == self_) continue;
    const std::optional<SiteId> next = choose(site);
    const std::optional<SiteId> before = std::exchange(hops_[index], next);
    if (before == next) continue;
    changes.push_back({site, !before ? RouteEvent::kUp : !next ? RouteEvent::kDown : RouteEvent::kMoved});
  }
  return changes;
}

}  // namespace sluice::gateway
