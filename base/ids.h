#pragma once

// Strong ids: a RoundId is not an EpochId, and neither is a count. Value types, any thread.

#include <fmt/format.h>

#include <compare>
#include <cstdint>
#include <functional>

namespace sluice {

template <typename Tag, typename Number>
struct StrongId {
  Number value = 0;

  constexpr StrongId() = default;
  constexpr explicit StrongId(Number number) : value(number) {}
  constexpr auto operator<=>(const StrongId&) const = default;
  [[nodiscard]] constexpr StrongId next() const { return StrongId(static_cast<Number>(value + 1)); }
};

// Index of a site in the run's configuration, 0 .. kSitesMax - 1, the same at every site.
using SiteId = StrongId<struct SiteIdTag, std::uint16_t>;
// One exchange of one fragment. Starts at 1; 0 means "nothing committed yet".
using RoundId = StrongId<struct RoundIdTag, std::uint64_t>;
// Grows at each change of membership and each start of the coordination store.
using EpochId = StrongId<struct EpochIdTag, std::uint64_t>;
// Index of a chunk of the flattened parameter vector.
using ChunkId = StrongId<struct ChunkIdTag, std::uint32_t>;
// Index of a training process inside its site.
using RankId = StrongId<struct RankIdTag, std::uint32_t>;

// At most this many sites in a run (README: two to sixteen datacentres); a SiteSet holds one bit for each.
inline constexpr std::uint16_t kSitesMax = 16;

// A set of sites, one bit each. Value type.
struct SiteSet {
  std::uint32_t bits = 0;

  constexpr auto operator<=>(const SiteSet&) const = default;
  [[nodiscard]] constexpr bool contains(SiteId site) const { return ((bits >> site.value) & 1U) != 0; }
  [[nodiscard]] constexpr bool contains_all(SiteSet other) const { return (bits & other.bits) == other.bits; }
  [[nodiscard]] constexpr bool empty() const { return bits == 0; }
  [[nodiscard]] constexpr int size() const { return __builtin_popcount(bits); }
  constexpr void insert(SiteId site) { bits |= 1U << site.value; }
  constexpr void erase(SiteId site) { bits &= ~(1U << site.value); }
  [[nodiscard]] constexpr SiteSet intersect(SiteSet other) const { return SiteSet{bits & other.bits}; }
  [[nodiscard]] constexpr SiteSet unite(SiteSet other) const { return SiteSet{bits | other.bits}; }
  [[nodiscard]] constexpr SiteSet minus(SiteSet other) const { return SiteSet{bits & ~other.bits}; }
  // Calls visit(SiteId) for each member in ascending order.
  template <typename Visit>
  constexpr void for_each(Visit&& visit) const {
    for (std::uint16_t index = 0; index < kSitesMax; ++index) {
      if (contains(SiteId(index))) visit(SiteId(index));
    }
  }
};

}  // namespace sluice

template <typename Tag, typename Number>
struct std::hash<sluice::StrongId<Tag, Number>> {
  std::size_t operator()(const sluice::StrongId<Tag, Number>& id) const noexcept { return std::hash<Number>{}(id.value); }
};

template <typename Tag, typename Number>
struct fmt::formatter<sluice::StrongId<Tag, Number>> : fmt::formatter<Number> {
  template <typename Context>
  auto format(const sluice::StrongId<Tag, Number>& id, Context& context) const {
    return fmt::formatter<Number>::format(id.value, context);
  }
};
