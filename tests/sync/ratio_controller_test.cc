// Goal: the decision meets every link's budget in the same round, follows steps at once, does not oscillate, keeps floors, ceilings and
// guards, and says why. Method: sketches of synthetic deltas, link reports by hand; then the loop closed without time passing: a model of
// the links feeds real estimators, whose reports feed the controller.
#include "sync/ratio_controller.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "compression/frame.h"
#include "topology/wan_estimator.h"

namespace sluice::sync {
namespace {

using compression::Codec;
using compression::Sketch;
using std::chrono::milliseconds;

constexpr std::uint64_t kValues = 16 * 262'144;
constexpr std::uint32_t kChunks = 16;

std::shared_ptr<const Sketch> gaussian(double sd, std::uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, static_cast<float>(sd));
  std::vector<float> delta(65'536);
  for (float& value : delta) value = normal(random);
  Sketch sketch;
  sketch.add(delta, 1.0F, {}, 1);
  return std::make_shared<const Sketch>(sketch);
}

RatePolicy automatic() {
  RatePolicy policy;
  policy.is_auto = true;
  policy.codec = static_cast<std::uint8_t>(Codec::kGridDense);
  policy.bits = 3.0;
  policy.time_budget = milliseconds(500);
  return policy;
}

using Rates = std::map<std::pair<int, int>, double>;

Rates all_links(int sites, double rate) {
  Rates rates;
  for (int from = 0; from < sites; ++from) {
    for (int to = 0; to < sites; ++to) {
      if (from != to) rates[{from, to}] = rate;
    }
  }
  return rates;
}

std::vector<RateMember> members(int sites, const Rates& rates, double sd = 1e-3, Duration rtt = milliseconds(20)) {
  std::vector<RateMember> result;
  for (int site = 0; site < sites; ++site) {
    RateMember member;
    member.site = SiteId(static_cast<std::uint16_t>(site));
    member.sketch = gaussian(sd, static_cast<std::uint32_t>(site + 1));
    member.report.compute = std::chrono::seconds(5);
    for (const auto& [link, rate] : rates) {
      if (link.first != site) continue;
      LinkReport report;
      report.to = SiteId(static_cast<std::uint16_t>(link.second));
      report.low_rate = report.median_rate = rate;
      report.rtt_min = rtt;
      member.report.links.push_back(report);
    }
    result.push_back(std::move(member));
  }
  return result;
}

double fullest(const RatePlan& plan) {
  double most = 0.0;
  for (const LinkPlan& link : plan.links) {
    if (link.budget_bytes > 0.0) most = std::max(most, link.predicted_bytes / link.budget_bytes);
  }
  return most;
}

TEST(RatioController, TheFullestLinkJustMeetsItsBudget) {
  const RatioController controller(automatic());
  for (const double rate : {12e6, 20e6, 30e6, 40e6}) {
    const RateDecision decision = controller.decide(RoundId(5), members(3, all_links(3, rate)), kValues, kChunks);
    EXPECT_EQ(decision.plan.reason, RateReason::kBudget) << decision.plan.text;
    EXPECT_LE(fullest(decision.plan), 1.0 + 1e-9);
    EXPECT_GE(fullest(decision.plan), 0.97) << "at " << rate;
    EXPECT_NEAR(decision.plan.predicted_seconds, 0.5, 0.02);
    EXPECT_GT(decision.step, 0.0F);
    EXPECT_TRUE(decision.plan.limit_from);
    EXPECT_NE(decision.plan.text.find("budget of site"), std::string::npos) << decision.plan.text;
  }
}

TEST(RatioController, TheTimeComesFromTheInnerStepsWhenNoneIsSet) {
  RatePolicy policy = automatic();
  policy.time_budget = Duration{};
  policy.time_share = 0.1;
  const RateDecision decision = RatioController(policy).decide(RoundId(5), members(3, all_links(3, 60e6)), kValues, kChunks);
  EXPECT_NEAR(decision.plan.budget_seconds, 0.5, 1e-9);
}

TEST(RatioController, WarmUpCeilingFloorAndUnknownSayWhy) {
  RatePolicy policy = automatic();
  policy.warmup_rounds = 2;
  const RatioController controller(policy);
  const auto decide = [&](std::uint64_t round, const std::vector<RateMember>& with) {
    return controller.decide(RoundId(round), with, kValues, kChunks).plan;
  };
  const RatePlan warm = decide(2, members(3, all_links(3, 60e6)));
  EXPECT_EQ(warm.reason, RateReason::kWarmup);
  EXPECT_NEAR(warm.target_bits, 8.0, 0.05);
  const RatePlan ceiling = decide(3, members(3, all_links(3, 10e9)));
  EXPECT_EQ(ceiling.reason, RateReason::kCeiling) << ceiling.text;
  EXPECT_NEAR(ceiling.target_bits, policy.max_bits, 0.05);
  const RatePlan floor = decide(3, members(3, all_links(3, 1e6)));
  EXPECT_EQ(floor.reason, RateReason::kFloor) << floor.text;
  EXPECT_NEAR(floor.target_bits, policy.min_bits, 0.02);
  const RatePlan unknown = decide(3, members(3, {}));
  EXPECT_EQ(unknown.reason, RateReason::kUnknown) << unknown.text;
  EXPECT_NEAR(unknown.target_bits, policy.bits, 0.05);
  Rates partly = all_links(3, 10e9);
  partly.erase({2, 0});
  EXPECT_NEAR(decide(3, members(3, partly)).target_bits, policy.bits, 0.05) << "an unknown link is not taken for a fast one";
}

TEST(RatioController, DenseNeverGoesBelowOneBitAndSparseMay) {
  RatePolicy policy = automatic();
  policy.min_bits = 0.1;
  const auto slow = members(3, all_links(3, 6e6));
  EXPECT_NEAR(RatioController(policy).decide(RoundId(5), slow, kValues, kChunks).plan.target_bits, 1.0, 0.02);
  policy.regime = RateRegime::kSparse;
  const RatePlan sparse = RatioController(policy).decide(RoundId(5), slow, kValues, kChunks).plan;
  EXPECT_LT(sparse.target_bits, 0.7);
  EXPECT_NEAR(fullest(sparse), 1.0, 0.05);
}

TEST(RatioController, ASendLimitIsABudgetToo) {
  auto with = members(3, all_links(3, 1e9));
  with[1].report.rate_limit = 30e6;
  const RatePlan plan = RatioController(automatic()).decide(RoundId(5), with, kValues, kChunks).plan;
  EXPECT_EQ(plan.reason, RateReason::kBudget) << plan.text;
  double sent = 0.0;
  for (const LinkPlan& link : plan.links) sent += link.from == SiteId(1) ? link.predicted_bytes : 0.0;
  EXPECT_NEAR(sent, 30e6 / 8.0 * (0.5 - plan.overhead_seconds), 0.05 * sent);
}

TEST(RatioController, ASiteAtAQuarterOfTheRateCostsAtMostThirtyPercent) {
  const RatioController controller(automatic());
  const RateDecision fast = controller.decide(RoundId(5), members(3, all_links(3, 40e6)), kValues, kChunks);
  Rates rates = all_links(3, 40e6);
  for (auto& [link, each] : rates) {
    if (link.first == 2 || link.second == 2) each /= 4.0;
  }
  const RateDecision slow = controller.decide(RoundId(5), members(3, rates), kValues, kChunks);
  EXPECT_EQ(slow.plan.reason, RateReason::kBudget);
  EXPECT_LE(slow.plan.predicted_seconds, 1.3 * fast.plan.predicted_seconds) << slow.plan.text;
  EXPECT_LE(fullest(slow.plan), 1.0 + 1e-9);
  EXPECT_GE(fullest(slow.plan), 0.95);
}

TEST(RatioController, ASiteThatSendsSlowlyOwnsLittleAndTheBitsRiseForAll) {
  const RatioController controller(automatic());
  Rates rates = all_links(3, 40e6);
  rates[{2, 0}] = rates[{2, 1}] = 10e6;
  const RateDecision decision = controller.decide(RoundId(5), members(3, rates), kValues, kChunks);
  const auto owned = std::count(decision.owners.begin(), decision.owners.end(), SiteId(2));
  EXPECT_LT(static_cast<double>(owned) / static_cast<double>(decision.owners.size()), 0.1);
  EXPECT_EQ(decision.owners.size(), kChunks);
  // With equal shares the slow link would carry a third of contribution and update: 10e6 x 0.45 s = 4.5 Mbit of 4.2 M x (2 b + 1.2) / 3.
  EXPECT_GT(decision.plan.target_bits, 1.8);
  EXPECT_LE(fullest(decision.plan), 1.0 + 1e-9);
}

// With three sites the one between two badly joined ones sums; with four part of the frames goes over others.
TEST(RatioController, WithFourSitesASlowLinkIsSparedByWaysOverOthers) {
  RatePolicy policy = automatic();
  policy.is_auto = false;
  const auto with_slow_link = [](int sites) {
    Rates rates = all_links(sites, 40e6);
    rates[{1, 2}] = rates[{2, 1}] = 4e6;
    return members(sites, rates);
  };
  const auto decide = [&](int sites) { return RatioController(policy).decide(RoundId(5), with_slow_link(sites), kValues, kChunks); };
  const RateDecision four = decide(4);
  EXPECT_EQ(four.way(), topology::PlanKind::kRelay) << four.plan.text;
  EXPECT_EQ(four.plan_kind, topology::PlanKind::kSharded);
  EXPECT_NE(four.plan.text.find("over a third site"), std::string::npos) << four.plan.text;
  for (const DetourPlan& detour : four.plan.detours) {
    EXPECT_TRUE(detour.over == SiteId(0) || detour.over == SiteId(3));
    EXPECT_TRUE(detour.share > 0.0 && detour.share <= 1.0);
  }
  // Chunks go whole: what is predicted for the slow link are those that really take it, here none.
  for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
    const SiteId owner = four.owners[chunk % four.owners.size()];
    EXPECT_TRUE(owner != SiteId(2) || detour_of(four.plan.detours, SiteId(1), SiteId(2), ChunkId(chunk))) << chunk;
  }
  for (const LinkPlan& link : four.plan.links) {
    EXPECT_TRUE(link.from != SiteId(1) || link.to != SiteId(2) || link.predicted_bytes < 1.0) << link.predicted_bytes;
  }
  EXPECT_EQ(decide(3).way(), topology::PlanKind::kSharded);
  policy.may_relay = false;
  const RateDecision without = decide(4);
  EXPECT_EQ(without.way(), topology::PlanKind::kSharded);
  EXPECT_LT(four.plan.predicted_seconds, 0.9 * without.plan.predicted_seconds);
}

TEST(RatioController, AWayOverASiteThatIsNoMemberAnyMoreIsLeft) {
  RatePolicy policy = automatic();
  policy.is_auto = false;
  RatioController controller(policy);
  Rates rates = all_links(5, 40e6);
  rates[{1, 2}] = rates[{2, 1}] = 4e6;
  auto now = members(5, rates);
  const RateDecision before = controller.decide(RoundId(5), now, kValues, kChunks);
  ASSERT_FALSE(before.plan.detours.empty());
  controller.learn(RoundId(5), before, now, kValues, kChunks);
  now.erase(now.begin() + 3);
  const RateDecision after = controller.decide(RoundId(6), now, kValues, kChunks);
  for (const DetourPlan& detour : after.plan.detours) EXPECT_NE(detour.over, SiteId(3));
}

TEST(RatioController, ADifferenceWithinTheDeadBandMovesTheRateLittle) {
  RatioController controller(automatic());
  auto before = members(3, all_links(3, 80e6));
  const RateDecision first = controller.decide(RoundId(5), before, kValues, kChunks);
  controller.learn(RoundId(5), first, before, kValues, kChunks);
  const RateDecision near = controller.decide(RoundId(6), members(3, all_links(3, 90e6)), kValues, kChunks);
  EXPECT_NEAR(near.plan.links.front().rate, 82.5e6, 1e5);
  const RateDecision far = controller.decide(RoundId(6), members(3, all_links(3, 20e6)), kValues, kChunks);
  EXPECT_NEAR(far.plan.links.front().rate, 20e6, 1.0);
}

TEST(RatioController, ASharpChangeOfTheNormDoublesTheBitsOnce) {
  RatioController controller(automatic());
  const auto before = members(3, all_links(3, 20e6), 1e-3);
  const RateDecision first = controller.decide(RoundId(5), before, kValues, kChunks);
  controller.learn(RoundId(5), first, before, kValues, kChunks);
  const auto after = members(3, all_links(3, 20e6), 4e-3);
  const RateDecision doubled = controller.decide(RoundId(6), after, kValues, kChunks);
  EXPECT_EQ(doubled.plan.reason, RateReason::kNormChange);
  EXPECT_NEAR(doubled.plan.target_bits, 2.0 * first.plan.target_bits, 0.1);
  controller.learn(RoundId(6), doubled, after, kValues, kChunks);
  EXPECT_EQ(controller.decide(RoundId(7), after, kValues, kChunks).plan.reason, RateReason::kBudget);
}

TEST(RatioController, LargeResidualsRaiseTheBitsStepByStep) {
  RatePolicy policy = automatic();
  policy.regime = RateRegime::kSparse;
  policy.min_bits = 0.05;
  RatioController controller(policy);
  std::vector<double> bits;
  // Deltas shrink by a third from round to round, as at the end of a decaying learning rate, while old residual stays in what is coded.
  double delta = 1e-3;
  double residual = 0.0;
  for (std::uint64_t round = 5; round < 20; ++round) {
    const auto now = members(3, all_links(3, 2e6), std::sqrt(delta * delta + residual * residual));
    const RateDecision decision = controller.decide(RoundId(round), now, kValues, kChunks);
    controller.learn(RoundId(round), decision, now, kValues, kChunks);
    bits.push_back(decision.plan.target_bits);
    residual = std::sqrt(compression::residual_mean_square(*now.front().sketch, static_cast<double>(decision.step)));
    delta *= 0.8;
  }
  EXPECT_GT(bits.back(), 2.0 * bits.front());
  for (std::size_t at = 1; at < bits.size(); ++at) EXPECT_LT(bits[at], 1.6 * bits[at - 1] + 0.05) << "gradually, round " << at;
}

TEST(RatioController, WhereCodingTakesLongerThanItSavesValuesGoAsTheyAre) {
  RatioController controller(automatic());
  auto before = members(3, all_links(3, 40e9));
  const RateDecision first = controller.decide(RoundId(5), before, kValues, kChunks);
  controller.learn(RoundId(5), first, before, kValues, kChunks);
  for (RateMember& member : before) {
    member.report.measured_round = RoundId(5);
    member.report.encode = milliseconds(100);
    member.report.contribution_bits = first.plan.target_bits;
  }
  const RateDecision plain = controller.decide(RoundId(6), before, kValues, kChunks);
  EXPECT_EQ(plain.plan.reason, RateReason::kCodecCost) << plain.plan.text;
  EXPECT_TRUE(plain.codec == static_cast<std::uint8_t>(Codec::kBf16) || plain.codec == static_cast<std::uint8_t>(Codec::kRaw32));
  EXPECT_EQ(plain.step, 0.0F);
  auto slow = before;
  for (RateMember& member : slow) {
    for (LinkReport& link : member.report.links) link.low_rate = 20e6;
  }
  EXPECT_EQ(controller.decide(RoundId(6), slow, kValues, kChunks).plan.reason, RateReason::kBudget);
}

TEST(RatioController, MeasuredBitsCorrectThePredictedOnes) {
  RatioController controller(automatic());
  auto now = members(3, all_links(3, 80e6));
  for (std::uint64_t round = 5; round < 10; ++round) {
    const RateDecision decision = controller.decide(RoundId(round), now, kValues, kChunks);
    controller.learn(RoundId(round), decision, now, kValues, kChunks);
    // The coder needs 10 % more than the sketch says.
    for (RateMember& member : now) {
      member.report.measured_round = RoundId(round);
      member.report.contribution_bits = 1.1 * compression::predict_bits(*member.sketch, decision.step);
      member.report.update_bits = 1.1 * decision.plan.update_bits;
    }
  }
  const RateDecision corrected = controller.decide(RoundId(10), now, kValues, kChunks);
  const double needed = 1.1 * compression::predict_bits(*now.front().sketch, corrected.step);
  EXPECT_NEAR(corrected.plan.target_bits / needed, 1.0, 0.02);
}

TEST(RatioController, WithoutSketchesTheBitsFollowThoseOfTheLastRound) {
  RatioController controller(automatic());
  auto now = members(2, all_links(2, 80e6));
  const RateDecision first = controller.decide(RoundId(5), now, kValues, kChunks);
  controller.learn(RoundId(5), first, now, kValues, kChunks);
  for (RateMember& member : now) {
    member.sketch = nullptr;
    member.report.contribution_bits = first.plan.target_bits + 2.0;
  }
  const RateDecision next = controller.decide(RoundId(6), now, kValues, kChunks);
  EXPECT_EQ(next.plan.reason, RateReason::kNoSketch);
  EXPECT_NEAR(next.step / first.step, 4.0, 0.1) << "two octaves at once, downward without a limit";
}

// ---- how the frames travel ----

TEST(RatioController, TwoSitesSendEachOtherWhatTheyHaveFromTheFirstRoundOn) {
  RatePolicy policy = automatic();
  policy.is_auto = false;
  for (const Rates& rates : {Rates{}, all_links(2, 20e6)}) {
    const RateDecision decision = RatioController(policy).decide(RoundId(1), members(2, rates), kValues, kChunks);
    EXPECT_EQ(decision.plan_kind, topology::PlanKind::kDirect);
    EXPECT_EQ(decision.owners.size(), 2U);
    EXPECT_NE(decision.plan.text.find("; direct: "), std::string::npos) << decision.plan.text;
    for (const LinkPlan& link : decision.plan.links) {
      EXPECT_NEAR(8.0 * link.predicted_bytes / static_cast<double>(kValues), 3.0, 0.05) << "the contribution and nothing else";
    }
  }
}

TEST(RatioController, ThreeSitesKnowTheirLinksBeforeTheyGoDirectAndDoSoInSparseRounds) {
  RatePolicy policy = automatic();
  policy.is_auto = false;
  policy.bits = 0.3;
  const RatioController sparse(policy);
  EXPECT_EQ(sparse.decide(RoundId(1), members(3, {}), kValues, kChunks).plan_kind, topology::PlanKind::kSharded);
  const RateDecision direct = sparse.decide(RoundId(2), members(3, all_links(3, 5e6)), kValues, kChunks);
  EXPECT_EQ(direct.plan_kind, topology::PlanKind::kDirect) << direct.plan.text;
  EXPECT_NE(direct.plan.text.find("with owners"), std::string::npos) << direct.plan.text;
  policy.bits = 3.0;
  const RateDecision dense = RatioController(policy).decide(RoundId(2), members(3, all_links(3, 5e6)), kValues, kChunks);
  EXPECT_EQ(dense.plan_kind, topology::PlanKind::kSharded) << dense.plan.text;
}

TEST(RatioController, InDirectRoundsBudgetsAreMetByContributionsAlone) {
  const auto with = members(2, all_links(2, 40e6));
  const RateDecision decision = RatioController(automatic()).decide(RoundId(5), with, kValues, kChunks);
  EXPECT_EQ(decision.plan_kind, topology::PlanKind::kDirect);
  EXPECT_EQ(decision.plan.reason, RateReason::kBudget) << decision.plan.text;
  EXPECT_LE(fullest(decision.plan), 1.0 + 1e-9);
  EXPECT_GE(fullest(decision.plan), 0.97);
  EXPECT_NEAR(decision.plan.overhead_seconds, topology::kDirectRoundTrips * 0.02, 1e-9);
}

TEST(RatioController, APlanStaysWhileAnotherIsOnlyALittleFaster) {
  RatePolicy policy = automatic();
  policy.is_auto = false;
  policy.bits = 0.3;
  RatioController controller(policy);
  const auto slow = members(3, all_links(3, 5e6));
  controller.learn(RoundId(2), controller.decide(RoundId(2), slow, kValues, kChunks), slow, kValues, kChunks);
  // Without a round trip to save, direct would be chosen by less than it takes to change.
  const auto near = members(3, all_links(3, 5e6), 1e-3, Duration{});
  EXPECT_EQ(controller.decide(RoundId(3), near, kValues, kChunks).plan_kind, topology::PlanKind::kDirect);
}

TEST(RatioController, SumsOfBf16AreAsLongAsFloatsSoTwoSitesSaveThem) {
  RatePolicy policy = automatic();
  policy.is_auto = false;
  policy.codec = static_cast<std::uint8_t>(Codec::kBf16);
  const RateDecision decision = RatioController(policy).decide(RoundId(5), members(2, all_links(2, 40e6)), kValues, kChunks);
  EXPECT_EQ(decision.plan_kind, topology::PlanKind::kDirect);
  EXPECT_EQ(decision.plan.update_bits, 32.0);
  EXPECT_NEAR(8.0 * decision.plan.links.front().predicted_bytes / static_cast<double>(kValues), 16.0, 0.1);
}

TEST(RatioController, WhereCodingSetsThePaceTheSumsAreShared) {
  RatioController controller(automatic());
  auto now = members(2, {});
  for (std::uint64_t round = 5; round < 10; ++round) {
    const RateDecision decision = controller.decide(RoundId(round), now, kValues, kChunks);
    controller.learn(RoundId(round), decision, now, kValues, kChunks);
    for (RateMember& member : now) {
      member.report.measured_round = RoundId(round);
      member.report.encode = milliseconds(80);
      member.report.exchange = milliseconds(150);
    }
  }
  EXPECT_EQ(controller.decide(RoundId(10), now, kValues, kChunks).plan_kind, topology::PlanKind::kSharded);
}

// ---- the loop, closed ----

// Three sites whose links carry what `rates` says. A round's bytes are what the step really costs plus an error of the sketch; each link
// reports to its estimator what its receiver would count.
class Loop {
 public:
  explicit Loop(RatePolicy policy, double noise = 0.03) : controller_(policy), noise_(noise) {}

