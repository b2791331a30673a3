#include "topology/wan_planner.h"

// The programs. Let u_j = s_j / t be the share that j owns for each second of the round. A link i -> j carries, for each second,
//     D_ij(u) = u_j * contribution_i + u_i * update
// and may carry its rate. Maximising the sum of u (which is 1 / t, as the shares add up to 1) under these rows gives the fastest shares
// exactly. Detours add variables x_ijk, bits for each second from i to j over k: they leave link i -> j, load i -> k and k -> j, and are at
// most D_ij. Send limits are one more row for each site. All rows have a right side from 0 up, so that the program starts at u = 0.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/assert.h"
#include "topology/internal/linear_program.h"

namespace sluice::topology {
namespace {

constexpr double kSimplerWithin = 1.02;
constexpr double kShareMin = 1e-6;

template <typename Visit>
void for_each_link(std::size_t sites, Visit visit) {
  for (std::size_t from = 0; from < sites; ++from) {
    for (std::size_t to = 0; to < sites; ++to) {
      if (from != to) visit(from, to);
    }
  }
}

// What `from` has for `to` when owners sum, whatever way it goes.
double own_bits(const WanTraffic& traffic, const std::vector<double>& shares, std::size_t from, std::size_t to) {
  return shares[to] * traffic.contributions[from] + shares[from] * traffic.update;
}

// Rates and bits come in very different sizes: the program works in units of the fastest link and of the largest contribution.
struct Units {
  Units(const WanMatrix& matrix, const WanTraffic& traffic) : bits(traffic.update) {
    for (const double each : traffic.contributions) bits = std::max(bits, each);
    for_each_link(matrix.sites(), [&](std::size_t from, std::size_t to) { rate = std::max(rate, matrix.rate(from, to)); });
  }
  double rate = 0.0;
  double bits = 0.0;
};

// Detour variables behind the shares: (from, to, over) with all three different.
class DetourIndex {
 public:
  DetourIndex(std::size_t sites, std::size_t first) : sites_(sites), first_(first) {}
  [[nodiscard]] std::size_t count() const { return sites_ * sites_ * sites_; }
  [[nodiscard]] std::size_t at(std::size_t from, std::size_t to, std::size_t over) const {
    return first_ + (from * sites_ + to) * sites_ + over;
  }

 private:
  std::size_t sites_;
  std::size_t first_;
};

class ShareProgram {
 public:
  ShareProgram(const WanMatrix& matrix, const WanTraffic& traffic, bool has_detours)
      : matrix_(matrix),
        traffic_(traffic),
        units_(matrix, traffic),
        sites_(matrix.sites()),
        detours_(sites_, sites_),
        has_detours_(has_detours),
        program_(sites_ + (has_detours ? detours_.count() : 0)) {
    for (std::size_t site = 0; site < sites_; ++site) program_.set_goal(site, 1.0);
    for_each_link(sites_, [&](std::size_t from, std::size_t to) { add_link(from, to); });
    for (std::size_t site = 0; site < sites_; ++site) add_send_limit(site);
  }

  [[nodiscard]] WanPlan solve() const {
    const LinearProgram::Solution solution = program_.maximise();
    WanPlan plan;
    plan.shares.assign(solution.values.begin(), solution.values.begin() + static_cast<std::ptrdiff_t>(sites_));
    const double sum = std::accumulate(plan.shares.begin(), plan.shares.end(), 0.0);
    SLUICE_ASSERT(sum > 0.0, "no link carries anything");
    for (double& share : plan.shares) share = share / sum < kShareMin ? 0.0 : share / sum;
    plan.transfer_seconds = units_.bits / units_.rate / sum;
    if (has_detours_) read_detours(solution, sum, plan);
    return plan;
  }

 private:
  void add_demand(std::size_t row, std::size_t from, std::size_t to, double sign) {
    program_.add(row, to, sign * traffic_.contributions[from] / units_.bits);
    program_.add(row, from, sign * traffic_.update / units_.bits);
  }

