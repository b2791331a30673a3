// What a gateway believes of a link after one round of traffic, without a probe, beside what iperf3 with 8 streams gets over the same link.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tests/bench/wan_rows.h"

namespace sluice::bench {
namespace {

struct EstimatePoint {
  const char* name;
  double rate_mbit;
  double rtt_ms;
  double loss;
};
constexpr std::array<EstimatePoint, 6> kPoints = {{
    {"estimate-20-20", 20, 20, 0.0},
    {"estimate-20-250-loss", 20, 250, 0.01},
    {"estimate-100-50-loss", 100, 50, 0.001},
    {"estimate-200-150-loss", 200, 150, 0.01},
    {"estimate-500-50", 500, 50, 0.0},
    {"estimate-1000-20", 1000, 20, 0.0},
}};
constexpr double kTolerance = 0.15;
constexpr double kRoundSeconds = 4.0;  // what the round's traffic would take at the full rate
constexpr double kMibMax = 256.0;
constexpr const char* kTarget = "within 15 % of iperf3";

std::uint64_t values_for(const EstimatePoint& point) {
  const double bytes = std::min(point.rate_mbit * 1e6 / 8.0 * kRoundSeconds, kMibMax * static_cast<double>(kMiB));
  return static_cast<std::uint64_t>(bytes / 4.0);
}

Result<std::vector<WanRow>> measure_estimate(const WanCase& self, const WanBenchOptions& options) {
  const EstimatePoint& point = *std::ranges::find(kPoints, self.name, [](const EstimatePoint& each) { return std::string(each.name); });
  support::PathShape shape;
  shape.rate = BitsPerSecond{point.rate_mbit * 1e6};
  shape.delay = std::chrono::microseconds(static_cast<long>(point.rtt_ms * 500.0));
  shape.loss = point.loss;
  RigOptions rig_settings = rig_options(self, options, values_for(point));
  rig_settings.fleet.compression = "{mode: fixed, bits: 8, warmup_rounds: 0, codec: raw32}";
  SLUICE_TRY(auto rig,
             WanRig::start(std::move(rig_settings), [&](support::WanEmulator& wan) { wan.set_both(SiteId(0), SiteId(1), shape); }));
  IperfPlan plan;
  plan.congestion = options.congestion;
  SLUICE_TRY(const double iperf, rig->iperf(SiteId(0), SiteId(1), plan));
  SLUICE_CHECK_OK(rig->start_gateways());
  SLUICE_TRY(const RoundFigures round, rig->measured_round());
  SLUICE_TRY(const auto status, rig->fleet().status(0));
  const auto& link = status["links"].front();
  if (!link.contains("estimate") || !link["estimate"]["median_bits_per_second"].is_number()) {
    return std::vector<WanRow>{unavailable_row(self, "the gateways' status has no estimate of the link", kTarget)};
  }
  const double estimate = link["estimate"]["median_bits_per_second"].get<double>();
  const double error = estimate / iperf - 1.0;
  WanRow row{self.name, self.what, "", kTarget, std::fabs(error) <= kTolerance, {}};
  row.figure = fmt::format("{:+.1f} % ({:.1f} Mbit/s, iperf3 {:.1f}; {}, after {:.1f} s)", error * 100, estimate * 1e-6, iperf * 1e-6,
                           link["estimate"].value("method", "?"), round.seconds);
  row.detail = {{"rate_mbit", point.rate_mbit}, {"rtt_ms", point.rtt_ms},       {"loss", point.loss},
                {"iperf3_mbit", iperf * 1e-6},  {"estimate", link["estimate"]}, {"round", to_json(round)}};
  return std::vector<WanRow>{std::move(row)};
}

}  // namespace

std::vector<WanCase> estimate_cases() {
  std::vector<WanCase> cases;
  for (const EstimatePoint& point : kPoints) {
    cases.push_back(
        {point.name,
         fmt::format("estimate after one round: {:.0f} Mbit/s, RTT {:.0f} ms, loss {} %", point.rate_mbit, point.rtt_ms, point.loss * 100),
         measure_estimate});
  }
  return cases;
}

}  // namespace sluice::bench