  Rates rates;
  double latency_spread = 0.0;  // seconds that a round takes at most beyond the usual latency, at random
  double known_share = 1.0;     // of the links' rates: transfers too small to show more

  struct Outcome {
    RateDecision decision;
    double seconds = 0.0;            // of the slowest link, with the round trips
    double bytes_over_budget = 0.0;  // sent over the budget of the limiting link
    double true_budget_use = 0.0;    // sent over what the link really carries in the time of the transfer
  };

  Outcome round(double sd = 1e-3) {
    ++round_;
    std::vector<RateMember> now = members(3, {}, sd);
    for (auto& [link, estimator] : estimators_) report(link, estimator, now);
    for (RateMember& member : now) {
      member.report.measured_round = RoundId(round_ - 1);
      member.report.contribution_bits = last_bits_;
      member.report.update_bits = last_update_bits_;
      member.report.exchange = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(last_seconds_));
    }
    Outcome outcome;
    outcome.decision = controller_.decide(RoundId(round_), now, kValues, kChunks);
    controller_.learn(RoundId(round_), outcome.decision, now, kValues, kChunks);
    last_bits_ = outcome.decision.plan.target_bits * error_(random_);
    last_update_bits_ = outcome.decision.plan.update_bits * error_(random_);
    for (const LinkPlan& link : outcome.decision.plan.links) transfer(link, outcome);
    outcome.seconds += kLatency + latency_spread * latency_(random_);
    last_seconds_ = outcome.seconds;
    return outcome;
  }

