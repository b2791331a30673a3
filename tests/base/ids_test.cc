// Goal: ids order, hash and print as their numbers but do not mix; sets of sites behave as sets. Method: small cases, all pairs for sets.
#include "base/ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <type_traits>
#include <unordered_set>
#include <vector>

namespace sluice {
namespace {

using ::testing::ElementsAre;

static_assert(!std::is_convertible_v<SiteId, RankId>);
static_assert(!std::is_convertible_v<std::uint64_t, RoundId>);
static_assert(!std::is_constructible_v<RoundId, EpochId>);

TEST(StrongId, OrdersAndCounts) {
  EXPECT_LT(RoundId(1), RoundId(2));
  EXPECT_EQ(RoundId(1).next(), RoundId(2));
  EXPECT_EQ(RoundId(), RoundId(0));
}

TEST(StrongId, PrintsAndHashesAsItsNumber) {
  EXPECT_EQ(fmt::format("{} {:03}", RoundId(7), SiteId(2)), "7 002");
  EXPECT_EQ((std::unordered_set<ChunkId>{ChunkId(1), ChunkId(1), ChunkId(2)}.size()), 2U);
}

SiteSet make_set(std::initializer_list<std::uint16_t> sites) {
  SiteSet set;
  for (const std::uint16_t site : sites) set.insert(SiteId(site));
  return set;
}

TEST(SiteSet, HoldsTheFirstAndTheLastSite) {
  SiteSet set = make_set({0, kSitesMax - 1});
  EXPECT_TRUE(set.contains(SiteId(0)));
  EXPECT_TRUE(set.contains(SiteId(kSitesMax - 1)));
  EXPECT_FALSE(set.contains(SiteId(1)));
  EXPECT_EQ(set.size(), 2);
  set.erase(SiteId(0));
  set.erase(SiteId(5));
  EXPECT_EQ(set, make_set({kSitesMax - 1}));
}

TEST(SiteSet, VisitsMembersInAscendingOrder) {
  std::vector<std::uint16_t> visited;
  make_set({9, 0, 3}).for_each([&](SiteId site) { visited.push_back(site.value); });
  EXPECT_THAT(visited, ElementsAre(0, 3, 9));
}

TEST(SiteSet, OperationsAgreeWithTheirDefinitions) {
  for (std::uint32_t left = 0; left < 16; ++left) {
    for (std::uint32_t right = 0; right < 16; ++right) {
      const SiteSet a{left};
      const SiteSet b{right};
      EXPECT_EQ(a.contains_all(b), b.minus(a).empty());
      EXPECT_EQ(a.unite(b).size(), a.size() + b.size() - a.intersect(b).size());
      EXPECT_EQ(a.minus(b).unite(a.intersect(b)), a);
    }
  }
}

}  // namespace
}  // namespace sluice
