#include "gateway/gateway.h"

#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "gateway/admin_server.h"
#include "gateway/engine.h"
#include "gateway/frame_spool.h"
#include "gateway/journal.h"
#include "gateway/metrics.h"
#include "gateway/site_topology.h"
#include "gateway/status.h"
#include "gateway/tls_context.h"

namespace sluice::gateway {
namespace {

MetricsOptions metrics_options(const GatewayConfig& config, const std::string& version) {
  MetricsOptions options;
  options.site = config.site;
  options.version = version;
  for (const SiteConfig& site : config.sites) options.sites.push_back(site.name);
  return options;
}

void print_ready(const GatewayConfig& config, const Engine& engine, const AdminServer& admin) {
  const nlohmann::json line = {{"event", "ready"}, {"site", config.site}, {"wan_port", engine.wan_port()}, {"admin", admin.url()}};
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

}  // namespace

Status run_gateway(const GatewayConfig& config, const GatewayOptions& options) {
  SLUICE_TRY(auto tls, TlsContext::load({config.tls.ca, config.tls.certificate, config.tls.key}, TlsSelfCheck::kFull, options.tls_records));
  const std::filesystem::path spool_directory = config.state.directory / "spool";
  std::optional<FrameSpool> spool;
  JournalOptions journal_options;
  // Kept updates are a convenience for others; the journal is what the run stands on.
  journal_options.make_room = [&] { return spool ? spool->free_oldest() : FrameSpool::free_oldest_in(spool_directory); };
  SLUICE_TRY(auto journal, Journal::open(config.state.directory, journal_options));
  if (!journal.warning().empty()) log_warning("journal", "{}", journal.warning());
  SpoolOptions spool_options;
  spool_options.directory = spool_directory;
  // Half of the budget for frames at rest; the other half is for frames on their way through queues and sums.
  spool_options.memory_bytes_max = config.limits.memory.count / 2;
  spool_options.disk_bytes_max = config.state.spool_limit.count;
  spool_options.keep_rounds = config.state.keep_rounds;
  SLUICE_TRY(spool, FrameSpool::open(spool_options));
  for (const std::string& warning : spool->warnings()) log_warning("spool", "{}", warning);

  SLUICE_TRY(auto topology, SiteTopology::open({config.topology.file, config.state.directory, config.agents.ranks, config.topology.probe}));

  asio::io_context loop(1);
  Metrics metrics(metrics_options(config, options.version));
  metrics.set_topology(*topology.status());
  StatusBoard board;
  Engine engine(EngineParts{config, loop, journal, *spool, topology, metrics, board, std::move(tls), options.version});
  SLUICE_CHECK_OK(engine.start());
  AdminOptions admin_options;
  admin_options.host = config.admin.listen.host;
  admin_options.port = config.admin.listen.port;
  admin_options.probe = [&engine](const std::string& peer) { engine.post_probe(peer); };
  auto admin = AdminServer::start(admin_options, board, metrics);
  if (!admin) {
    engine.stop();
    return fail(std::move(admin).error());
  }
  if (!options.is_quiet) print_ready(config, engine, **admin);

  asio::signal_set signals(loop, SIGINT, SIGTERM);
  signals.async_wait([&](const asio::error_code& error, int signal) {
    if (error) return;
    log_info("gateway", "signal {}: closing", signal);
    engine.stop();
    loop.stop();
  });
  loop.run();
  (*admin)->stop();
  return {};
}

}  // namespace sluice::gateway
