// What a gateway believes of a link after one round of traffic, and then after a probe, beside what iperf3 with 8 streams gets over it.
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
constexpr double kProbeTolerance = 0.10;
constexpr std::chrono::seconds kProbeTimeout{30};
constexpr double kRoundSeconds = 4.0;  // what the round's traffic would take at the full rate
constexpr double kMibMax = 256.0;
constexpr const char* kTarget = "within 15 % of iperf3";

std::uint64_t values_for(const EstimatePoint& point) {
  const double bytes = std::min(point.rate_mbit * 1e6 / 8.0 * kRoundSeconds, kMibMax * static_cast<double>(kMiB));
  return static_cast<std::uint64_t>(bytes / 4.0);
}

WanRow estimate_row(const WanCase& self, const nlohmann::json& estimate, double iperf, double tolerance) {
  const double rate = estimate["median_bits_per_second"].get<double>();
  const double error = rate / iperf - 1.0;
  WanRow row{self.name, self.what, "", fmt::format("within {:.0f} % of iperf3", tolerance * 100), std::fabs(error) <= tolerance, {}};
  row.figure =
      fmt::format("{:+.1f} % ({:.1f} Mbit/s, iperf3 {:.1f}; {})", error * 100, rate * 1e-6, iperf * 1e-6, estimate.value("method", "?"));
  row.detail = {{"iperf3_mbit", iperf * 1e-6}, {"estimate", estimate}};
  return row;
}

// The same after an active probe.
WanRow probed_row(const WanCase& self, WanRig& rig, double iperf) {
  WanCase probed = self;
  probed.what += ", then a probe";
  const auto refused = [&](const Error& error) { return unavailable_row(probed, error.to_string(), "within 10 % of iperf3"); };
  const auto asked = rig.fleet().command(0, "/api/v1/wan/probe?peer=" + support::GatewayFleet::site_name(1));
  if (!asked) return refused(asked.error());
  const auto is_probed = [](const nlohmann::json& status) {
    return !status["wan_paths"]["probe"]["running"].get<bool>() && status["links"].front()["estimate"]["method"] == "probe";
  };
  const Status done = rig.fleet().wait_status(0, "the probe's end", kProbeTimeout, is_probed);
  const auto status = rig.fleet().status(0);
  if (!status) return refused(status.error());
  if (!done) return unavailable_row(probed, (*status)["wan_paths"]["probe"].value("text", "no probe ended"), "within 10 % of iperf3");
  return estimate_row(probed, (*status)["links"].front()["estimate"], iperf, kProbeTolerance);
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
  std::vector<WanRow> rows;
  rows.push_back(estimate_row(self, link["estimate"], iperf, kTolerance));
  rows.back().detail["round"] = to_json(round);
  rows.push_back(probed_row(self, *rig, iperf));
  return rows;
}

}  // namespace

std::vector<WanCase> estimate_cases() {
  std::vector<WanCase> cases;
  for (const EstimatePoint& point : kPoints) {
    cases.push_back({point.name,
                     fmt::format("estimate of a link of {:.0f} Mbit/s, RTT {:.0f} ms, loss {} %, after one round", point.rate_mbit,
                                 point.rtt_ms, point.loss * 100),
                     measure_estimate});
  }
  return cases;
}

}  // namespace sluice::bench
