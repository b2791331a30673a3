#pragma once

// One decision of the ratio controller, step by step. Built, asked once, thrown away; pure.

#include <string>
#include <vector>

#include "sync/internal/rate_model.h"
#include "sync/ratio_controller.h"

namespace sluice::sync {

class RateDecider {
 public:
  RateDecider(const RatePolicy& policy, const RatioController::Memory& memory, RoundId round, const std::vector<RateMember>& members,
              std::uint64_t values, std::uint32_t chunks, bool may_be_direct);

  [[nodiscard]] RateDecision decide();

 private:
  struct Candidate {
    float step = 1.0F;
    RateBits bits;
  };
  void measure_links();
  void set_budget();
  void choose_fixed();
  void choose_auto();
  void choose_by_budget();
  void apply_guards();
  void choose_codec();
  struct Way {
    topology::PlanKind kind = topology::PlanKind::kSharded;
    std::vector<SiteId> owners;
    std::vector<DetourPlan> detours;  // with kRelay
  };
  [[nodiscard]] topology::WanPlan plan_of(const Way& way) const;
  [[nodiscard]] double taken_share(const Way& way, const DetourPlan& detour) const;
  [[nodiscard]] std::size_t index_of(SiteId site) const;
  [[nodiscard]] std::vector<Way> possible_ways() const;
  [[nodiscard]] Way opened_way() const;
  [[nodiscard]] std::optional<Way> planned_relay() const;
  [[nodiscard]] static Way without_slow_links(Way way);
  [[nodiscard]] bool can_stay() const;
  void start_way();
  void choose_way();
  void take_way(Way way);
  [[nodiscard]] std::vector<SiteId> planned_owners(const topology::WanPlan& plan) const;
  [[nodiscard]] double way_seconds(const topology::WanPlan& way) const;
  [[nodiscard]] std::string way_text() const;
  void fill_links();
  void set_step(float step);
  void set_bits(double target, RateReason reason, std::string text);
  [[nodiscard]] bool fits_budgets(const RateBits& bits) const;
  [[nodiscard]] double floor_bits() const;
  [[nodiscard]] double counted_overhead() const;
  [[nodiscard]] double held_available(double seconds) const;
  [[nodiscard]] double usual_surplus() const;
  [[nodiscard]] double usual_seconds() const;
  [[nodiscard]] double link_rate(std::size_t from, std::size_t to) const;
  [[nodiscard]] double held_rate(SiteId from, SiteId to, double reported) const;
  [[nodiscard]] double compute_seconds() const;
  void find_limit();
  [[nodiscard]] bool is_grid() const;

  const RatePolicy& policy_;
  const RatioController::Memory& memory_;
  RoundId round_;
  const std::vector<RateMember>& members_;
  std::uint32_t chunks_;
  bool may_be_direct_;
  RateModel model_;
  topology::WanMatrix matrix_;        // what can be counted on
  topology::WanMatrix usual_matrix_;  // what to expect
  bool is_any_rate_known_ = false;
  bool are_all_rates_known_ = false;
  double available_seconds_ = 0.0;  // of the budget, for transfer
  topology::WanPlan way_;           // how the round's frames travel: kind and shares of decision_
  double overhead_shift_ = 0.0;     // of past rounds' overheads, which had another kind of plan
  RateBits bits_;
  RateDecision decision_;
};

}  // namespace sluice::sync
