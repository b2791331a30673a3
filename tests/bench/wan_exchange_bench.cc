// wan_exchange_bench: K real gateways (TLS, journal) with one synthetic agent each average a vector; times are from "every site has its
// delta ready" to "every site has applied the update". One line a case, and all of it as JSON. Rates and RTTs are emulated in user space.
//
//     wan_exchange_bench --sites 3 --mib 64 --bits 3 --rounds 9 --rate 200 --json out.json
//
// seconds_median is the median over the rounds after the first (which measures the error of one exchange without carried residuals).

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "gateway/config.h"
#include "gateway/gateway.h"
#include "tests/bench/agent_team.h"
#include "tests/bench/exchange_agent.h"
#include "tests/support/gateway_fleet.h"

namespace sluice::bench {
namespace {

struct Case {
  std::uint16_t sites = 3;
  double mib = 64.0;
  double bits = 3.0;
  unsigned rounds = 9;
  double rate_mbit = 0.0;  // egress of each site; 0 = loopback as it is
  double rtt_ms = 0.0;
  bool has_tls = true;
  unsigned streams = 4;
  std::string congestion = "bbr";
};

struct Outcome {
  std::string phases;  // of the last round at the first site
  double seconds_median = 0.0;
  double seconds_min = 0.0;
  double bytes_sent_per_site = 0.0;
  double cpu_seconds_per_gb = 0.0;
  double rms_error_percent = 0.0;
};

// What `sluice gateway` does, without encryption after the handshake.
int run_clear_gateway(const std::string& config_file) {
  const auto config = gateway::load_config(config_file);
  const Status ran = config ? gateway::run_gateway(*config, {"bench", false, gateway::TlsRecords::kHandshakeOnly}) : fail(config.error());
  if (!ran) fmt::print(stderr, "{}\n", ran.error().to_string());
  return ran ? 0 : 1;
}

support::FleetOptions fleet_options(const Case& test, const std::string& self, const std::string& program,
                                    const std::filesystem::path& directory) {
  support::FleetOptions options;
  if (!test.has_tls) {
    options.gateway_program = self;
    options.gateway = {"--clear-gateway"};
  }
  options.program = program;
  options.directory = directory;
  options.sites = test.sites;
  options.streams = test.streams;
  const char* codec = test.bits >= 32.0 ? ", codec: raw32" : test.bits >= 16.0 ? ", codec: bf16" : "";
  options.compression = fmt::format("{{mode: fixed, bits: {}, warmup_rounds: 0{}}}", codec[0] != '\0' ? 8.0 : test.bits, codec);
  options.has_wan = test.rate_mbit > 0.0 || test.rtt_ms > 0.0;
  options.egress = BitsPerSecond{test.rate_mbit * 1e6};
  options.link.delay = std::chrono::microseconds(static_cast<long>(test.rtt_ms * 500.0));
  options.wan = ", congestion: " + test.congestion;
  options.extra = "log: {level: warning}\n";
  return options;
}

// Sum over the sites of what has left on WAN connections.
Result<double> total_sent(const support::GatewayFleet& fleet, std::uint16_t sites) {
  double total = 0.0;
  for (std::uint16_t site = 0; site < sites; ++site) {
    SLUICE_TRY(const auto status, fleet.status(site));
    total += status["wan"]["sent_bytes"].get<double>();
  }
  return total;
}

// Where the last round's time went: at the first site's gateway, and in its agent.
Result<std::string> describe_phases(const support::GatewayFleet& fleet, const nlohmann::json& agent) {
  SLUICE_TRY(const auto status, fleet.status(0));
  const auto& phases = status["rounds"].back()["phase_seconds"];
  const auto ms = [](const nlohmann::json& seconds) { return seconds.get<double>() * 1e3; };
  return fmt::format(
      "last round, ms: open {:.1f}, contribute {:.1f}, combine {:.1f}, commit {:.1f}; agent: encode {:.1f}, decode {:.1f}, wait {:.1f}",
      ms(phases["open"]), ms(phases["contribute"]), ms(phases["combine"]), ms(phases["commit"]), agent["encode_us"].get<double>() * 1e-3,
      agent["decode_us"].get<double>() * 1e-3, agent["wait_us"].get<double>() * 1e-3);
}

Result<Outcome> run_case(const Case& test, const std::string& self, const std::string& program, const std::filesystem::path& directory) {
  SLUICE_TRY(auto fleet, support::GatewayFleet::start(fleet_options(test, self, program, directory)));
  const auto values = static_cast<std::uint64_t>(test.mib * 1024.0 * 1024.0 / 4.0);
  SLUICE_TRY(auto team, AgentTeam::start(*fleet, self, test.sites, values, directory));
  Outcome outcome;
  SLUICE_TRY(TeamRound round, team.round());
  outcome.rms_error_percent = round.error * 100.0;
  SLUICE_TRY(const double sent_before, total_sent(*fleet, test.sites));
  std::vector<double> seconds(test.rounds);
  for (double& each : seconds) {
    SLUICE_TRY(round, team.round());
    each = round.seconds;
  }
  // The gateways publish their counters at most every 50 ms and at least every second.
  SLUICE_CHECK_OK(fleet->wait_status(0, "last round in the status", std::chrono::seconds(10),
                                     [&](const nlohmann::json& status) { return status["round"].get<unsigned>() >= test.rounds + 1; }));
  SLUICE_TRY(outcome.phases, describe_phases(*fleet, round.agents.front()));
  SLUICE_TRY(const double sent_after, total_sent(*fleet, test.sites));
  outcome.bytes_sent_per_site = (sent_after - sent_before) / test.rounds / test.sites;
  std::sort(seconds.begin(), seconds.end());
  outcome.seconds_median = seconds[seconds.size() / 2];
  outcome.seconds_min = seconds.front();
  double cpu = 0.0;
  for (std::uint16_t site = 0; site < test.sites; ++site) {
    support::ChildProcess* gateway = fleet->process(site);
    SLUICE_CHECK_OK(fleet->stop_site(site));
    cpu += gateway->cpu_seconds();
  }
  const double gigabytes = test.mib / 1024.0 * 1.073741824 * (test.rounds + 1) * test.sites;
  outcome.cpu_seconds_per_gb = cpu / gigabytes;
  return outcome;
}

nlohmann::json to_json(const Case& test, const Outcome& outcome) {
  return {{"sites", test.sites},
          {"mib", test.mib},
          {"bits", test.bits},
          {"rate_mbit", test.rate_mbit},
          {"rtt_ms", test.rtt_ms},
          {"tls", test.has_tls},
          {"rounds", test.rounds},
          {"seconds_median", outcome.seconds_median},
          {"seconds_min", outcome.seconds_min},
          {"bytes_sent_per_site", outcome.bytes_sent_per_site},
          {"cpu_seconds_per_gb", outcome.cpu_seconds_per_gb},
          {"rms_error_percent", outcome.rms_error_percent}};
}

void print_case(const Case& test, const Outcome& outcome) {
  fmt::print(
      "{} sites  {:>9.4g} MiB  {:>4.3g} bits  {:>9}  tls {:3}  median {:8.4f} s  min {:8.4f} s  sent {:8.3f} MB/site  gateway cpu {:6.3f} "
      "s/GB  rms "
      "error {:.3f} %\n    {}\n",
      test.sites, test.mib, test.bits, test.rate_mbit > 0 ? fmt::format("{} Mbit", test.rate_mbit) : "loopback",
      test.has_tls ? "on" : "off", outcome.seconds_median, outcome.seconds_min, outcome.bytes_sent_per_site * 1e-6,
      outcome.cpu_seconds_per_gb, outcome.rms_error_percent, outcome.phases);
  std::fflush(stdout);
}

// The cases of `./run bench exchange`: every size, two and three sites, on loopback and at 200 Mbit/s.
std::vector<Case> suite(unsigned rounds) {
  std::vector<Case> cases;
  for (const double rate : {0.0, 200.0}) {
    for (const std::uint16_t sites : {std::uint16_t{2}, std::uint16_t{3}}) {
      for (const double mib : {4.0 / 1024.0, 1.0, 16.0, 64.0, 256.0}) {
        for (const double bits : {3.0, 5.99}) {
          if (bits > 3.0 && mib < 64.0) continue;  // the error of PCCL's 8-bit mode only matters where bytes do
          Case each;
          each.sites = sites;
          each.mib = mib;
          each.bits = bits;
          each.rate_mbit = rate;
          each.rounds = mib >= 256.0 ? std::min(rounds, 3U) : rounds;
          cases.push_back(each);
        }
      }
    }
  }
  return cases;
}

int run_all(const std::vector<Case>& cases, const std::string& self, const std::string& program, const std::string& json_file) {
  const std::filesystem::path base = std::filesystem::temp_directory_path() / fmt::format("sluice-exchange-{}", ::getpid());
  nlohmann::json results = nlohmann::json::array();
  int failures = 0;
  for (std::size_t index = 0; index < cases.size(); ++index) {
    const std::filesystem::path directory = base / std::to_string(index);
    const auto outcome = run_case(cases[index], self, program, directory);
    if (!outcome) {
      fmt::print(stderr, "{} sites, {} MiB: {} (logs in {})\n", cases[index].sites, cases[index].mib, outcome.error().to_string(),
                 directory.string());
      ++failures;
      continue;
    }
    print_case(cases[index], *outcome);
    results.push_back(to_json(cases[index], *outcome));
    std::filesystem::remove_all(directory);
  }
  if (!json_file.empty()) std::ofstream(json_file) << results.dump(1) << "\n";
  if (failures == 0) std::filesystem::remove_all(base);
  return failures == 0 ? 0 : 1;
}

int run(int argc, char** argv) {
  CLI::App app{"Averages a vector between K real gateways and measures time, bytes, processor and error"};
  Case test;
  ExchangeAgentOptions agent;
  std::string json_file;
  std::string tls = "on";
  std::string clear_gateway;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  std::string program = (std::filesystem::path(self).parent_path().parent_path().parent_path() / "gateway" / "sluice").string();
  app.add_option("--sites", test.sites, "Sites (2..16)")->check(CLI::Range(2, 16));
  app.add_option("--mib", test.mib, "MiB of fp32 values")->check(CLI::PositiveNumber);
  app.add_option("--bits", test.bits, "Bits per value; 16 = BF16, 32 = RAW32")->check(CLI::Range(0.05, 32.0));
  app.add_option("--rounds", test.rounds, "Measured rounds")->check(CLI::Range(1, 1000));
  app.add_option("--rate", test.rate_mbit, "Mbit/s that each site can send; 0 = loopback as it is");
  app.add_option("--rtt", test.rtt_ms, "Round-trip time in ms");
  app.add_option("--streams", test.streams, "Bulk connections of each link");
  app.add_option("--congestion", test.congestion, "TCP congestion control of the links")->check(CLI::IsMember({"bbr", "cubic"}));
  app.add_option("--tls", tls, "on, or off: both sides authenticate, the rest goes in the clear")->check(CLI::IsMember({"on", "off"}));
  app.add_option("--json", json_file, "File for the results");
  app.add_option("--program", program, "The program sluice");
  app.add_option("--clear-gateway", clear_gateway)->group("");
  app.add_option("--agent", agent.gateway)->group("");
  app.add_option("--site", agent.site)->group("");
  app.add_option("--values", agent.values)->group("");
  CLI11_PARSE(app, argc, argv);
  if (!clear_gateway.empty()) return run_clear_gateway(clear_gateway);
  agent.sites = test.sites;
  test.has_tls = tls == "on";
  if (!agent.gateway.empty()) return run_exchange_agent(agent);
  // Without a size or a number of sites: all cases of `./run bench exchange`.
  const bool is_suite = app.count("--mib") + app.count("--sites") == 0;
  return run_all(is_suite ? suite(test.rounds) : std::vector<Case>{test}, self, program, json_file);
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) { return sluice::bench::run(argc, argv); }
