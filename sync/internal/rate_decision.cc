#include "sync/internal/rate_decision.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "base/assert.h"
#include "compression/frame.h"

namespace sluice::sync {
namespace {

constexpr double kDeadBand = 0.20;      // a rate or a time this near to the one held is no change
constexpr double kDeadBandStep = 0.25;  // of such a difference the one held follows this share, so that none stays for good
// What is left for the transfer when round trips and coding eat the budget: bits cannot help any further.
constexpr double kTransferShareMin = 0.1;
constexpr double kOwnersGain = 1.05;  // owners change for at least this much
// Coding sets the pace, not the links, where an exchange takes less than this many times as long as it beside it. Then direct rounds, in
// which every site sums everything, cost a little more of it (measured: 9 % with two sites on one machine).
constexpr double kCodingBound = 2.0;
constexpr double kDirectCoding = 1.1;
constexpr std::size_t kExchangesOfPrediction = 3;  // the next round is expected to be like the last ones
constexpr double kDetourShareMin = 0.01;           // less is not worth a way of its own
constexpr std::uint32_t kChunksCountedMax = 1024;  // more divide well enough
constexpr double kCodecGain = 0.8;                 // the codec changes when it takes at most this share of the time
// Writing values as they are, against coding them on the grid.
constexpr double kBf16EncodeShare = 0.15;
constexpr double kRaw32EncodeShare = 0.10;
constexpr double kDenseBitsMin = 1.0;

double to_seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

double follow(double held, double now) { return std::fabs(now / held - 1.0) < kDeadBand ? held + kDeadBandStep * (now - held) : now; }

std::vector<double> corrections(const RatioController::Memory& memory, const std::vector<RateMember>& members) {
  std::vector<double> result;
  for (const RateMember& member : members) {
    const double known = memory.correction[member.site.value];
    result.push_back(known > 0.0 ? known : 1.0);
  }
  return result;
}

std::vector<SiteId> members_in_turn(const std::vector<RateMember>& members) {
  std::vector<SiteId> owners;
  for (const RateMember& member : members) owners.push_back(member.site);
  return owners;
}

}  // namespace

RateDecider::RateDecider(const RatePolicy& policy, const RatioController::Memory& memory, RoundId round,
                         const std::vector<RateMember>& members, std::uint64_t values, std::uint32_t chunks, bool may_be_direct)
    : policy_(policy),
      memory_(memory),
      round_(round),
      members_(members),
      chunks_(chunks),
      may_be_direct_(may_be_direct),
      model_(members, values, chunks, corrections(memory, members), memory.update_excess),
      matrix_(members.size()),
      usual_matrix_(members.size()) {
  SLUICE_ASSERT(!members.empty() && chunks > 0);
}

RateDecision RateDecider::decide() {
  decision_.codec = policy_.codec;
  measure_links();
  start_way();
  set_budget();
  if (policy_.is_auto && is_grid()) {
    choose_auto();
  } else {
    choose_fixed();
  }
  fill_links();
  return std::move(decision_);
}

bool RateDecider::is_grid() const { return compression::is_grid(static_cast<compression::Codec>(decision_.codec)); }

// ---- what is known

double RateDecider::link_rate(std::size_t from, std::size_t to) const {
  for (const LinkReport& link : members_[from].report.links) {
    if (link.to == members_[to].site) return held_rate(members_[from].site, link.to, link.low_rate);
  }
  return 0.0;
}

double RateDecider::held_rate(SiteId from, SiteId to, double reported) const {
  if (reported <= 0.0) return 0.0;
  for (const LinkPlan& last : memory_.opened.plan.links) {
    if (last.from != from || last.to != to || last.rate <= 0.0) continue;
    return follow(last.rate, reported);
  }
  return reported;
}

void RateDecider::measure_links() {
  are_all_rates_known_ = members_.size() > 1;
  for (std::size_t from = 0; from < members_.size(); ++from) {
    matrix_.set_send_limit(from, members_[from].report.rate_limit);
    usual_matrix_.set_send_limit(from, members_[from].report.rate_limit);
    for (std::size_t to = 0; to < members_.size(); ++to) {
      if (from == to) continue;
      double rtt = 0.0;
      double usual = 0.0;
      for (const LinkReport& link : members_[from].report.links) {
        if (link.to != members_[to].site) continue;
        rtt = to_seconds(link.rtt_min);
        usual = link.median_rate;
      }
      matrix_.set(from, to, link_rate(from, to), rtt);
      usual_matrix_.set(from, to, usual, rtt);
      is_any_rate_known_ = is_any_rate_known_ || matrix_.rate(from, to) > 0.0;
      are_all_rates_known_ = are_all_rates_known_ && matrix_.rate(from, to) > 0.0;
    }
  }
}

// The slowest member's: the others wait for it in any case.
double RateDecider::compute_seconds() const {
  double seconds = 0.0;
  for (const RateMember& member : members_) seconds = std::max(seconds, to_seconds(member.report.compute));
  return seconds;
}

// What a round takes beside its transfer, as far as nothing can be done about it.
double RateDecider::counted_overhead() const {
  if (memory_.exchanges.empty()) return topology::plan_round_trips(way_.kind) * matrix_.rtt_max();
  // A low one, not the least: rounds that were held up say nothing of the next, and one may have been lucky.
  std::vector<double> sorted;
  for (const auto& exchange : memory_.exchanges) sorted.push_back(exchange.overhead);
  std::sort(sorted.begin(), sorted.end());
  return std::max(sorted[(sorted.size() - 1) / 4] + overhead_shift_, matrix_.rtt_max());
}

// Overheads differ from round to round by what else the machines do; the bits are not to follow that.
double RateDecider::held_available(double seconds) const {
  const RatePlan& last = memory_.opened.plan;
  const double held = last.budget_seconds - last.overhead_seconds;
  return last.budget_seconds > 0.0 && held > 0.0 ? follow(held, seconds) : seconds;
}

void RateDecider::set_budget() {
  RatePlan& plan = decision_.plan;
  plan.overhead_seconds = counted_overhead();
  if (!policy_.is_auto) return;
  plan.budget_seconds = policy_.time_budget > Duration{} ? to_seconds(policy_.time_budget) : policy_.time_share * compute_seconds();
  if (plan.budget_seconds <= 0.0) return;
  const double available = std::max(plan.budget_seconds - plan.overhead_seconds, kTransferShareMin * plan.budget_seconds);
  available_seconds_ = std::min(held_available(available), plan.budget_seconds);
  plan.overhead_seconds = plan.budget_seconds - available_seconds_;
}

// What the last rounds took beyond the coding and the transfer at usual rates. REQUIRES: memory_.exchanges not empty.
double RateDecider::usual_surplus() const {
  std::vector<double> sorted;
  for (const auto& exchange : std::span(memory_.exchanges).last(std::min(kExchangesOfPrediction, memory_.exchanges.size())))
    sorted.push_back(exchange.surplus);
  std::sort(sorted.begin(), sorted.end());
  return 0.5 * (sorted[sorted.size() / 2] + sorted[(sorted.size() - 1) / 2]) + overhead_shift_;
}

// From opening to commit at the links' usual rates, corrected by what the last rounds took.
double RateDecider::usual_seconds() const {
  const double encode = is_grid() ? memory_.grid_encode_seconds : 0.0;
  const double transfer = std::max(encode, model_.transfer_seconds(bits_, way_, usual_matrix_));
  if (memory_.exchanges.empty()) return transfer + topology::plan_round_trips(way_.kind) * matrix_.rtt_max();
  return std::max(transfer + usual_surplus(), matrix_.rtt_max());
}

double RateDecider::floor_bits() const {
  return policy_.regime == RateRegime::kDense ? std::max(policy_.min_bits, kDenseBitsMin) : policy_.min_bits;
}

// ---- what is decided

void RateDecider::set_step(float step) {
  decision_.step = step;
  bits_ = model_.bits(step);
}

void RateDecider::set_bits(double target, RateReason reason, std::string text) {
  set_step(model_.smallest_step([&](const RateBits& bits) { return bits.mean() <= target; }));
  decision_.plan.reason = reason;
  decision_.plan.text = std::move(text);
}

void RateDecider::choose_fixed() {
  RatePlan& plan = decision_.plan;
  plan.reason = RateReason::kFixed;
  if (!is_grid()) {
    decision_.step = 0.0F;
    bits_ = plain_bits(decision_.codec, members_.size());
    plan.text = fmt::format("values sent as they are, {:.0f} bits: no step", bits_.mean());
    choose_way();
    return;
  }
  const bool is_warmup = round_.value <= policy_.warmup_rounds;
  const double bits = is_warmup ? kWarmupBits : policy_.bits;
  if (is_warmup) plan.reason = RateReason::kWarmup;
  std::vector<compression::SiteSketch> sketches;
  for (const RateMember& member : members_) {
    if (member.sketch && member.sketch->samples() > 0) sketches.push_back({member.sketch.get(), member.weight_scale});
  }
  set_step(compression::choose_step(sketches, bits));
  plan.text = fmt::format("{} {:.2f} bits: step {:.3g} from {} sketch{}", rate_reason_name(plan.reason), bits, decision_.step,
                          sketches.size(), sketches.size() == 1 ? "" : "es");
  choose_way();
}

void RateDecider::choose_auto() {
  if (!model_.has_sketch()) {
    // Without a sketch the bits follow those of the last round: one octave of the step is about one bit.
    double measured = 0.0;
    for (const RateMember& member : members_) measured = std::max(measured, member.report.contribution_bits);
    const bool has_last = memory_.round && memory_.opened.step > 0.0F && measured > 0.0;
    const double target = memory_.opened.plan.target_bits > 0.0 ? memory_.opened.plan.target_bits : policy_.bits;
    const double step = has_last ? static_cast<double>(memory_.opened.step) * std::exp2(std::max(-1.0, measured - target)) : 1.0;
    set_step(static_cast<float>(std::clamp(step, double{compression::kGridStepMin}, double{compression::kGridStepMax})));
    bits_ = RateBits{std::vector<double>(members_.size(), target), target};
    decision_.plan.reason = RateReason::kNoSketch;
    decision_.plan.text = fmt::format("no sketch: step {:.3g} after {:.2f} bits", decision_.step, measured);
    return;
  }
  if (round_.value <= policy_.warmup_rounds) {
    set_bits(kWarmupBits, RateReason::kWarmup, fmt::format("warm-up {:.2f} bits", kWarmupBits));
    return choose_way();
  }
  const bool is_timed = decision_.plan.budget_seconds > 0.0;
  if (!is_timed || !is_any_rate_known_) {
    const char* missing = is_timed ? "the links' rates are" : "the time of the inner steps is";
    set_bits(policy_.bits, RateReason::kUnknown, fmt::format("{:.2f} bits to begin with: {} not known yet", policy_.bits, missing));
    choose_way();
    return apply_guards();
  }
  choose_by_budget();
  apply_guards();
  choose_codec();
}

bool RateDecider::fits_budgets(const RateBits& bits) const { return model_.transfer_seconds(bits, way_, matrix_) <= available_seconds_; }

// First with the plan of before, then once more when another is faster.
void RateDecider::choose_by_budget() {
  const double ceiling = are_all_rates_known_ ? policy_.max_bits : std::min(policy_.bits, policy_.max_bits);
  const auto fits = [&](const RateBits& bits) { return bits.mean() <= ceiling && fits_budgets(bits); };
  set_step(model_.smallest_step(fits));
  const topology::WanPlan before = way_;
  choose_way();
  if (way_.kind != before.kind || way_.shares != before.shares || way_.kind == topology::PlanKind::kRelay)
    set_step(model_.smallest_step(fits));
  RatePlan& plan = decision_.plan;
  find_limit();
  const std::string time = fmt::format("{:.3g} s of {:.3g} s", available_seconds_, plan.budget_seconds);
  const std::string limit =
      plan.limit_from ? fmt::format("site {} to site {}", *plan.limit_from, *plan.limit_to) : std::string("the sending limit");
  if (bits_.mean() < floor_bits()) {
    set_bits(floor_bits(), RateReason::kFloor, fmt::format("floor {:.2f} bits: {} would allow less in {}", floor_bits(), limit, time));
    return;
  }
  const double used = model_.transfer_seconds(bits_, way_, matrix_) / available_seconds_;
  if (used < 0.95 && bits_.mean() > 0.95 * ceiling) {
    plan.limit_from.reset();
    plan.limit_to.reset();
    plan.reason = are_all_rates_known_ ? RateReason::kCeiling : RateReason::kUnknown;
    plan.text = are_all_rates_known_ ? fmt::format("ceiling {:.2f} bits: every link has room in {}", ceiling, time)
                                     : fmt::format("{:.2f} bits until every link is measured", ceiling);
    return;
  }
  plan.reason = RateReason::kBudget;
  plan.text = fmt::format("budget of {}, {}: {:.2f} bits", limit, time, bits_.mean());
}

// The link that takes longest.
void RateDecider::find_limit() {
  double longest = 0.0;
  for (std::size_t from = 0; from < members_.size(); ++from) {
    for (std::size_t to = 0; to < members_.size(); ++to) {
      if (from == to || matrix_.rate(from, to) <= 0.0) continue;
      const double seconds = 8.0 * model_.link_bytes(bits_, way_, from, to) / matrix_.rate(from, to);
      if (seconds <= longest) continue;
      longest = seconds;
      decision_.plan.limit_from = members_[from].site;
      decision_.plan.limit_to = members_[to].site;
    }
  }
  // A send limit that takes longer than any link.
  if (model_.transfer_seconds(bits_, way_, matrix_) > 1.001 * longest) {
    decision_.plan.limit_from.reset();
    decision_.plan.limit_to.reset();
  }
}

void RateDecider::apply_guards() {
  RatePlan& plan = decision_.plan;
  const double asked = bits_.mean();
  if (memory_.has_norm_changed && asked < policy_.max_bits) {
    const double target = std::min(policy_.max_bits, 2.0 * asked);
    return set_bits(target, RateReason::kNormChange,
                    fmt::format("the deltas' norm changed sharply: {:.2f} bits, not {:.2f}", target, asked));
  }
  if (memory_.residual_floor > asked && asked < policy_.max_bits) {
    const double target = std::min(policy_.max_bits, memory_.residual_floor);
    set_bits(target, RateReason::kResidual, fmt::format("residuals grow beside the deltas: {:.2f} bits, not {:.2f}", target, asked));
  }
  if (plan.text.empty()) plan.text = rate_reason_name(plan.reason);
}

// Where coding takes longer than sending what it saves.
void RateDecider::choose_codec() {
  const double encode = memory_.grid_encode_seconds;
  if (!are_all_rates_known_ || encode <= 0.0 || decision_.plan.reason == RateReason::kFloor) return;
  const auto plain = [&](compression::Codec codec) {
    return model_.transfer_seconds(plain_bits(static_cast<std::uint8_t>(codec), members_.size()), way_, matrix_);
  };
  const double grid = std::max(encode, model_.transfer_seconds(bits_, way_, matrix_));
  const double bf16 = std::max(kBf16EncodeShare * encode, plain(compression::Codec::kBf16));
  const double raw32 = std::max(kRaw32EncodeShare * encode, plain(compression::Codec::kRaw32));
  if (std::min(bf16, raw32) > kCodecGain * grid) return;
  const bool is_raw = raw32 <= bf16;
  decision_.codec = static_cast<std::uint8_t>(is_raw ? compression::Codec::kRaw32 : compression::Codec::kBf16);
  decision_.step = 0.0F;
  bits_ = plain_bits(decision_.codec, members_.size());
  decision_.plan.reason = RateReason::kCodecCost;
  decision_.plan.limit_from.reset();
  decision_.plan.limit_to.reset();
  decision_.plan.text =
      fmt::format("coding takes {:.3g} s and sending {} {:.3g} s: not coded", grid, is_raw ? "RAW32" : "BF16", is_raw ? raw32 : bf16);
}

// ---- how the frames travel

topology::WanPlan RateDecider::plan_of(const Way& way) const {
  topology::WanPlan plan;
  plan.kind = way.kind;
  if (way.kind != topology::PlanKind::kDirect) plan.shares = shares_of(way.owners, members_, chunks_);
  for (const DetourPlan& detour : way.detours) {
    plan.detours.push_back({index_of(detour.from), index_of(detour.to), index_of(detour.over), taken_share(way, detour)});
  }
  return plan;
}

// REQUIRES: the site is a member.
std::size_t RateDecider::index_of(SiteId site) const {
  const auto found = std::find_if(members_.begin(), members_.end(), [&](const RateMember& member) { return member.site == site; });
  return static_cast<std::size_t>(found - members_.begin());
}

// Chunks go whole: where they are few, a way gets clearly more or less than its share.
double RateDecider::taken_share(const Way& way, const DetourPlan& detour) const {
  if (chunks_ > kChunksCountedMax) return detour.share;
  const bool has_bits = bits_.contributions.size() == members_.size();
  const double contribution = has_bits ? bits_.contributions[index_of(detour.from)] : 1.0;
  const double update = has_bits ? bits_.update : 1.0;
  double all = 0.0;
  double taken = 0.0;
  for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
    const SiteId owner = way.owners[chunk % way.owners.size()];
    if (owner != detour.from && owner != detour.to) continue;
    const double bits = owner == detour.to ? contribution : update;
    all += bits;
    if (detour_of(way.detours, detour.from, detour.to, ChunkId(chunk)) == detour.over) taken += bits;
  }
  return all > 0.0 ? taken / all : 0.0;
}

