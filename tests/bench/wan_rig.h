#pragma once

// Real gateways in the sites of an emulated WAN, a synthetic training process for each, and iperf3 over the same links. Not thread-safe;
// everything ends with the object.

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "tests/bench/agent_team.h"
#include "tests/support/gateway_fleet.h"
#include "tests/support/wan_emulator.h"

namespace sluice::bench {

struct RigOptions {
  std::string self;     // this program, for its agents
  std::string program;  // `sluice`
  std::filesystem::path directory;
  std::uint16_t sites = 2;
  std::uint64_t values = 0;     // fp32 parameters of the synthetic training processes; 0 = none of these
  support::FleetOptions fleet;  // program, directory, sites and emulator are filled in
  std::uint64_t seed = 1;
};

// One direction of a link: Mbit/s and the delay one way, without loss.
support::PathShape path_shape(double mbit, Duration delay);
// Both directions between any two sites.
void set_all_paths(support::WanEmulator& wan, const support::PathShape& shape);

// Bits per second that the receiver of iperf3 counts over one direction of an otherwise idle link, the ramp left out.
struct IperfPlan {
  unsigned streams = 8;
  unsigned seconds = 8;
  unsigned omitted_seconds = 3;
  std::string congestion = "bbr";  // what the gateways use by default
};

// One directed link in one round, as its sender's status tells it.
struct LinkFigures {
  std::uint16_t from = 0;
  std::uint16_t to = 0;
  double budget_bytes = 0.0;  // 0 = none
  double sent_bytes = 0.0;
};

// A round that all sites have applied.
struct RoundFigures {
  unsigned round = 0;
  double seconds = 0.0;           // at site 0, from its readiness to the commit
  double exchange_seconds = 0.0;  // of these, from the opening on: what a plan predicts
  bool has_plan = false;          // what follows is there
  std::string reason;
  double target_bits = 0.0;
  double budget_seconds = 0.0;     // 0 = none
  double predicted_seconds = 0.0;  // 0 = not known
  std::vector<LinkFigures> links;
};
nlohmann::json to_json(const RoundFigures& round);

// Samples what arrives over one path while it exists: Mbit/s of IP bytes in slots of 50 ms. A thread of its own.
class PathTrace {
 public:
  PathTrace(const support::WanEmulator& wan, SiteId from, SiteId to);
  PathTrace(const PathTrace&) = delete;
  PathTrace& operator=(const PathTrace&) = delete;
  ~PathTrace();
  // Ends the sampling.
  std::vector<double> finish();

 private:
  std::atomic<bool> is_over_{false};
  std::vector<double> mbits_;
  std::thread thread_;
};

class WanRig {
 public:
  // `shape` sets the links before anything runs.
  static Result<std::unique_ptr<WanRig>> start(RigOptions options, const std::function<void(support::WanEmulator&)>& shape);

  // Before the gateways run. kNotFound without iperf3.
  Result<double> iperf(SiteId from, SiteId to, const IperfPlan& plan);
  // Gateways and synthetic training processes; then rounds.
  Status start_gateways();
  Result<TeamRound> round();
  // A round, and what the gateways say of it afterwards.
  Result<RoundFigures> measured_round();

  support::WanEmulator& wan() { return *wan_; }
  support::GatewayFleet& fleet() { return *fleet_; }
  // Bytes that site `from` has given to its sockets for `to` since the start, TLS included, once its status shows `rounds` rounds.
  Result<double> sent_bytes(std::uint16_t from, std::uint16_t to, unsigned rounds);

 private:
  WanRig() = default;
  Result<nlohmann::json> status_after(std::uint16_t site, unsigned round);

  RigOptions options_;
  std::unique_ptr<support::WanEmulator> wan_;
  std::unique_ptr<support::GatewayFleet> fleet_;
  std::optional<AgentTeam> team_;
  unsigned rounds_ = 0;
};

}  // namespace sluice::bench
