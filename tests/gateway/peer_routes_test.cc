// Goal: a site whose link is down is reached over one that has links to both, nothing goes in a circle, and no way is changed without need.
// Method: links of three and five sites taken down and up in turn.

#include "gateway/peer_routes.h"

#include <gtest/gtest.h>

namespace sluice::gateway {
namespace {

constexpr SiteId kA{0};
constexpr SiteId kB{1};
constexpr SiteId kC{2};
constexpr SiteId kD{3};

using Changes = std::vector<RouteChange>;

SiteSet set_of(std::initializer_list<SiteId> sites) {
  SiteSet set;
  for (const SiteId site : sites) set.insert(site);
  return set;
}

TEST(PeerRoutes, ALinkThatIsDownIsGoneRoundOverAThirdSite) {
  PeerRoutes routes(kA, 3, true);
  EXPECT_EQ(routes.set_direct(kB, true), (Changes{{kB, RouteEvent::kUp}}));
  EXPECT_EQ(routes.set_direct(kC, true), (Changes{{kC, RouteEvent::kUp}}));
  EXPECT_TRUE(routes.set_reach(kC, set_of({kA, kB})).empty());
  EXPECT_EQ(routes.next_hop(kB), kB);
  EXPECT_EQ(routes.set_direct(kB, false), (Changes{{kB, RouteEvent::kMoved}}));
  EXPECT_EQ(routes.next_hop(kB), kC);
  EXPECT_TRUE(routes.is_relayed(kB));
  EXPECT_EQ(routes.set_direct(kB, true), (Changes{{kB, RouteEvent::kMoved}}));
  EXPECT_FALSE(routes.is_relayed(kB));
}

TEST(PeerRoutes, FramesMaySpareALinkThatIsUpWhereAThirdSiteHasBoth) {
  PeerRoutes routes(kA, 4, true);
  routes.set_direct(kB, true);
  routes.set_direct(kC, true);
  EXPECT_FALSE(routes.leads_over(kB, kC));
  routes.set_reach(kC, set_of({kA, kB}));
  EXPECT_FALSE(routes.leads_over(kB, kC)) << "a site that does not say so may refuse what comes that way";
  routes.set_reach(kB, set_of({kA, kC}));
  EXPECT_TRUE(routes.leads_over(kB, kC));
  EXPECT_FALSE(routes.leads_over(kC, kC));
  EXPECT_FALSE(routes.leads_over(kA, kC));
  EXPECT_FALSE(routes.leads_over(kD, kC));
  routes.set_reach(kC, set_of({kA}));
  EXPECT_FALSE(routes.leads_over(kB, kC));
  routes.set_reach(kC, set_of({kA, kB}));
  routes.set_direct(kC, false);
  EXPECT_FALSE(routes.leads_over(kB, kC));
}

TEST(PeerRoutes, WithoutAThirdSiteItIsDown) {
  PeerRoutes routes(kA, 3, true);
  routes.set_direct(kB, true);
  routes.set_direct(kC, true);
  routes.set_reach(kC, set_of({kA}));
  EXPECT_EQ(routes.set_direct(kB, false), (Changes{{kB, RouteEvent::kDown}}));
  EXPECT_FALSE(routes.is_reachable(kB));
  // The third site finds its link to it: a way appears, and goes with the link to the third site.
  EXPECT_EQ(routes.set_reach(kC, set_of({kA, kB})), (Changes{{kB, RouteEvent::kUp}}));
  EXPECT_EQ(routes.set_direct(kC, false), (Changes{{kB, RouteEvent::kDown}, {kC, RouteEvent::kDown}}));
  // What it said before is void when it is back.
  EXPECT_EQ(routes.set_direct(kC, true), (Changes{{kC, RouteEvent::kUp}}));
}

TEST(PeerRoutes, AWayStaysWhileItLeadsThere) {
  PeerRoutes routes(kA, 5, true);
  for (const SiteId peer : {kB, kC, kD}) routes.set_direct(peer, true);
  routes.set_reach(kD, set_of({kA, kB}));
  EXPECT_EQ(routes.set_direct(kB, false), (Changes{{kB, RouteEvent::kMoved}}));
  EXPECT_EQ(routes.next_hop(kB), kD);
  EXPECT_TRUE(routes.set_reach(kC, set_of({kA, kB})).empty());
  EXPECT_EQ(routes.next_hop(kB), kD);
  EXPECT_EQ(routes.set_reach(kD, set_of({kA})), (Changes{{kB, RouteEvent::kMoved}}));
  EXPECT_EQ(routes.next_hop(kB), kC);
}

TEST(PeerRoutes, OnlyWhatASenderMadeItselfIsPassedOnAndOnlyToAnEndOfALink) {
  PeerRoutes routes(kC, 4, true);
  routes.set_direct(kA, true);
  routes.set_direct(kB, true);
  EXPECT_TRUE(routes.may_pass_on(kA, kB));
  EXPECT_FALSE(routes.may_pass_on(kA, kA));
  EXPECT_FALSE(routes.may_pass_on(kA, kC));
  EXPECT_FALSE(routes.may_pass_on(kA, kD));  // no link
  EXPECT_FALSE(routes.may_pass_on(kD, kB));
  EXPECT_FALSE(routes.may_pass_on(kA, SiteId(9)));
  EXPECT_TRUE(routes.may_take(kD, kA));
  EXPECT_FALSE(routes.may_take(kA, kA));
  EXPECT_FALSE(routes.may_take(kC, kA));  // one's own
  EXPECT_FALSE(routes.may_take(SiteId(9), kA));
  // A way over a site that is itself reached over another does not count.
  routes.set_reach(kA, set_of({kB, kC, kD}));
  EXPECT_EQ(routes.next_hop(kD), kA);
  EXPECT_TRUE(routes.set_reach(kD, set_of({kA, kB})).empty());
}

TEST(PeerRoutes, SwitchedOffThereAreOnlyLinks) {
  PeerRoutes routes(kA, 3, false);
  routes.set_direct(kC, true);
  EXPECT_TRUE(routes.set_reach(kC, set_of({kA, kB})).empty());
  EXPECT_FALSE(routes.is_reachable(kB));
  EXPECT_FALSE(routes.may_take(kB, kC));
  PeerRoutes middle(kC, 3, false);
  middle.set_direct(kA, true);
  middle.set_direct(kB, true);
  EXPECT_FALSE(middle.may_pass_on(kA, kB));
}

}  // namespace
}  // namespace sluice::gateway
