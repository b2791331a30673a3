#pragma once

// RatePlan: what whoever opens a round decided about its rate, and why; carried by the round's record so that every site can show it and
// the next opener can go on from it. Also what the sites report for that decision. Plain values, any thread.
// Rates are bits per second as the receiver counts them; 0 = not known.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"

namespace sluice::sync {

enum class RateReason : std::uint8_t {
  kFixed = 0,       // the configuration fixes the bits
  kWarmup = 1,      // one of the first rounds
  kBudget = 2,      // a link's budget sets the bits
  kCeiling = 3,     // every link has room for max_bits
  kFloor = 4,       // the budget would allow less than min_bits
  kUnknown = 5,     // no link has been measured, or the time of the steps is not known
  kNormChange = 6,  // the deltas have changed sharply: twice the bits
  kResidual = 7,    // residuals have grown large beside the deltas: more bits, step by step
  kCodecCost = 8,   // coding would take longer than it saves: BF16 or RAW32
  kNoSketch = 9,    // no site sent a sketch: bits follow those of the last round
};
// "fixed", "warm-up", "budget", "ceiling", "floor", "unknown", "norm change", "residual", "codec cost", "no sketch".
std::string_view rate_reason_name(RateReason reason);

// One directed link in a round.
struct LinkPlan {
  SiteId from;
  SiteId to;
  double rate = 0.0;             // counted on
  double budget_bytes = 0.0;     // that fit the round's time; 0 = not known
  double predicted_bytes = 0.0;  // at the step chosen, headers and TLS included
  bool operator==(const LinkPlan&) const = default;
};

// This share of the frames that go from `from` to `to` takes the way over `over`.
struct DetourPlan {
  SiteId from;
  SiteId to;
  SiteId over;
  double share = 0.0;
  bool operator==(const DetourPlan&) const = default;
};

// The site over which the frames of this chunk go from one site to the other; nothing: on their own link. Which chunks take a way is spread
// evenly over them and follows from their numbers alone.
std::optional<SiteId> detour_of(const std::vector<DetourPlan>& detours, SiteId from, SiteId to, ChunkId chunk);

struct RatePlan {
  RateReason reason = RateReason::kFixed;
  double target_bits = 0.0;          // per value of a contribution, mean over the members
  double update_bits = 0.0;          // per value of the coded sum
  double budget_seconds = 0.0;       // for the exchange; 0 = none
  double predicted_seconds = 0.0;    // from opening to commit; 0 = not known
  double overhead_seconds = 0.0;     // of budget_seconds: what is not left to the transfer (round trips, coding)
  std::optional<SiteId> limit_from;  // the link that sets the bits, when one does
  std::optional<SiteId> limit_to;
  std::vector<LinkPlan> links;
  std::vector<DetourPlan> detours;  // only with owners
  std::string text;                 // the reason for people; sites appear as "site N"
  bool operator==(const RatePlan&) const = default;
};

// What a site says of one of its links, from itself to `to`.
struct LinkReport {
  SiteId to;
  double low_rate = 0.0;
  double median_rate = 0.0;
  Duration rtt_min{};  // 0 = not known
  Duration rtt_p50{};
  Duration rtt_p95{};
  Duration jitter{};
  double loss = 0.0;
  double confidence = 0.0;
  Duration age{};
  std::uint8_t method = 0;  // topology::EstimateMethod
};

// What a site knows when it is ready for a round, beside its delta.
struct SiteReport {
  std::vector<LinkReport> links;
  Duration compute{};       // from the last update to this readiness; 0 = not known
  Duration encode{};        // coding of the last contribution; 0 = not known
  double rate_limit = 0.0;  // what the site may send, all links together; 0 = no limit
  RoundId measured_round;   // the last committed round, of which the rest speaks; 0 = none
  double contribution_bits = 0.0;
  double update_bits = 0.0;
  Duration exchange{};  // from opening to commit, seen here
};

}  // namespace sluice::sync