RateDecider::Way RateDecider::opened_way() const { return {memory_.opened.way(), memory_.opened.owners, memory_.opened.plan.detours}; }

// Whether the last round's owners, and those on its ways, are members; in a direct round also the other way round.
bool RateDecider::can_stay() const {
  SiteSet members;
  for (const RateMember& member : members_) members.insert(member.site);
  SiteSet owners;
  for (const SiteId owner : memory_.opened.owners) owners.insert(owner);
  if (owners.empty() || !members.contains_all(owners)) return false;
  for (const DetourPlan& detour : memory_.opened.plan.detours) {
    if (!members.contains(detour.from) || !members.contains(detour.to) || !members.contains(detour.over)) return false;
  }
  return memory_.opened.plan_kind != topology::PlanKind::kDirect || (may_be_direct_ && owners == members);
}

// What is meant until the links say something: the last round's plan; of two sites each sends the other what it has, and no sum goes back.
void RateDecider::start_way() {
  if (are_all_rates_known_ && can_stay()) return take_way(opened_way());
  // The first rounds are slow in coding.
  const bool is_coding_bound = memory_.exchanges.size() > 2 && usual_surplus() < kCodingBound * memory_.grid_encode_seconds;
  const bool is_direct = may_be_direct_ && members_.size() == 2 && !is_coding_bound;
  take_way({is_direct ? topology::PlanKind::kDirect : topology::PlanKind::kSharded, members_in_turn(members_), {}});
}

