#include "tests/support/gateway_fleet.h"

#include <fmt/format.h>
#include <httplib.h>
#include <poll.h>

#include <csignal>
#include <fstream>
#include <utility>

#include "base/clock.h"

namespace sluice::support {
namespace {

constexpr std::chrono::seconds kStartTimeout{20};

}  // namespace

std::string GatewayFleet::site_name(std::uint16_t site) { return fmt::format("dc-{}", static_cast<char>('a' + site)); }
std::string GatewayFleet::agent_address(std::uint16_t site) const {
  if (options_.has_tls_agents) return fmt::format("tls:127.0.0.1:{}", agent_ports_[site]);
  return fmt::format("unix:{}", (options_.directory / (site_name(site) + ".sock")).string());
}
std::filesystem::path GatewayFleet::config_file(std::uint16_t site) const { return options_.directory / (site_name(site) + ".yaml"); }
std::filesystem::path GatewayFleet::log_file(std::uint16_t site) const { return options_.directory / (site_name(site) + ".log"); }

Result<std::unique_ptr<GatewayFleet>> GatewayFleet::start(FleetOptions options) {
  std::unique_ptr<GatewayFleet> fleet(new GatewayFleet(std::move(options)));
  std::filesystem::create_directories(fleet->options_.directory);
  SLUICE_CHECK_OK(fleet->make_certificates());
  for (std::uint16_t site = 0; site < fleet->options_.sites; ++site) {
    fleet->run_at(site, [&fleet] {
      fleet->wan_ports_.push_back(free_port());
      fleet->admin_ports_.push_back(free_port());
      fleet->agent_ports_.push_back(free_port());
    });
  }
  SLUICE_CHECK_OK(fleet->make_routes());
  fleet->processes_.resize(fleet->options_.sites);
  for (std::uint16_t site = 0; site < fleet->options_.sites; ++site) {
    SLUICE_CHECK_OK(fleet->write_config(site));
    SLUICE_CHECK_OK(fleet->start_site(site));
  }
  return fleet;
}

GatewayFleet::~GatewayFleet() {
  for (auto& process : processes_) {
    if (process) process->signal(SIGTERM);
  }
  for (auto& process : processes_) {
    if (process && !process->wait(std::chrono::seconds(5))) process->signal(SIGKILL);
  }
  if (relay_) relay_->stop();
}

void GatewayFleet::run_at(std::uint16_t site, const std::function<void()>& work) const {
  if (options_.emulator == nullptr) return work();
  options_.emulator->site(SiteId(site)).run(work);
}

std::string GatewayFleet::wan_host(std::uint16_t site) const {
  return options_.emulator == nullptr ? "127.0.0.1" : WanEmulator::address(SiteId(site));
}

Status GatewayFleet::make_certificates() {
  ChildOptions child;
  child.arguments = {
      options_.program, "certs", "--run", "fleet", "--domain", "fleet.test", "--force", "--out", (options_.directory / "certs").string()};
  if (options_.has_tls_agents) child.arguments.emplace_back("--agents");
  child.stderr_file = (options_.directory / "certs.log").string();
  for (std::uint16_t site = 0; site < options_.sites; ++site) child.arguments.push_back(site_name(site));
  SLUICE_TRY(auto process, ChildProcess::start(child));
  SLUICE_TRY(const int status, process.wait(kStartTimeout));
  if (status != 0) return fail(ErrorCode::kUnavailable, "make certificates", fmt::format("`sluice certs` ended with {}", status));
  return {};
}

Status GatewayFleet::make_routes() {
  dial_ports_.assign(options_.sites, std::vector<std::uint16_t>(options_.sites, 0));
  if (!options_.has_wan) return {};
  relay_ = std::make_unique<WanRelay>(options_.sites);
  for (std::uint16_t from = 0; from < options_.sites; ++from) {
    if (options_.egress.value > 0) relay_->set_egress_rate(SiteId(from), options_.egress);
    for (std::uint16_t to = 0; to < options_.sites; ++to) {
      if (from == to) continue;
      relay_->set_link(SiteId(from), SiteId(to), options_.link);
      SLUICE_TRY(dial_ports_[from][to], relay_->add_route(SiteId(from), SiteId(to), wan_ports_[to]));
    }
  }
  relay_->start();
  return {};
}

Status GatewayFleet::write_config(std::uint16_t site) const {
  std::ofstream file(config_file(site));
  const std::string name = site_name(site);
  file << "version: 1\nrun: {name: fleet, domain: fleet.test}\nsite: " << name << "\nsites:\n";
  for (std::uint16_t other = 0; other < options_.sites; ++other) {
    file << fmt::format("  - name: {}\n    address: {}:{}\n", site_name(other), wan_host(other), wan_ports_[other]);
    if (other != site || !options_.has_wan) continue;
    file << "    dial:\n";
    for (std::uint16_t peer = 0; peer < options_.sites; ++peer) {
      if (peer != site) file << fmt::format("      {}: 127.0.0.1:{}\n", site_name(peer), dial_ports_[site][peer]);
    }
  }
  file << "coordination: {store: local, site: " << site_name(0) << "}\n";
  file << fmt::format("tls: {{ca: certs/ca.pem, certificate: certs/site-{0}.pem, key: certs/site-{0}.key}}\n", name);
  const std::string listen = options_.has_tls_agents ? fmt::format(", listen: 127.0.0.1:{}", agent_ports_[site]) : "";
  file << fmt::format("agents: {{socket: {}.sock, ranks: {}{}}}\n", name, options_.ranks, listen);
  file << fmt::format("training: {{mode: diloco, inner_steps: {}, outer: {}, solo: {}}}\n", options_.inner_steps, options_.outer,
                      options_.solo);
  file << "round: " << options_.round << "\ncompression: " << options_.compression << "\n";
  file << fmt::format("wan: {{listen: {}:{}, streams: {}, heartbeat: {}{}}}\n", wan_host(site), wan_ports_[site], options_.streams,
                      options_.heartbeat, options_.wan);
  file << fmt::format("state: {{directory: state-{}}}\nlimits: {{memory: 2GiB}}\nadmin: {{listen: 127.0.0.1:{}}}\n", name,
                      admin_ports_[site]);
  file << options_.extra;
  file.close();
  if (!file) return fail(ErrorCode::kInternal, "write configuration", config_file(site).string());
  return {};
}

Status GatewayFleet::start_site(std::uint16_t site) {
  ChildOptions child;
  child.arguments = {options_.gateway_program.empty() ? options_.program : options_.gateway_program};
  child.arguments.insert(child.arguments.end(), options_.gateway.begin(), options_.gateway.end());
  child.arguments.push_back(config_file(site).string());
  child.stderr_file = log_file(site).string();
  if (options_.emulator != nullptr) child.network = options_.emulator->site(SiteId(site)).fd();
  SLUICE_TRY(auto process, ChildProcess::start(child));
  const auto ready = process.read_line(kStartTimeout);
  if (!ready) {
    return fail(ErrorCode::kUnavailable, "start gateway",
                fmt::format("{}: {}; see {}", site_name(site), ready.error().detail, log_file(site).string()));
  }
  processes_[site] = std::move(process);
  return {};
}

void GatewayFleet::kill_site(std::uint16_t site) {
  processes_[site]->signal(SIGKILL);
  static_cast<void>(processes_[site]->wait(kStartTimeout));
  processes_[site].reset();
}

Status GatewayFleet::stop_site(std::uint16_t site) {
  processes_[site]->signal(SIGTERM);
  SLUICE_TRY(const int status, processes_[site]->wait(kStartTimeout));
  if (status != 0) return fail(ErrorCode::kUnavailable, "stop gateway", fmt::format("{} ended with {}", site_name(site), status));
  return {};
}

Result<std::string> GatewayFleet::get(std::uint16_t site, const std::string& path) const {
  std::optional<std::string> body;
  run_at(site, [&] {
    httplib::Client client("127.0.0.1", admin_ports_[site]);
    client.set_read_timeout(std::chrono::seconds(5));
    if (const auto response = client.Get(path.c_str())) body = response->body;
  });
  if (!body) return fail(ErrorCode::kUnavailable, "ask gateway", fmt::format("{} does not answer", site_name(site)));
  return *body;
}

Result<std::string> GatewayFleet::command(std::uint16_t site, const std::string& path) const {
  Result<std::string> answer = fail(ErrorCode::kUnavailable, "command gateway", fmt::format("{} does not answer", site_name(site)));
  run_at(site, [&] {
    httplib::Client client("127.0.0.1", admin_ports_[site]);
    const auto response = client.Post(path.c_str(), httplib::Headers{{"X-Sluice-Command", "1"}}, "", "text/plain");
    if (!response) return;
    if (response->status / 100 == 2) {
      answer = response->body;
    } else {
      answer =
          fail(ErrorCode::kUnavailable, "command gateway", fmt::format("{} answers {} to {}", site_name(site), response->status, path));
    }
  });
  return answer;
}

Result<nlohmann::json> GatewayFleet::status(std::uint16_t site) const {
  SLUICE_TRY(const std::string body, get(site, "/api/v1/status"));
  auto parsed = nlohmann::json::parse(body, nullptr, false);
  if (parsed.is_discarded()) return fail(ErrorCode::kInternal, "read status", "not JSON");
  return parsed;
}

Status GatewayFleet::wait_status(std::uint16_t site, const std::string& what, std::chrono::milliseconds timeout,
                                 const std::function<bool(const nlohmann::json&)>& accept) const {
  const TimePoint deadline = Clock::now() + timeout;
  std::string last = "no answer";
  while (Clock::now() < deadline) {
    if (const auto current = status(site)) {
      if (accept(*current)) return {};
      last = current->value("description", "") + " round " + std::to_string(current->value("round", 0));
    }
    ::poll(nullptr, 0, 20);  // the gateway publishes every 50 ms
  }
  return fail(ErrorCode::kTimeout, "wait for status", fmt::format("{} at {}: last seen: {}", what, site_name(site), last));
}

}  // namespace sluice::support
