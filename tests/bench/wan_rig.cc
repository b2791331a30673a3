#include "tests/bench/wan_rig.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/clock.h"

namespace sluice::bench {
namespace {

constexpr const char* kIperf = "/usr/bin/iperf3";
constexpr int kTraceSlotMs = 50;
constexpr int kConnectTries = 50;  // of 100 ms: the server needs a moment

Result<support::ChildProcess> start_in(const support::WanEmulator& wan, SiteId site, std::vector<std::string> arguments) {
  support::ChildOptions options;
  options.arguments = std::move(arguments);
  options.network = wan.site(site).fd();
  options.stderr_file = "/dev/null";
  return support::ChildProcess::start(options);
}

double number_or_zero(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0.0;
}

// Everything that the child prints until it ends.
Result<nlohmann::json> read_all(support::ChildProcess& child, std::chrono::seconds limit) {
  std::string text;
  while (const auto line = child.read_line(limit)) text += *line + "\n";
  SLUICE_CHECK_OK(child.wait(limit).map([](int) {}));
  auto parsed = nlohmann::json::parse(text, nullptr, false);
  if (parsed.is_discarded()) return fail(ErrorCode::kInternal, "read iperf3", "not JSON: " + text.substr(0, 200));
  return parsed;
}

}  // namespace

support::PathShape path_shape(double mbit, Duration delay) {
  support::PathShape shape;
  shape.rate = BitsPerSecond{mbit * 1e6};
  shape.delay = delay;
  return shape;
}

void set_all_paths(support::WanEmulator& wan, const support::PathShape& shape) {
  for (std::uint16_t a = 0; a < wan.sites(); ++a) {
    for (std::uint16_t b = 0; b < a; ++b) wan.set_both(SiteId(a), SiteId(b), shape);
  }
}

PathTrace::PathTrace(const support::WanEmulator& wan, SiteId from, SiteId to) {
  thread_ = std::thread([this, &wan, from, to] {
    std::uint64_t bytes = wan.counters(from, to).delivered_bytes;
    TimePoint at = Clock::now();
    while (!is_over_.load()) {
      ::poll(nullptr, 0, kTraceSlotMs);
      const std::uint64_t bytes_now = wan.counters(from, to).delivered_bytes;
      const TimePoint now = Clock::now();
      mbits_.push_back(std::round(static_cast<double>(bytes_now - bytes) * 8e-6 / std::chrono::duration<double>(now - at).count()));
      bytes = bytes_now;
      at = now;
    }
  });
}
PathTrace::~PathTrace() { finish(); }
std::vector<double> PathTrace::finish() {
  is_over_.store(true);
  if (thread_.joinable()) thread_.join();
  return mbits_;
}

Result<std::unique_ptr<WanRig>> WanRig::start(RigOptions options, const std::function<void(support::WanEmulator&)>& shape) {
  std::unique_ptr<WanRig> rig(new WanRig());
  std::filesystem::create_directories(options.directory);
  support::WanEmulatorOptions emulator;
  emulator.sites = options.sites;
  emulator.seed = options.seed;
  SLUICE_TRY(rig->wan_, support::WanEmulator::start(emulator));
  shape(*rig->wan_);
  rig->options_ = std::move(options);
  return rig;
}

Result<double> WanRig::iperf(SiteId from, SiteId to, const IperfPlan& plan) {
  if (!std::filesystem::exists(kIperf)) return fail(ErrorCode::kNotFound, "measure with iperf3", "iperf3 is not installed");
  std::uint16_t port = 0;
  wan_->site(to).run([&port] { port = support::free_port(); });
  SLUICE_TRY(auto server, start_in(*wan_, to, {kIperf, "-s", "-p", std::to_string(port)}));
  const std::vector<std::string> client = {kIperf,
                                           "-c",
                                           support::WanEmulator::address(to),
                                           "-p",
                                           std::to_string(port),
                                           "-J",
                                           "-C",
                                           plan.congestion,
                                           "-P",
                                           std::to_string(plan.streams),
                                           "-t",
                                           std::to_string(plan.seconds),
                                           "-O",
                                           std::to_string(plan.omitted_seconds)};
  std::string problem;
  for (int attempt = 0; attempt < kConnectTries; ++attempt) {
    SLUICE_TRY(auto running, start_in(*wan_, from, client));
    SLUICE_TRY(const auto report, read_all(running, std::chrono::seconds(plan.seconds + plan.omitted_seconds + 30)));
    if (!report.contains("error")) {
      server.signal(SIGTERM);
      return report["end"]["sum_received"]["bits_per_second"].get<double>();
    }
    problem = report["error"].get<std::string>();
    ::poll(nullptr, 0, 100);
  }
  return fail(ErrorCode::kUnavailable, "measure with iperf3", problem);
}

Status WanRig::start_gateways() {
  support::FleetOptions fleet = options_.fleet;
  fleet.program = options_.program;
  fleet.directory = options_.directory;
  fleet.sites = options_.sites;
  fleet.emulator = wan_.get();
  SLUICE_TRY(fleet_, support::GatewayFleet::start(std::move(fleet)));
  if (options_.values == 0) return {};
  SLUICE_TRY(team_, AgentTeam::start(*fleet_, options_.self, options_.sites, options_.values, options_.directory));
  return {};
}

Result<TeamRound> WanRig::round() {
  SLUICE_TRY(auto round, team_->round());
  ++rounds_;
  return round;
}

// The gateways publish at most every 50 ms and at least every second.
Result<nlohmann::json> WanRig::status_after(std::uint16_t site, unsigned round) {
  SLUICE_CHECK_OK(fleet_->wait_status(site, "the last round", std::chrono::seconds(10), [&](const nlohmann::json& status) {
    return status["round"].get<unsigned>() >= round && !status["rounds"].empty() &&
           status["rounds"].back()["round"].get<unsigned>() >= round;
  }));
  return fleet_->status(site);
}

Result<double> WanRig::sent_bytes(std::uint16_t from, std::uint16_t to, unsigned rounds) {
  SLUICE_TRY(const auto status, status_after(from, rounds));
  for (const auto& link : status["links"]) {
    if (link["peer"] == support::GatewayFleet::site_name(to)) return link["sent_bytes"].get<double>();
  }
  return fail(ErrorCode::kNotFound, "read status", "no such link");
}

Result<RoundFigures> WanRig::measured_round() {
  SLUICE_CHECK_OK(round().map([](const TeamRound&) {}));
  RoundFigures figures;
  figures.round = rounds_;
  for (std::uint16_t from = 0; from < options_.sites; ++from) {
    SLUICE_TRY(const auto status, status_after(from, rounds_));
    const auto& last = status["rounds"].back();
    if (from == 0) {
      figures.seconds = last["seconds"].get<double>();
      figures.exchange_seconds = figures.seconds - last["phase_seconds"]["open"].get<double>();
      figures.has_plan = last.contains("rate");
    }
    if (!last.contains("rate")) continue;
    if (from == 0) {
      figures.reason = last["rate"].value("text", "");
      figures.target_bits = number_or_zero(last["rate"], "target_bits");
      figures.budget_seconds = number_or_zero(last["rate"], "budget_seconds");
      figures.predicted_seconds = number_or_zero(last["rate"], "predicted_seconds");
    }
    for (std::uint16_t to = 0; to < options_.sites; ++to) {
      for (const auto& link : status["links"]) {
        if (link["peer"] != support::GatewayFleet::site_name(to) || !link.contains("plan")) continue;
        figures.links.push_back({from, to, number_or_zero(link["plan"], "budget_bytes"), number_or_zero(link["plan"], "round_bytes")});
      }
    }
  }
  return figures;
}

nlohmann::json to_json(const RoundFigures& round) {
  nlohmann::json links = nlohmann::json::array();
  for (const LinkFigures& link : round.links) {
    links.push_back({{"from", link.from}, {"to", link.to}, {"budget_bytes", link.budget_bytes}, {"sent_bytes", link.sent_bytes}});
  }
  return {{"round", round.round},
          {"seconds", round.seconds},
          {"exchange_seconds", round.exchange_seconds},
          {"reason", round.reason},
          {"target_bits", round.target_bits},
          {"links", links},
          {"budget_seconds", round.budget_seconds},
          {"predicted_seconds", round.predicted_seconds}};
}

}  // namespace sluice::bench