void RateDecider::take_way(Way way) {
  way_ = plan_of(way);
  decision_.plan_kind = way.kind == topology::PlanKind::kDirect ? way.kind : topology::PlanKind::kSharded;
  decision_.owners = std::move(way.owners);
  decision_.plan.detours = std::move(way.detours);
  const double trips = topology::plan_round_trips(way.kind) - topology::plan_round_trips(memory_.opened.way());
  overhead_shift_ = trips * matrix_.rtt_max();
}

std::vector<SiteId> RateDecider::planned_owners(const topology::WanPlan& plan) const {
  std::vector<SiteId> owners;
  for (const std::size_t owner : topology::spread_owners(plan.shares, std::min<std::size_t>(chunks_, kOwnerSlotsMax))) {
    owners.push_back(members_[owner].site);
  }
  return owners;
}

// Owners, and ways over third sites where a link is slower than others. With three sites the one in the middle sums instead.
std::optional<RateDecider::Way> RateDecider::planned_relay() const {
  if (!policy_.may_relay || members_.size() < 4 || members_.size() > topology::kExactSitesMax) return std::nullopt;
  const topology::WanPlan plan = topology::plan_relay(matrix_, model_.traffic(bits_));
  if (plan.kind != topology::PlanKind::kRelay) return std::nullopt;
  Way way{plan.kind, planned_owners(plan), {}};
  for (const topology::Detour& detour : plan.detours) {
    if (detour.share < kDetourShareMin) continue;
    way.detours.push_back({members_[detour.from].site, members_[detour.to].site, members_[detour.over].site, detour.share});
  }
  return way;
}

