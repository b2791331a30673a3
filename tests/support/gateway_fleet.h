#pragma once

// GatewayFleet: K real gateway processes for end-to-end tests and benchmarks: certificates, configuration files, free ports. They talk over
// loopback, through the relay (TCP, without root), or each in its namespace of a WanEmulator (packets, with root). Everything lives in a
// directory of its own and is ended by the destructor. Not thread-safe.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "tests/support/child_process.h"
#include "tests/support/link_clock.h"
#include "tests/support/wan_emulator.h"
#include "tests/support/wan_relay.h"

namespace sluice::support {

struct FleetOptions {
  std::string program;                                      // path of `sluice`
  std::vector<std::string> gateway{"gateway", "--config"};  // words after a program; the configuration file follows
  std::string gateway_program;                              // another program than `program` for these words; empty = the same
  std::filesystem::path directory;                          // made; not removed
  std::uint16_t sites = 3;
  std::uint32_t ranks = 1;
  std::uint32_t inner_steps = 1;
  std::string outer = "{rule: average, learning_rate: 1.0}";
  std::string compression = "{mode: fixed, bits: 3, warmup_rounds: 0}";
  std::string round = "{deadline: 30s, open_grace: 30s, commit_deadline: 30s}";
  std::string solo = "{steps_max: 100000, pause_max: 1min}";
  std::string heartbeat = "{interval: 1s, misses: 3}";
  std::string wan;    // more keys of the section wan, as ", congestion: cubic"
  std::string extra;  // more YAML for every site
  unsigned streams = 4;
  bool has_tls_agents = false;  // agents come by TCP with TLS; certificates are certs/agent-<site>.pem and .key
  bool has_wan = false;             // links go through the relay below
  LinkShape link;                   // of every directed pair, with has_wan
  BitsPerSecond egress;             // of every site, all its links together; 0 = none
  WanEmulator* emulator = nullptr;  // has at least these sites and outlives the fleet; without has_wan
};

class GatewayFleet {
 public:
  static Result<std::unique_ptr<GatewayFleet>> start(FleetOptions options);
  ~GatewayFleet();

  // Starts the gateway of a site (again). Waits until it listens.
  Status start_site(std::uint16_t site);
  void kill_site(std::uint16_t site);    // SIGKILL, and waits for its end
  Status stop_site(std::uint16_t site);  // SIGTERM, and waits for its end

  [[nodiscard]] static std::string site_name(std::uint16_t site);
  [[nodiscard]] std::string agent_address(std::uint16_t site) const;  // "unix:/..."
  [[nodiscard]] std::filesystem::path config_file(std::uint16_t site) const;
  [[nodiscard]] std::filesystem::path log_file(std::uint16_t site) const;
  [[nodiscard]] std::uint16_t admin_port(std::uint16_t site) const { return admin_ports_[site]; }
  [[nodiscard]] std::uint16_t wan_port(std::uint16_t site) const { return wan_ports_[site]; }
  [[nodiscard]] WanRelay* relay() { return relay_.get(); }
  [[nodiscard]] ChildProcess* process(std::uint16_t site) { return processes_[site] ? &*processes_[site] : nullptr; }

  // Runs `work` where the site's ports are: in its namespace, or here.
  void run_at(std::uint16_t site, const std::function<void()>& work) const;
  // GET on the site's admin address.
  [[nodiscard]] Result<std::string> get(std::uint16_t site, const std::string& path) const;
  // POST of a command there; fails unless it is accepted.
  [[nodiscard]] Result<std::string> command(std::uint16_t site, const std::string& path) const;
  [[nodiscard]] Result<nlohmann::json> status(std::uint16_t site) const;
  // Asks until `accept` likes the status, or kTimeout naming `what`.
  [[nodiscard]] Status wait_status(std::uint16_t site, const std::string& what, std::chrono::milliseconds timeout,
                                   const std::function<bool(const nlohmann::json&)>& accept) const;

 private:
  explicit GatewayFleet(FleetOptions options) : options_(std::move(options)) {}
  Status make_certificates();
  Status make_routes();
  Status write_config(std::uint16_t site) const;
  [[nodiscard]] std::string wan_host(std::uint16_t site) const;

  FleetOptions options_;
  std::vector<std::uint16_t> wan_ports_;
  std::vector<std::uint16_t> admin_ports_;
  std::vector<std::uint16_t> agent_ports_;  // with has_tls_agents
  std::vector<std::vector<std::uint16_t>> dial_ports_;  // [from][to], with the relay
  std::unique_ptr<WanRelay> relay_;
  std::vector<std::optional<ChildProcess>> processes_;
};

}  // namespace sluice::support
