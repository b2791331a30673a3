// How much of a link an exchange of raw fp32 between two gateways uses. Each site sends as many bytes as the tensors have: contributions
// for the chunks that the other owns, sums of those that it owns. The time is that of the whole round, from "both have their delta" to
// "both have applied the update"; the bytes are those of the gateways' sockets with the headers of full segments, without what TCP sent
// again.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tests/bench/wan_rows.h"

namespace sluice::bench {
namespace {

struct LinkUse {
  const char* name;
  double rate_mbit;
  double rtt_ms;
  double loss;
  double target;  // share of the link
};
constexpr std::array<LinkUse, 3> kLinkUses = {{
    {"link-clean", 500, 50, 0.0, 0.92},
    {"link-loss-0.1", 500, 50, 0.001, 0.80},
    {"link-loss-1", 500, 100, 0.01, 0.70},
}};

// A full segment on the wire over what it carries: the link's rate counts the former.
constexpr double kIpPerPayload = 1500.0 / 1448.0;

support::PathShape shape_of(const LinkUse& use) {
  support::PathShape shape;
  shape.rate = BitsPerSecond{use.rate_mbit * 1e6};
  shape.delay = std::chrono::microseconds(static_cast<long>(use.rtt_ms * 500.0));
  shape.loss = use.loss;
  return shape;
}

RigOptions link_options(const WanCase& self, const WanBenchOptions& options) {
  RigOptions rig = rig_options(self, options, static_cast<std::uint64_t>(options.mib * 1024.0 * 1024.0 / 4.0));
  rig.fleet.compression = "{mode: fixed, bits: 8, warmup_rounds: 0, codec: raw32}";
  return rig;
}

Result<std::vector<WanRow>> measure_link_use(const WanCase& self, const WanBenchOptions& options) {
  const LinkUse& use = *std::ranges::find(kLinkUses, self.name, [](const LinkUse& each) { return std::string(each.name); });
  SLUICE_TRY(auto rig, WanRig::start(link_options(self, options),
                                     [&](support::WanEmulator& wan) { wan.set_both(SiteId(0), SiteId(1), shape_of(use)); }));
  IperfPlan plan;
  plan.congestion = options.congestion;
  const auto iperf = rig->iperf(SiteId(0), SiteId(1), plan);
  SLUICE_CHECK_OK(rig->start_gateways());
  SLUICE_CHECK_OK(rig->round().map([](const TeamRound&) {}));
  SLUICE_TRY(const double sent_before, rig->sent_bytes(0, 1, 1));
  const support::PathCounters counted_before = rig->wan().counters(SiteId(0), SiteId(1));
  std::vector<double> seconds;
  nlohmann::json traces = nlohmann::json::array();
  for (unsigned round = 0; round < options.rounds; ++round) {
    PathTrace there(rig->wan(), SiteId(0), SiteId(1));
    PathTrace back(rig->wan(), SiteId(1), SiteId(0));
    SLUICE_TRY(const TeamRound each, rig->round());
    seconds.push_back(each.seconds);
    traces.push_back({there.finish(), back.finish()});
  }
  SLUICE_TRY(const double sent_after, rig->sent_bytes(0, 1, 1 + options.rounds));
  const support::PathCounters counted = rig->wan().counters(SiteId(0), SiteId(1));
  SLUICE_TRY(const auto status, rig->fleet().status(0));
  const double rate = use.rate_mbit * 1e6;
  const double payload_bits = (sent_after - sent_before) * 8.0 / options.rounds;
  const double goodput = payload_bits / median(seconds);
  const double share = goodput * kIpPerPayload / rate;
  const double carried =
      static_cast<double>(counted.delivered_bytes - counted_before.delivered_bytes) * 8.0 / options.rounds / median(seconds) / rate;
  WanRow row{self.name, self.what, "", fmt::format(">= {:.0f} %", use.target * 100), share >= use.target, {}};
  const std::string against =
      iperf ? fmt::format("{:.2f}x iperf3 ({:.0f} Mbit/s)", goodput / *iperf, *iperf * 1e-6) : "iperf3: " + iperf.error().detail;
  row.figure = fmt::format("{:.1f} % of the link, {:.0f} Mbit/s of payload, {}", share * 100, goodput * 1e-6, against);
  row.detail = {{"rate_mbit", use.rate_mbit},
                {"rtt_ms", use.rtt_ms},
                {"loss", use.loss},
                {"mib", options.mib},
                {"streams", options.streams},
                {"congestion", options.congestion},
                {"seconds", seconds},
                {"link_share", share},
                {"payload_mbit", goodput * 1e-6},
                {"carried_share", carried},
                {"iperf3_mbit", iperf ? nlohmann::json(*iperf * 1e-6) : nlohmann::json()},
                {"segments_sent", counted.sent - counted_before.sent},
                {"segments_lost", counted.lost - counted_before.lost},
                {"segments_dropped", counted.dropped - counted_before.dropped},
                {"trace_mbit_per_50_ms", traces},
                {"last_phases", status["rounds"].back()["phase_seconds"]},
                {"emulator_cpu_seconds", rig->wan().figures().cpu_seconds}};
  return std::vector<WanRow>{std::move(row)};
}

}  // namespace

std::vector<WanCase> link_use_cases() {
  std::vector<WanCase> cases;
  for (const LinkUse& use : kLinkUses) {
    cases.push_back(
        {use.name,
         fmt::format("link use by an exchange: {:.0f} Mbit/s, RTT {:.0f} ms, loss {} %", use.rate_mbit, use.rtt_ms, use.loss * 100),
         measure_link_use});
  }
  return cases;
}

}  // namespace sluice::bench
