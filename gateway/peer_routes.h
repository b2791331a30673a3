#pragma once

// PeerRoutes: how each other site is reached: by its own link, or over a third site while that link is down. Pure bookkeeping from what
// this site sees of its links and what the others say of theirs; not thread-safe, owned by the gateway's loop.
//
// A way has one site in the middle at most, and a site passes on only what its sender itself made: nothing can go in a circle.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"

namespace sluice::gateway {

enum class RouteEvent : std::uint8_t {
  kUp,     // can be reached now
  kDown,   // cannot be reached any more
  kMoved,  // is reached another way: what was under way may be lost
};

struct RouteChange {
  SiteId site;
  RouteEvent event = RouteEvent::kUp;
  bool operator==(const RouteChange&) const = default;
};

class PeerRoutes {
 public:
  PeerRoutes(SiteId self, std::uint16_t sites, bool may_relay);

  // This site's link to the peer. What changes by it, by site.
  std::vector<RouteChange> set_direct(SiteId peer, bool is_up);
  // The peer says to which sites its links are up; void as soon as the link to the peer is down.
  std::vector<RouteChange> set_reach(SiteId peer, SiteSet up);

  // The site to send to: the site itself, the one in the middle, or nothing when it cannot be reached.
  [[nodiscard]] std::optional<SiteId> next_hop(SiteId site) const { return hops_[site.value]; }
  [[nodiscard]] bool is_reachable(SiteId site) const { return hops_[site.value].has_value(); }
  [[nodiscard]] bool is_relayed(SiteId site) const { return hops_[site.value] && *hops_[site.value] != site; }
  // Sites whose link to this one is up.
  [[nodiscard]] SiteSet direct() const { return direct_; }
  // Whether frames for the site may go over `over` to spare the own link, which is up: both sites say that the link between them is, and
  // that they take part in this (a site that does not says nothing of its links).
  [[nodiscard]] bool leads_over(SiteId site, SiteId over) const;
  // Whether this site may pass something of `from` on to `to`.
  [[nodiscard]] bool may_pass_on(SiteId from, SiteId to) const;
  // Whether something of `origin` that came over `by` is taken.
  [[nodiscard]] bool may_take(SiteId origin, SiteId by) const;

 private:
  [[nodiscard]] std::optional<SiteId> choose(SiteId site) const;
  [[nodiscard]] bool is_peer(SiteId site) const { return site.value < sites_ && site != self_; }
  std::vector<RouteChange> update();

  SiteId self_;
  std::uint16_t sites_;
  bool may_relay_;
  SiteSet direct_;
  std::vector<SiteSet> reach_;               // by site: what it says of its links
  std::vector<std::optional<SiteId>> hops_;  // by site
};

}  // namespace sluice::gateway