// The same with nothing left on links that the plan spares for the most part: one chunk there may take longer than all others.
RateDecider::Way RateDecider::without_slow_links(Way way) {
  for (DetourPlan& detour : way.detours) {
    double spared = 0.0;
    for (const DetourPlan& each : way.detours) spared += each.from == detour.from && each.to == detour.to ? each.share : 0.0;
    if (spared > 0.5 && spared < 1.0) detour.share += 1.0 - spared;
  }
  return way;
}

std::vector<RateDecider::Way> RateDecider::possible_ways() const {
  using topology::PlanKind;
  std::vector<Way> ways = {{PlanKind::kSharded, members_in_turn(members_), {}},
                           {PlanKind::kSharded, planned_owners(topology::plan_sharded(matrix_, model_.traffic(bits_))), {}}};
  // No owners of two sites send less than each its contribution: then it is the one to beat.
  if (may_be_direct_) ways.insert(members_.size() == 2 ? ways.begin() : ways.end(), {PlanKind::kDirect, members_in_turn(members_), {}});
  if (auto relay = planned_relay()) {
    ways.push_back(*relay);
    ways.push_back(without_slow_links(std::move(*relay)));
  }
  return ways;
}

double RateDecider::way_seconds(const topology::WanPlan& way) const {
  const double coding = is_grid() ? memory_.grid_encode_seconds : 0.0;
  const double work = way.kind == topology::PlanKind::kDirect ? kDirectCoding * coding : coding;
  return std::max(work, model_.transfer_seconds(bits_, way, matrix_)) + topology::plan_round_trips(way.kind) * matrix_.rtt_max();
}

