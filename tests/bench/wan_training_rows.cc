// Rounds of a synthetic training in automatic mode, where the bits follow the links: a link that becomes slow and fast again, a slow site,
// and measured WANs, where what the plan said of a round's time is compared with what it took.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

#include "tests/bench/wan_rows.h"

namespace sluice::bench {
namespace {

constexpr std::uint16_t kSites = 3;
constexpr double kFastMbit = 100.0;
constexpr double kSlowMbit = 25.0;
constexpr std::chrono::milliseconds kDelay{20};  // one way
constexpr std::uint64_t kValues = 16'000'000;
constexpr double kBudgetSeconds = 1.2;
constexpr unsigned kSettlingRounds = 5;
constexpr unsigned kPhaseRounds = 6;

constexpr double kBytesTolerance = 0.10;
constexpr double kSwingTolerance = 0.10;
constexpr unsigned kRoundsToReturn = 2;
constexpr double kSlowSiteRatio = 1.3;
constexpr double kPredictionTolerance = 0.20;

support::PathShape path_of(double mbit) { return path_shape(mbit, kDelay); }

RigOptions auto_options(const WanCase& self, const WanBenchOptions& options) {
  RigOptions rig = rig_options(self, options, kValues);
  rig.sites = kSites;
  rig.fleet.compression =
      fmt::format("{{mode: auto, bits: 3, min_bits: 1, max_bits: 12, warmup_rounds: 1, time_budget: {:.0f}ms}}", kBudgetSeconds * 1000);
  return rig;
}

Result<std::vector<RoundFigures>> rounds(WanRig& rig, unsigned count) {
  std::vector<RoundFigures> result;
  for (unsigned index = 0; index < count; ++index) {
    SLUICE_TRY(auto round, rig.measured_round());
    result.push_back(std::move(round));
  }
  return result;
}

nlohmann::json to_json(const std::vector<RoundFigures>& rounds) {
  nlohmann::json list = nlohmann::json::array();
  for (const RoundFigures& round : rounds) list.push_back(bench::to_json(round));
  return list;
}

// Bytes over budget of the link that is nearest to its budget or furthest beyond.
double fullest_link(const RoundFigures& round) {
  double fullest = 0.0;
  for (const LinkFigures& link : round.links) {
    if (link.budget_bytes > 0.0) fullest = std::max(fullest, link.sent_bytes / link.budget_bytes);
  }
  return fullest;
}

// Largest distance of the bits from their mean over the second half of a phase.
double swing(const std::vector<RoundFigures>& phase) {
  const std::size_t first = phase.size() / 2;
  double sum = 0.0;
  for (std::size_t index = first; index < phase.size(); ++index) sum += phase[index].target_bits;
  const double mean = sum / static_cast<double>(phase.size() - first);
  double largest = 0.0;
  for (std::size_t index = first; index < phase.size(); ++index)
    largest = std::max(largest, std::fabs(phase[index].target_bits / mean - 1));
  return largest;
}

struct StepOutcome {
  double bytes_error = 0.0;  // of the fullest link, worst round from the second of the phase on
  unsigned late_rounds = 0;  // over the budget by more than a tenth, in a row from the step on
  double swing = 0.0;
};

StepOutcome judge_phase(const std::vector<RoundFigures>& phase) {
  StepOutcome outcome;
  for (std::size_t index = 1; index < phase.size(); ++index) {
    outcome.bytes_error = std::max(outcome.bytes_error, std::fabs(fullest_link(phase[index]) - 1.0));
  }
  while (outcome.late_rounds < phase.size() && phase[outcome.late_rounds].seconds > kBudgetSeconds * 1.1) ++outcome.late_rounds;
  outcome.swing = swing(phase);
  return outcome;
}

std::string bits_of(const std::vector<RoundFigures>& phase) {
  std::string text;
  for (const RoundFigures& round : phase) text += fmt::format("{}{:.2f}", text.empty() ? "" : " ", round.target_bits);
  return text;
}

std::vector<WanRow> step_rows(const WanCase& self, const std::vector<RoundFigures>& down, const std::vector<RoundFigures>& up) {
  const StepOutcome slower = judge_phase(down);
  const StepOutcome faster = judge_phase(up);
  const double bytes = std::max(slower.bytes_error, faster.bytes_error);
  const unsigned late = std::max(slower.late_rounds, faster.late_rounds);
  const double swings = std::max(slower.swing, faster.swing);
  std::vector<WanRow> rows;
  rows.push_back(
      {self.name,
       self.what + ": bytes of the fullest link against its budget, from the second round after a step",
       fmt::format("{:.1f} % off at most (down {:.1f}, up {:.1f})", bytes * 100, slower.bytes_error * 100, faster.bytes_error * 100),
       "<= 10 %",
       bytes <= kBytesTolerance,
       {{"down", to_json(down)}, {"up", to_json(up)}}});
  rows.push_back({self.name,
                  self.what + ": rounds longer than the budget after a step",
                  fmt::format("{} (down {}, up {})", late, slower.late_rounds, faster.late_rounds),
                  "<= 2",
                  late <= kRoundsToReturn,
                  {}});
  rows.push_back({self.name,
                  self.what + ": swing of the bits once settled",
                  fmt::format("{:.1f} % (down: {}; up: {})", swings * 100, bits_of(down), bits_of(up)),
                  "<= 10 %",
                  swings <= kSwingTolerance,
                  {}});
  return rows;
}

Result<std::vector<WanRow>> measure_steps(const WanCase& self, const WanBenchOptions& options) {
  SLUICE_TRY(auto rig,
             WanRig::start(auto_options(self, options), [](support::WanEmulator& wan) { set_all_paths(wan, path_of(kFastMbit)); }));
  SLUICE_CHECK_OK(rig->start_gateways());
  SLUICE_TRY(const auto settling, rounds(*rig, kSettlingRounds));
  if (!settling.back().has_plan || settling.back().budget_seconds <= 0.0) {
    return std::vector<WanRow>{unavailable_row(self, "the gateways' status has no budget of a round", "<= 10 %")};
  }
  rig->wan().set_both(SiteId(0), SiteId(1), path_of(kSlowMbit));
  SLUICE_TRY(const auto down, rounds(*rig, kPhaseRounds));
  rig->wan().set_both(SiteId(0), SiteId(1), path_of(kFastMbit));
  SLUICE_TRY(const auto up, rounds(*rig, kPhaseRounds));
  return step_rows(self, down, up);
}

double median_seconds(const std::vector<RoundFigures>& phase) {
  std::vector<double> seconds;
  for (const RoundFigures& round : phase) seconds.push_back(round.seconds);
  return median(seconds);
}

Result<std::vector<WanRow>> measure_slow_site(const WanCase& self, const WanBenchOptions& options) {
  SLUICE_TRY(auto rig,
             WanRig::start(auto_options(self, options), [](support::WanEmulator& wan) { set_all_paths(wan, path_of(kFastMbit)); }));
  SLUICE_CHECK_OK(rig->start_gateways());
  SLUICE_CHECK_OK(rounds(*rig, kSettlingRounds).map([](const auto&) {}));
  SLUICE_TRY(const auto fast, rounds(*rig, options.rounds));
  if (!fast.back().has_plan || fast.back().budget_seconds <= 0.0) {
    return std::vector<WanRow>{unavailable_row(self, "the gateways' status has no budget of a round", "<= 1.3")};
  }
  for (std::uint16_t other = 0; other + 1 < kSites; ++other) {
    rig->wan().set_both(SiteId(other), SiteId(kSites - 1), path_of(kSlowMbit));
  }
  SLUICE_CHECK_OK(rounds(*rig, kSettlingRounds).map([](const auto&) {}));
  SLUICE_TRY(const auto slow, rounds(*rig, options.rounds));
  const double ratio = median_seconds(slow) / median_seconds(fast);
  WanRow row{self.name, self.what, "", "<= 1.3", ratio <= kSlowSiteRatio, {{"fast", to_json(fast)}, {"slow", to_json(slow)}}};
  row.figure = fmt::format("{:.2f} ({:.2f} s at {:.2f} bits, {:.2f} s at {:.2f} bits)", ratio, median_seconds(fast),
                           fast.back().target_bits, median_seconds(slow), slow.back().target_bits);
  return std::vector<WanRow>{std::move(row)};
}

// ---- measured WANs

// Two sites of one provider's region may have no figure: then the other direction's, then 1 Gbit/s.
double gbps_of(const nlohmann::json& scenario, std::size_t from, std::size_t to) {
  for (const auto& value : {scenario["gbps"][from][to], scenario["gbps"][to][from]}) {
    if (value.is_number()) return value.get<double>();
  }
  return 1.0;
}

void set_scenario(support::WanEmulator& wan, const nlohmann::json& scenario, double scale) {
  for (std::uint16_t from = 0; from < wan.sites(); ++from) {
    for (std::uint16_t to = 0; to < wan.sites(); ++to) {
      if (from == to) continue;
      support::PathShape shape;
      shape.rate = BitsPerSecond{gbps_of(scenario, from, to) * 1e9 / scale};
      shape.delay = std::chrono::microseconds(static_cast<long>(scenario["rtt_ms"][from][to].get<double>() * 500.0));
      wan.set_path(SiteId(from), SiteId(to), shape);
    }
  }
}

Result<WanRow> measure_scenario(const WanCase& self, const WanBenchOptions& options, const nlohmann::json& scenario) {
  WanCase each = self;
  each.name = fmt::format("{}-{}", self.name, scenario["name"].get<std::string>());
  const auto sites = static_cast<std::uint16_t>(scenario["sites"].size());
  // All links of the emulated WAN share this machine: the more sites, the smaller the model.
  RigOptions settings = rig_options(each, options, 2 * kValues / (sites - 1U));
  settings.sites = sites;
  settings.fleet.compression = "{mode: fixed, bits: 3, warmup_rounds: 0}";
  SLUICE_TRY(auto rig,
             WanRig::start(std::move(settings), [&](support::WanEmulator& wan) { set_scenario(wan, scenario, options.scenario_scale); }));
  SLUICE_CHECK_OK(rig->start_gateways());
  SLUICE_CHECK_OK(rounds(*rig, kSettlingRounds).map([](const auto&) {}));
  SLUICE_TRY(const auto measured, rounds(*rig, options.rounds));
  std::vector<double> ratios;
  std::vector<double> predicted;
  std::vector<double> taken;
  for (const RoundFigures& round : measured) {
    if (round.predicted_seconds <= 0.0) continue;
    ratios.push_back(round.exchange_seconds / round.predicted_seconds);
    predicted.push_back(round.predicted_seconds);
    taken.push_back(round.exchange_seconds);
  }
  const std::string what = fmt::format("{}: {}, {} sites", self.what, scenario["name"].get<std::string>(), sites);
  if (ratios.empty()) return WanRow{each.name, what, "not available: the gateways predict no time", "within 20 %", std::nullopt, {}};
  const double error = median(ratios) - 1.0;
  WanRow row{each.name, what, "", "within 20 %", std::fabs(error) <= kPredictionTolerance, {{"rounds", to_json(measured)}}};
  row.figure = fmt::format("{:+.1f} % (medians of {} rounds: {:.2f} s from opening to commit, predicted {:.2f} s; {:.2f} s from readiness)",
                           error * 100, ratios.size(), median(taken), median(predicted), median_seconds(measured));
  return row;
}

Result<std::vector<WanRow>> measure_scenarios(const WanCase& self, const WanBenchOptions& options) {
  if (options.scenarios.empty()) return std::vector<WanRow>{unavailable_row(self, "no file given with --scenarios", "within 20 %")};
  std::ifstream file(options.scenarios);
  const auto list = nlohmann::json::parse(file, nullptr, false);
  if (!list.is_array()) return fail(ErrorCode::kInvalidArgument, "read scenarios", options.scenarios);
  std::vector<WanRow> rows;
  for (const auto& scenario : list) {
    const auto row = measure_scenario(self, options, scenario);
    rows.push_back(row ? *row : unavailable_row(self, row.error().to_string(), "within 20 %"));
  }
  return rows;
}

}  // namespace

std::vector<WanCase> training_cases() {
  return {{"steps", fmt::format("a link of {:.0f} Mbit/s falls to {:.0f} and returns", kFastMbit, kSlowMbit), measure_steps},
          {"slow-site", "round time with one of three sites at a quarter of the bandwidth, over all fast", measure_slow_site},
          {"scenario", "time of a round against the plan", measure_scenarios}};
}

}  // namespace sluice::bench