  void add_load(std::size_t row, std::size_t from, std::size_t to) {
    add_demand(row, from, to, 1.0);
    if (!has_detours_) return;
    for (std::size_t third = 0; third < sites_; ++third) {
      if (third == from || third == to) continue;
      program_.add(row, detours_.at(from, to, third), -1.0);
      program_.add(row, detours_.at(from, third, to), 1.0);  // first half of a way over `to`
      program_.add(row, detours_.at(third, to, from), 1.0);  // second half of a way over `from`
    }
  }

  void add_link(std::size_t from, std::size_t to) {
    add_load(program_.add_row(matrix_.rate(from, to) / units_.rate), from, to);
    if (!has_detours_) return;
    const std::size_t row = program_.add_row(0.0);
    add_demand(row, from, to, -1.0);
    for (std::size_t third = 0; third < sites_; ++third) {
      if (third != from && third != to) program_.add(row, detours_.at(from, to, third), 1.0);
    }
  }

  void add_send_limit(std::size_t site) {
    if (matrix_.send_limit(site) <= 0.0) return;
    const std::size_t row = program_.add_row(matrix_.send_limit(site) / units_.rate);
    for (std::size_t to = 0; to < sites_; ++to) {
      if (to != site) add_load(row, site, to);
    }
  }

  void read_detours(const LinearProgram::Solution& solution, double sum, WanPlan& plan) const {
    for_each_link(sites_, [&](std::size_t from, std::size_t to) {
      const double demand = own_bits(traffic_, plan.shares, from, to) / units_.bits * sum;
      if (demand <= 0.0) return;
      for (std::size_t over = 0; over < sites_; ++over) {
        if (over == from || over == to) continue;
        const double share = solution.values[detours_.at(from, to, over)] / demand;
        if (share > kShareMin) plan.detours.push_back({from, to, over, std::min(1.0, share)});
      }
    });
  }

