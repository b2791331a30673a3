#include "gateway/internal/config_fields.h"

#include "gateway/limits.h"

namespace sluice::gateway {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// Names of an enumeration's values in their order.
constexpr std::array<std::string_view, 2> kStoreNames{"local", "etcd"};
constexpr std::array<std::string_view, 1> kTrainingModeNames{"diloco"};
constexpr std::array<std::string_view, 2> kOuterRuleNames{"nesterov", "average"};
constexpr std::array<std::string_view, 2> kCompressionModeNames{"auto", "fixed"};
constexpr std::array<std::string_view, 3> kCodecNames{"grid", "raw32", "bf16"};
constexpr std::array<std::string_view, 3> kRegimeNames{"auto", "dense", "sparse"};
constexpr std::array<std::string_view, 2> kCongestionNames{"bbr", "cubic"};
constexpr std::array<std::string_view, 2> kLogFormatNames{"text", "json"};
constexpr std::array<std::string_view, 4> kLogLevelNames{"debug", "info", "warning", "error"};

template <typename Enum>
void choice(FieldVisitor& visitor, const Field& field, Enum& value, std::span<const std::string_view> names) {
  auto index = static_cast<std::size_t>(value);
  visitor.choice(field, index, names);
  value = static_cast<Enum>(index);
}

template <typename Number>
void integer(FieldVisitor& visitor, const Field& field, Number& value, std::uint64_t min, std::uint64_t max) {
  std::uint64_t wide = value;
  visitor.integer(field, wide, {min, max});
  value = static_cast<Number>(wide);
}

// Where no other bound suggests itself: far above any use, far below what overflows.
constexpr std::uint64_t kCountMax = 1'000'000;

void visit_run(FieldVisitor& v, RunConfig& run) {
  if (!v.begin_section({"run", "The training run that the sites share.", Need::kRequired})) return;
  v.name({"name", "Name of the run; sites of different runs refuse each other.", Need::kRequired}, run.name, NameKind::kName);
  v.name({"domain", "SPIFFE trust domain of the certificates: spiffe://DOMAIN/site/NAME.", Need::kRequired}, run.domain, NameKind::kDomain);
  v.end_section();
}

void visit_sites(FieldVisitor& v, std::vector<SiteConfig>& sites) {
  ListAccess access;
  access.max = kSitesMax;
  access.size = [&] { return sites.size(); };
  access.append = [&] { sites.emplace_back(); };
  access.visit = [&](std::size_t index) {
    SiteConfig& site = sites[index];
    v.name({"name", "Name of the site, as in its certificate.", Need::kRequired}, site.name, NameKind::kName);
    v.endpoint({"address", "host:port where the other sites reach it.", Need::kRequired}, site.address, EndpointUse::kConnect);
    v.endpoint_map({"dial", "Exceptions: PEER: host:port, how this site reaches that peer, for example through a relay."}, site.dial);
  };
  v.list({"sites", "All sites of the run, in the same order at every site.", Need::kRequired}, access);
}

void visit_coordination(FieldVisitor& v, CoordinationConfig& coordination) {
  if (!v.begin_section({"coordination", "Where the decisions about rounds are kept.", Need::kRequired})) return;
  choice(v, {"store", "local: in the gateway of one site; etcd: reserved, not available in this version."}, coordination.store,
         kStoreNames);
  v.name({"site", "local: the site whose gateway holds the store."}, coordination.site, NameKind::kName);
  v.endpoint_list({"endpoints", "etcd: host:port of its members; reserved."}, coordination.endpoints);
  v.end_section();
}

void visit_tls(FieldVisitor& v, TlsConfig& tls) {
  if (!v.begin_section({"tls", "PEM files of the own site, relative to this file.", Need::kRequired})) return;
  v.path({"ca", "Certificate of the run's own authority.", Need::kRequired}, tls.ca);
  v.path({"certificate", "Certificate of the own site.", Need::kRequired}, tls.certificate);
  v.path({"key", "Its private key, readable by its owner only.", Need::kRequired}, tls.key);
  v.end_section();
}

void visit_agents(FieldVisitor& v, AgentsConfig& agents) {
  if (!v.begin_section({"agents", "The training processes of the own site.", Need::kRequired})) return;
  v.path({"socket", "Unix socket for agents on this machine, at most 107 bytes.", Need::kRequired}, agents.socket);
  v.optional_endpoint({"listen", "host:port for agents on other machines of the site, TLS with certificates."}, agents.listen,
                      EndpointUse::kListen);
  integer(v, {"ranks", "Training processes of this site."}, agents.ranks, 1, 65'536);
  v.end_section();
}

void visit_training(FieldVisitor& v, TrainingConfig& training) {
  if (!v.begin_section({"training", "How the sites train together."})) return;
  choice(v, {"mode", "diloco: several optimiser steps at each site, then one outer step over all sites."}, training.mode,
         kTrainingModeNames);
  integer(v, {"inner_steps", "Optimiser steps between two rounds."}, training.inner_steps, 1, 100'000);
  if (v.begin_section({"outer", "The outer optimiser."})) {
    choice(v, {"rule", "nesterov: SGD with Nesterov momentum; average: plain averaging."}, training.outer.rule, kOuterRuleNames);
    v.real({"learning_rate", "Outer learning rate."}, training.outer.learning_rate, {1e-6, 10.0});
    v.real({"momentum", "Outer momentum; unused by average."}, training.outer.momentum, {0.0, 0.9999});
    v.end_section();
  }
  if (v.begin_section({"solo", "What the site does below quorum or without the coordination store."})) {
    integer(v, {"steps_max", "Optimiser steps it goes on alone before it pauses."}, training.solo.steps_max, 0, 10'000'000);
    v.duration({"pause_max", "How long it then waits before training is told to stop."}, training.solo.pause_max, {seconds(0), hours(168)});
    v.end_section();
  }
  v.end_section();
}

void visit_round(FieldVisitor& v, RoundConfig& round) {
  if (!v.begin_section({"round", "Time limits and quorum of a round."})) return;
  v.duration({"deadline", "From open to close; contributions that come later are discarded."}, round.deadline,
             {milliseconds(10), hours(24)});
  v.duration({"open_grace", "Wait for the other sites once a quorum is ready."}, round.open_grace, {milliseconds(0), hours(24)});
  v.duration({"commit_deadline", "From close to commit."}, round.commit_deadline, {milliseconds(10), hours(24)});
  integer(v, {"quorum", "Sites that a commit needs; a majority when not given."}, round.quorum, 1, kSitesMax);
  v.boolean({"quorum_override", "Allows a quorum of half the sites or fewer."}, round.quorum_override);
  v.end_section();
}

void visit_compression(FieldVisitor& v, CompressionConfig& compression) {
  if (!v.begin_section({"compression", "How much the exchanged deltas are compressed, in bits per value."})) return;
  choice(v, {"mode", "auto: the rate follows the measured links; fixed: the given bits."}, compression.mode, kCompressionModeNames);
  choice(v, {"codec", "grid: common integer grid, entropy-coded; raw32 and bf16: no compression, for comparison."}, compression.codec,
         kCodecNames);
  v.real({"bits", "Rate of fixed mode, and where auto mode begins."}, compression.bits, {0.05, 16.0});
  v.real({"min_bits", "Floor of auto mode."}, compression.min_bits, {0.05, 16.0});
  v.real({"max_bits", "Ceiling of auto mode."}, compression.max_bits, {0.05, 16.0});
  choice(v, {"regime", "dense: from 1 bit up; sparse: below; auto: by the bits."}, compression.regime, kRegimeNames);
  integer(v, {"warmup_rounds", "First rounds at 8 bits."}, compression.warmup_rounds, 0, kCountMax);
  v.real({"time_share", "auto: share of the inner steps' time that an exchange may take."}, compression.time_share, {0.001, 10.0});
  v.duration({"time_budget", "auto: how long an exchange may take, in place of time_share; 0 ms: not set."}, compression.time_budget,
             {milliseconds(0), hours(24)});
  v.real({"error_feedback", "Share of the rounding residual carried to the next round."}, compression.error_feedback, {0.0, 1.0});
  v.end_section();
}

void visit_wan(FieldVisitor& v, WanConfig& wan) {
  if (!v.begin_section({"wan", "Connections to the other sites.", Need::kRequired})) return;
  v.endpoint({"listen", "host:port that this gateway binds for the other sites.", Need::kRequired}, wan.listen, EndpointUse::kListen);
  integer(v, {"streams", "Bulk connections to each peer."}, wan.streams, 1, kStreamsMax);
  v.rate({"rate_limit", "Sending rate of this gateway, all peers together; no limit when not given."}, wan.rate_limit,
         {BitsPerSecond{1e4}, BitsPerSecond{1e13}});
  v.duration({"probe_window", "Length of an active bandwidth probe."}, wan.probe_window, {milliseconds(100), minutes(1)});
  if (v.begin_section({"heartbeat", "How a silent link is found."})) {
    v.duration({"interval", "Time between two heartbeats."}, wan.heartbeat.interval, {milliseconds(10), minutes(1)});
    integer(v, {"misses", "Silent intervals after which a link is dead."}, wan.heartbeat.misses, 2, 100);
    v.end_section();
  }
  choice(v, {"congestion", "TCP congestion control of the bulk connections."}, wan.congestion, kCongestionNames);
  v.boolean({"relay", "Whether links that are down or slow are gone round over a third site."}, wan.relay);
  v.end_section();
}

void visit_topology(FieldVisitor& v, TopologyConfig& topology) {
  if (!v.begin_section({"topology", "What joins the training processes of the own site."})) return;
  v.path({"file", "Topology file of the site, of any kind that `sluice topo` reads: what is promised."}, topology.file);
  v.boolean({"probe", "Whether the ranks measure what joins them before they train, when there are several."}, topology.probe);
  v.duration({"probe_window", "Longest that they take; less on fast links."}, topology.probe_window, {milliseconds(100), seconds(10)});
  v.end_section();
}

void visit_state(FieldVisitor& v, StateConfig& state) {
  if (!v.begin_section({"state", "What the gateway keeps on disk.", Need::kRequired})) return;
  v.path({"directory", "Journal and spool; made when missing, relative to this file.", Need::kRequired}, state.directory);
  integer(v, {"keep_rounds", "Committed updates kept for sites that missed them."}, state.keep_rounds, 1, kCountMax);
  v.size({"spool_limit", "Disk space for those updates."}, state.spool_limit, {Bytes{kMiB}, Bytes{65'536 * kGiB}});
  v.end_section();
}

void visit_limits(FieldVisitor& v, LimitsConfig& limits) {
  if (!v.begin_section({"limits", "What the gateway may use at most."})) return;
  v.size({"memory", "Frames and sums held by the gateway, all together."}, limits.memory, {Bytes{16 * kMiB}, Bytes{4096 * kGiB}});
  integer(v, {"frames_in_flight", "Frames sent to a peer and not yet acknowledged."}, limits.frames_in_flight, 1, 65'536);
  integer(v, {"handshakes_per_second", "New TLS connections, all listeners together."}, limits.handshakes_per_second, 1, 10'000);
  integer(v, {"connections_unauthenticated", "Connections at one time whose certificate is not yet verified."},
          limits.connections_unauthenticated, 1, 10'000);
  v.end_section();
}

void visit_admin(FieldVisitor& v, AdminConfig& admin) {
  if (!v.begin_section({"admin", "Metrics, status and dashboard over HTTP.", Need::kRequired})) return;
  v.endpoint({"listen", "host:port on loopback.", Need::kRequired}, admin.listen, EndpointUse::kListen);
  v.end_section();
}

void visit_log(FieldVisitor& v, LogConfig& log) {
  if (!v.begin_section({"log", "The log on stderr."})) return;
  choice(v, {"format", "text: for people; json: one object a line."}, log.format, kLogFormatNames);
  choice(v, {"level", "Least severity that is written."}, log.level, kLogLevelNames);
  v.end_section();
}

}  // namespace

void visit_config(FieldVisitor& v, GatewayConfig& config) {
  std::uint64_t version = 1;
  v.integer({"version", "Version of this file's format.", Need::kRequired}, version, {1, 1});
  visit_run(v, config.run);
  v.name({"site", "The own site, one of sites.", Need::kRequired}, config.site, NameKind::kName);
  visit_sites(v, config.sites);
  visit_coordination(v, config.coordination);
  visit_tls(v, config.tls);
  visit_agents(v, config.agents);
  visit_training(v, config.training);
  visit_round(v, config.round);
  visit_compression(v, config.compression);
  visit_wan(v, config.wan);
  visit_topology(v, config.topology);
  visit_state(v, config.state);
  visit_limits(v, config.limits);
  visit_admin(v, config.admin);
  visit_log(v, config.log);
}

}  // namespace sluice::gateway