 private:
  static constexpr double kRtt = 0.02;
  static constexpr double kLatency = 0.05;

  void report(const std::pair<int, int>& link, topology::WanEstimator& estimator, std::vector<RateMember>& now) {
    const topology::LinkEstimate estimate = estimator.estimate(now_);
    LinkReport report;
    report.to = SiteId(static_cast<std::uint16_t>(link.second));
    if (estimate.rate) {
      report.low_rate = known_share * estimate.rate->low;
      report.median_rate = known_share * estimate.rate->p50;
    }
    report.rtt_min = milliseconds(20);
    now[static_cast<std::size_t>(link.first)].report.links.push_back(report);
  }

  void transfer(const LinkPlan& link, Outcome& outcome) {
    const std::pair<int, int> key{link.from.value, link.to.value};
    topology::WanEstimator& estimator = estimators_[key];
    const double bytes = link.predicted_bytes * error_(random_);
    const double rate = rates.at(key);
    double left = bytes;
    double seconds = 0.0;
    estimator.on_rtt(std::chrono::microseconds(20'000), now_);
    // Congestion windows outlive a round: the ramp takes two round trips.
    while (left > 0.0) {
      const double share = seconds < 2 * kRtt ? 0.4 : 1.0;
      const double sent = std::min(left, share * rate / 8.0 * kTick * (1.0 + noise_ * normal_(random_)));
      left -= sent;
      seconds += kTick;
      now_ += std::chrono::duration_cast<Duration>(std::chrono::duration<double>(kTick));
      estimator.on_goodput(
          {std::chrono::duration_cast<Duration>(std::chrono::duration<double>(kTick)), static_cast<std::uint64_t>(sent), left > 0.0, false},
          now_);
    }
    outcome.seconds = std::max(outcome.seconds, 8.0 * bytes / rate);
    if (link.budget_bytes > 0.0) outcome.bytes_over_budget = std::max(outcome.bytes_over_budget, bytes / link.budget_bytes);
    const double available = outcome.decision.plan.budget_seconds - outcome.decision.plan.overhead_seconds;
    outcome.true_budget_use = std::max(outcome.true_budget_use, 8.0 * bytes / rate / available);
  }

  static constexpr double kTick = 0.02;
  RatioController controller_;
  double noise_;
  std::map<std::pair<int, int>, topology::WanEstimator> estimators_;
  std::uint64_t round_ = 0;
  double last_bits_ = 0.0;
  double last_update_bits_ = 0.0;
  double last_seconds_ = 0.0;
  TimePoint now_{};
  std::mt19937 random_{5};
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> error_{0.97, 1.03};
  std::uniform_real_distribution<double> latency_{0.0, 1.0};
};

RatePolicy loop_policy() {
  RatePolicy policy = automatic();
  policy.time_budget = std::chrono::seconds(1);
  policy.max_bits = 16.0;
  return policy;
}

TEST(RatioLoop, AfterOneRoundTheBytesMeetTheBudget) {
  Loop loop(loop_policy());
  loop.rates = all_links(3, 15e6);
  loop.round();
  for (int round = 0; round < 10; ++round) {
    const Loop::Outcome outcome = loop.round();
    EXPECT_NEAR(outcome.true_budget_use, 1.0, 0.10) << round << ": " << outcome.decision.plan.text;
    EXPECT_LE(outcome.seconds, 1.1);
  }
}

TEST(RatioLoop, AfterAStepOfFourTheFirstRoundThatKnowsIsWithinTenPercent) {
  Loop loop(loop_policy());
  loop.rates = all_links(3, 30e6);
  for (int round = 0; round < 6; ++round) loop.round();
  for (auto& [link, rate] : loop.rates) rate /= 4.0;
  const Loop::Outcome met = loop.round();
  EXPECT_GT(met.seconds, 2.0) << "this round could not know";
  for (int round = 0; round < 6; ++round) {
    const Loop::Outcome outcome = loop.round();
    EXPECT_NEAR(outcome.true_budget_use, 1.0, 0.10) << round << ": " << outcome.decision.plan.text;
    EXPECT_NEAR(outcome.bytes_over_budget, 1.0, 0.10);
    EXPECT_LE(outcome.seconds, 1.1);
  }
  for (auto& [link, rate] : loop.rates) rate *= 4.0;
  loop.round();
  loop.round();
  for (int round = 0; round < 6; ++round) {
    const Loop::Outcome outcome = loop.round();
    EXPECT_NEAR(outcome.true_budget_use, 1.0, 0.10) << round << ": " << outcome.decision.plan.text;
    EXPECT_LE(outcome.seconds, 1.1);
  }
}

TEST(RatioLoop, OneLinkThatStepsChangesTheOwnersAndStaysWithinTheBudget) {
  Loop loop(loop_policy());
  loop.rates = all_links(3, 30e6);
  for (int round = 0; round < 4; ++round) loop.round();
  loop.rates[{0, 1}] = 7.5e6;
  loop.round();
  for (int round = 0; round < 6; ++round) {
    const Loop::Outcome outcome = loop.round();
    EXPECT_LE(outcome.seconds, 1.1) << round << ": " << outcome.decision.plan.text;
    EXPECT_NEAR(outcome.true_budget_use, 1.0, 0.12);
  }
}

// Peak to peak over the mean of the bits of 40 rounds, once settled.
double swing_of(Loop& loop) {
  for (int round = 0; round < 5; ++round) loop.round();
  double least = 1e9;
  double most = 0.0;
  double total = 0.0;
  for (int round = 0; round < 40; ++round) {
    const double bits = loop.round().decision.plan.target_bits;
    least = std::min(least, bits);
    most = std::max(most, bits);
    total += bits;
  }
  return (most - least) / (total / 40.0);
}

TEST(RatioLoop, NoisyEstimatesDoNotMakeTheBitsOscillate) {
  Loop loop(loop_policy(), 0.15);
  loop.rates = all_links(3, 20e6);
  EXPECT_LT(swing_of(loop), 0.20);
}

// What rounds take beside their transfer differs by what else the machines do: the bits do not follow that.
TEST(RatioLoop, BusyMachinesDoNotMakeTheBitsOscillate) {
  Loop loop(loop_policy());
  loop.rates = all_links(3, 20e6);
  loop.latency_spread = 0.3;
  EXPECT_LT(swing_of(loop), 0.20);
}

// Small transfers never fill their links: what is known of them is less than they carry, and the last rounds show by how much.
TEST(RatioLoop, ThePredictedTimeIsThatOfTheLastRoundsWhereRatesAreOnlyBounds) {
  RatePolicy policy = loop_policy();
  policy.is_auto = false;
  Loop loop(policy);
  loop.rates = all_links(3, 30e6);
  loop.known_share = 0.5;
  for (int round = 0; round < 5; ++round) loop.round();
  for (int round = 0; round < 5; ++round) {
    const Loop::Outcome outcome = loop.round();
    EXPECT_NEAR(outcome.decision.plan.predicted_seconds / outcome.seconds, 1.0, 0.10) << outcome.decision.plan.text;
  }
}

}  // namespace
}  // namespace sluice::sync