  const WanMatrix& matrix_;
  const WanTraffic& traffic_;
  Units units_;
  std::size_t sites_;
  DetourIndex detours_;
  bool has_detours_;
  LinearProgram program_;
};

void check(const WanMatrix& matrix, const WanTraffic& traffic) {
  SLUICE_ASSERT(matrix.sites() >= 2 && matrix.sites() <= 16 && traffic.contributions.size() == matrix.sites(), "{} sites, {} contributions",
                matrix.sites(), traffic.contributions.size());
  SLUICE_ASSERT(matrix.is_complete() && traffic.update > 0.0);
  for (const double bits : traffic.contributions) SLUICE_ASSERT(bits > 0.0);
}

// Whatever the shares and ways: all that leaves or reaches a site passes its links. Over all sites together the demand does not depend on
// the shares: each contribution leaves (1 - own share) of its bits and each share of the update goes to all others.
double transfer_bound(const WanMatrix& matrix, const WanTraffic& traffic) {
  const std::size_t sites = matrix.sites();
  double rate = 0.0;
  for_each_link(sites, [&](std::size_t from, std::size_t to) { rate += matrix.rate(from, to); });
  double least = traffic.contributions.front();
  double bits = traffic.update * static_cast<double>(sites - 1);
  double largest = 0.0;
  for (const double each : traffic.contributions) {
    bits += each;
    least = std::min(least, each);
    largest = std::max(largest, each);
  }
  return (bits - largest) / rate;  // at best the largest contribution stays at home whole
}

}  // namespace

bool WanMatrix::is_complete() const {
  bool complete = true;
  for_each_link(sites_, [&](std::size_t from, std::size_t to) { complete = complete && rate(from, to) > 0.0; });
  return complete;
}

double WanMatrix::rtt_max() const { return rtts_.empty() ? 0.0 : *std::max_element(rtts_.begin(), rtts_.end()); }

std::string_view plan_kind_name(PlanKind kind) {
  switch (kind) {
    case PlanKind::kDirect:
      return "direct";
    case PlanKind::kSharded:
      return "sharded";
    case PlanKind::kRelay:
      return "relay";
  }
  return "sharded";
}

double plan_round_trips(PlanKind kind) {
  switch (kind) {
    case PlanKind::kDirect:
      return kDirectRoundTrips;
    case PlanKind::kSharded:
      return kShardedRoundTrips;
    case PlanKind::kRelay:
      return kRelayRoundTrips;
  }
  return kShardedRoundTrips;
}

double plan_link_bits(const WanTraffic& traffic, const WanPlan& plan, std::size_t from, std::size_t to) {
  if (plan.kind == PlanKind::kDirect) return traffic.contributions[from];
  double bits = own_bits(traffic, plan.shares, from, to);
  for (const Detour& detour : plan.detours) {
    const double detoured = detour.share * own_bits(traffic, plan.shares, detour.from, detour.to);
    if (detour.from == from && detour.to == to) bits -= detoured;
    if ((detour.from == from && detour.over == to) || (detour.over == from && detour.to == to)) bits += detoured;
  }
  return std::max(0.0, bits);
}

double plan_transfer_seconds(const WanMatrix& matrix, const WanTraffic& traffic, const WanPlan& plan) {
  double seconds = 0.0;
  std::vector<double> sent(matrix.sites(), 0.0);
  for_each_link(matrix.sites(), [&](std::size_t from, std::size_t to) {
    const double bits = plan_link_bits(traffic, plan, from, to);
    sent[from] += bits;
    if (matrix.rate(from, to) > 0.0) seconds = std::max(seconds, bits / matrix.rate(from, to));
  });
  for (std::size_t site = 0; site < matrix.sites(); ++site) {
    if (matrix.send_limit(site) > 0.0) seconds = std::max(seconds, sent[site] / matrix.send_limit(site));
  }
  return seconds;
}

WanPlan plan_direct(const WanMatrix& matrix, const WanTraffic& traffic) {
  check(matrix, traffic);
  WanPlan plan;
  plan.kind = PlanKind::kDirect;
  plan.transfer_seconds = plan_transfer_seconds(matrix, traffic, plan);
  plan.seconds = plan.transfer_seconds + kDirectRoundTrips * matrix.rtt_max();
  return plan;
}

WanPlan plan_sharded(const WanMatrix& matrix, const WanTraffic& traffic) {
  check(matrix, traffic);
  WanPlan plan = ShareProgram(matrix, traffic, false).solve();
  plan.kind = PlanKind::kSharded;
  plan.seconds = plan.transfer_seconds + kShardedRoundTrips * matrix.rtt_max();
  return plan;
}

WanPlan plan_relay(const WanMatrix& matrix, const WanTraffic& traffic) {
  check(matrix, traffic);
  if (matrix.sites() > kExactSitesMax) {
    WanPlan plan = plan_sharded(matrix, traffic);
    plan.bound_seconds = transfer_bound(matrix, traffic);
    return plan;
  }
  WanPlan plan = ShareProgram(matrix, traffic, true).solve();
  plan.kind = plan.detours.empty() ? PlanKind::kSharded : PlanKind::kRelay;
  plan.seconds = plan.transfer_seconds + plan_round_trips(plan.kind) * matrix.rtt_max();
  return plan;
}

WanPlan plan_wan(const WanMatrix& matrix, const WanTraffic& traffic) {
  WanPlan best = plan_sharded(matrix, traffic);
  if (WanPlan direct = plan_direct(matrix, traffic); direct.seconds * kSimplerWithin < best.seconds) best = std::move(direct);
  WanPlan relay = plan_relay(matrix, traffic);
  if (relay.kind == PlanKind::kRelay && relay.seconds * kSimplerWithin < best.seconds) best = std::move(relay);
  if (relay.bound_seconds) best.bound_seconds = relay.bound_seconds;
  return best;
}

std::vector<std::size_t> spread_owners(const std::vector<double>& shares, std::size_t slots) {
  SLUICE_ASSERT(!shares.empty() && slots >= 1);
  // Each slot goes to whoever is furthest behind its share: every prefix is within one slot of the shares.
  std::vector<double> given(shares.size(), 0.0);
  std::vector<std::size_t> owners;
  owners.reserve(slots);
  for (std::size_t slot = 1; slot <= slots; ++slot) {
    std::size_t next = 0;
    double furthest = -1.0;
    for (std::size_t site = 0; site < shares.size(); ++site) {
      const double behind = shares[site] * static_cast<double>(slot) - given[site];
      if (shares[site] > 0.0 && behind > furthest + 1e-12) {
        furthest = behind;
        next = site;
      }
    }
    given[next] += 1.0;
    owners.push_back(next);
  }
  return owners;
}

}  // namespace sluice::topology
