#pragma once

// RatioController: bits, step, codec, plan and owners of the next round from the sites' sketches and what is known of their links. The
// rules are in docs/reference/ratio.md. Pure; not thread-safe: owned by a RoundMachine. Every site's machine lets its controller learn from
// each round that is opened, so that any of them can open the next. It draws no randomness and reads no clock.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "compression/sketch.h"
#include "sync/rate_plan.h"
#include "topology/wan_planner.h"

namespace sluice::sync {

enum class RateRegime : std::uint8_t { kDense = 0, kSparse = 1 };

// From the configuration; the same at all sites.
struct RatePolicy {
  bool is_auto = false;
  std::uint8_t codec = 0;  // compression::Codec of contributions
  double bits = 2.0;       // fixed: mean over the members; auto: until links and step time are known
  double min_bits = 1.0;
  double max_bits = 8.0;
  RateRegime regime = RateRegime::kDense;
  bool may_relay = true;            // frames may go over third sites
  double residual_share = 1.0;      // of what coding leaves out, that goes into the next contribution
  std::uint32_t warmup_rounds = 0;  // first rounds, at kWarmupBits
  double time_share = 0.1;          // of the inner steps' time that an exchange may take
  Duration time_budget{};           // time of an exchange, in place of time_share; 0 = not set
};

inline constexpr double kWarmupBits = 8.0;
// Owner slots of a round: shares of the chunks in steps of 1/64.
inline constexpr std::size_t kOwnerSlotsMax = 64;

// One member of the round to be opened.
struct RateMember {
  SiteId site;
  std::shared_ptr<const compression::Sketch> sketch;  // may be null
  double weight_scale = 1.0;                          // sketched values times this are what is coded
  SiteReport report;
};

struct RateDecision {
  float step = 0.0F;                                            // 0 with BF16 and RAW32
  std::uint8_t codec = 0;                                       // compression::Codec
  topology::PlanKind plan_kind = topology::PlanKind::kSharded;  // of the record: with detours, too, sums are their owners'
  std::vector<SiteId> owners;
  RatePlan plan;
  // How the frames travel, detours counted.
  [[nodiscard]] topology::PlanKind way() const { return plan.detours.empty() ? plan_kind : topology::PlanKind::kRelay; }
};

class RatioController {
 public:
  explicit RatioController(RatePolicy policy) : policy_(policy) {}

  // The decision for `round`. Does not change the controller: it may be asked often and not be followed.
  // `may_be_direct`: in a direct round a site that is no member gets no update but on request, after the commit.
  // REQUIRES: members not empty, by site ascending; chunks >= 1.
  [[nodiscard]] RateDecision decide(RoundId round, const std::vector<RateMember>& members, std::uint64_t values, std::uint32_t chunks,
                                    bool may_be_direct = true) const;

  // A round was opened with this decision (its plan as the record carries it); `members` as far as this site knows them.
  void learn(RoundId round, const RateDecision& opened, const std::vector<RateMember>& members, std::uint64_t values, std::uint32_t chunks);

  // What past rounds have taught.
  struct MemberMemory {
    double predicted_bits = 0.0;   // of the last opened round, from its sketch alone; 0 = unknown
    double residual_energy = 0.0;  // mean square of what coding left out of it
    double delta_energy = 0.0;     // mean square of its weighted delta, estimated
  };
  struct Memory {
    std::optional<RoundId> round;  // last opened
    RateDecision opened;
    std::array<std::optional<MemberMemory>, kSitesMax> members;
    double predicted_update_bits = 0.0;
    // Corrections, smoothed over the rounds.
    std::array<double, kSitesMax> correction{};  // measured over predicted bits; 0 = none yet
    std::optional<double> update_excess;         // measured less predicted bits of the update
    // Seconds that the last exchanges took beside their transfer: at the links' low rates, and at the usual ones, where less than nothing
    // means that the links carried more than was known of them.
    struct ExchangeTime {
      double overhead = 0.0;
      double surplus = 0.0;
    };
    std::vector<ExchangeTime> exchanges;
    double residual_floor = 0.0;  // bits that the residual guard asks for; 0 = none
    bool has_norm_changed = false;
    double grid_encode_seconds = 0.0;  // slowest member's, when a grid was coded last; 0 = unknown
  };

 private:
  // The memory with what the members report of the last round worked in.
  [[nodiscard]] Memory observed(const std::vector<RateMember>& members, std::uint64_t values, std::uint32_t chunks) const;

  RatePolicy policy_;
  Memory memory_;
};

}  // namespace sluice::sync