// The last round's plan, the members in turn, owners that follow the links, none at all, or ways over third sites: whatever is fastest by
// kOwnersGain.
void RateDecider::choose_way() {
  if (!are_all_rates_known_) return;
  std::vector<Way> ways = possible_ways();
  std::size_t best = 0;
  double best_seconds = way_seconds(plan_of(ways[0]));
  for (std::size_t next = 1; next < ways.size(); ++next) {
    const double seconds = way_seconds(plan_of(ways[next]));
    if (seconds * kOwnersGain >= best_seconds) continue;
    best = next;
    best_seconds = seconds;
  }
  // Between the two kinds two sites need no such hold: the bytes never favour owners, and coding does by more than a little.
  if (can_stay() && (members_.size() > 2 || memory_.opened.plan_kind == topology::PlanKind::kDirect)) {
    if (way_seconds(plan_of(opened_way())) < best_seconds * kOwnersGain) ways[best] = opened_way();
  }
  take_way(std::move(ways[best]));
  set_budget();  // the round trips are the plan's
}

std::string RateDecider::way_text() const {
  const bool is_direct = way_.kind == topology::PlanKind::kDirect;
  if (!may_be_direct_) return "; owners: a site that is no member wants the sums";
  if (!are_all_rates_known_) return is_direct ? "; direct: of two sites each sends the other what it has" : "";
  const topology::WanPlan owners = topology::plan_sharded(matrix_, model_.traffic(bits_));
  const double with_owners = model_.transfer_seconds(bits_, way_.kind == topology::PlanKind::kSharded ? way_ : owners, matrix_);
  const double direct = model_.transfer_seconds(bits_, plan_of({topology::PlanKind::kDirect, {}, {}}), matrix_);
  if (way_.kind == topology::PlanKind::kRelay) {
    return fmt::format("; {} ways over a third site: {:.3g} s to send, without {:.3g} s", way_.detours.size(),
                       model_.transfer_seconds(bits_, way_, matrix_), with_owners);
  }
  return is_direct ? fmt::format("; direct: {:.3g} s to send, with owners {:.3g} s", direct, with_owners)
                   : fmt::format("; owners: {:.3g} s to send, direct {:.3g} s", with_owners, direct);
}

void RateDecider::fill_links() {
  RatePlan& plan = decision_.plan;
  plan.target_bits = bits_.mean();
  plan.update_bits = bits_.update;
  plan.text += way_text();
  // Links that are not known do not count: no transfer has filled them, so that the time of past rounds has what they need.
  if (are_all_rates_known_ || !memory_.exchanges.empty()) plan.predicted_seconds = usual_seconds();
  for (std::size_t from = 0; from < members_.size(); ++from) {
    for (std::size_t to = 0; to < members_.size(); ++to) {
      if (from == to) continue;
      LinkPlan link;
      link.from = members_[from].site;
      link.to = members_[to].site;
      link.rate = matrix_.rate(from, to);
      link.budget_bytes = link.rate * available_seconds_ / 8.0;
      link.predicted_bytes = model_.link_bytes(bits_, way_, from, to);
      plan.links.push_back(link);
    }
  }
}

}  // namespace sluice::sync
