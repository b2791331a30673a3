#pragma once

// How the frames of a round travel between the sites, by predicted time. Pure functions and value types, any thread.
//
//     direct    every site sends its whole contribution to every other, and each sums for itself
//     sharded   site j owns the share s_j of the chunks: link i -> j carries s_j * contribution_i + s_i * update
//     relay     sharded, and part of what goes from i to j takes the way over a third site
//
// For up to kExactSitesMax sites shares and relays are the exact optimum of a linear program. Beyond, the shares are (without relays), and
// the plan says how far from a lower bound it is at most.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace sluice::topology {

inline constexpr std::size_t kExactSitesMax = 8;

// Directed links of the sites that take part, by index. Rates in bits per second, 0 = not known; round trips in seconds.
class WanMatrix {
 public:
  explicit WanMatrix(std::size_t sites) : sites_(sites), rates_(sites * sites, 0.0), rtts_(sites * sites, 0.0), limits_(sites, 0.0) {}

  void set(std::size_t from, std::size_t to, double rate, double rtt_seconds) {
    rates_[from * sites_ + to] = rate;
    rtts_[from * sites_ + to] = rtt_seconds;
  }
  // What a site may send at most, all its links together; 0 = no limit.
  void set_send_limit(std::size_t site, double rate) { limits_[site] = rate; }

  [[nodiscard]] std::size_t sites() const { return sites_; }
  [[nodiscard]] double rate(std::size_t from, std::size_t to) const { return rates_[from * sites_ + to]; }
  [[nodiscard]] double rtt(std::size_t from, std::size_t to) const { return rtts_[from * sites_ + to]; }
  [[nodiscard]] double send_limit(std::size_t site) const { return limits_[site]; }
  // Whether every link's rate is known.
  [[nodiscard]] bool is_complete() const;
  [[nodiscard]] double rtt_max() const;

 private:
  std::size_t sites_;
  std::vector<double> rates_;
  std::vector<double> rtts_;
  std::vector<double> limits_;
};

// Bits of a whole contribution of each site, and of the whole update.
struct WanTraffic {
  std::vector<double> contributions;
  double update = 0.0;
};

// Numbers are part of the wire format (RoundRecord.plan_kind).
enum class PlanKind : std::uint8_t { kSharded = 0, kDirect = 1, kRelay = 2 };
// "sharded", "direct", "relay".
std::string_view plan_kind_name(PlanKind kind);

// This share of what goes from `from` to `to` takes the way over `over`.
struct Detour {
  std::size_t from = 0;
  std::size_t to = 0;
  std::size_t over = 0;
  double share = 0.0;
};

struct WanPlan {
  PlanKind kind = PlanKind::kSharded;
  std::vector<double> shares;        // of the chunks, by owner; they add up to 1. Empty with kDirect
  std::vector<Detour> detours;       // with kRelay
  double transfer_seconds = 0.0;     // of the slowest link, without latency
  double seconds = 0.0;              // with the round trips that the kind takes
  std::optional<double> bound_seconds;  // no plan of this kind transfers faster; only where it is not this plan's own time
};

// Round trips from the opening of a round to its commit, beside the transfer itself.
inline constexpr double kShardedRoundTrips = 2.5;
inline constexpr double kDirectRoundTrips = 2.0;
inline constexpr double kRelayRoundTrips = 3.5;  // a way over a third site is one more half round trip in each direction
double plan_round_trips(PlanKind kind);

// Bits on the link in a round with this plan. REQUIRES: from != to.
double plan_link_bits(const WanTraffic& traffic, const WanPlan& plan, std::size_t from, std::size_t to);
// Time of the slowest link or send limit with this plan. Links of unknown rate do not count.
double plan_transfer_seconds(const WanMatrix& matrix, const WanTraffic& traffic, const WanPlan& plan);

// Each REQUIRES: matrix.is_complete(), 2 to 16 sites, contributions.size() == sites, bits > 0.
WanPlan plan_direct(const WanMatrix& matrix, const WanTraffic& traffic);
WanPlan plan_sharded(const WanMatrix& matrix, const WanTraffic& traffic);
WanPlan plan_relay(const WanMatrix& matrix, const WanTraffic& traffic);
// The fastest; the simpler one when they are within 2 % of each other.
WanPlan plan_wan(const WanMatrix& matrix, const WanTraffic& traffic);

// `slots` owners in turn, each as often as its share says as nearly as whole slots allow, spread evenly. chunk c goes to slot c % slots.
// REQUIRES: shares add up to 1, slots >= 1.
std::vector<std::size_t> spread_owners(const std::vector<double>& shares, std::size_t slots);

}  // namespace sluice::topology
