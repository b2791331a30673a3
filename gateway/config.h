#pragma once

// The configuration of one gateway: typed, checked, complete. Read once at start from a strict YAML file (docs/reference/config.md) and
// then passed about as a constant value; any thread may read it. Nothing else in the project sees YAML.
// Loading is the only IO here: it reads the file, the environment variables that the file names and, in load_config, looks at the TLS
// files. It fails with a kConfig* error that gives file:line:column, the key, what was found, what is expected, and the nearest known
// word where there is one.

#include <chrono>
#include <compare>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/result.h"
#include "base/units.h"

namespace sluice::gateway {

// host:port of a TCP address; an IPv6 address is kept without its brackets. Port 0 occurs only where a socket is bound: any free port.
struct Endpoint {
  std::string host;
  std::uint16_t port = 0;

  auto operator<=>(const Endpoint&) const = default;
  // "10.1.0.4:7400", "[::1]:7400".
  [[nodiscard]] std::string to_string() const;
};

struct RunConfig {
  std::string name;    // the training run; sites of different runs refuse each other
  std::string domain;  // SPIFFE trust domain of its certificates: spiffe://<domain>/site/<name>
};

struct SiteConfig {
  std::string name;
  Endpoint address;                      // where the other sites reach this one
  std::map<std::string, Endpoint> dial;  // exceptions: how THIS site reaches the named peer, for example through a relay
};

enum class StoreKind { kLocal, kEtcd };

struct CoordinationConfig {
  StoreKind store = StoreKind::kLocal;
  std::string site;                 // local: the site whose gateway holds the store
  std::vector<Endpoint> endpoints;  // etcd: reserved, refused in this version
};

// PEM files; absolute, or relative to the configuration file when read and absolute from then on.
struct TlsConfig {
  std::filesystem::path ca;
  std::filesystem::path certificate;
  std::filesystem::path key;
};

struct AgentsConfig {
  std::filesystem::path socket;    // Unix socket for the site's agents, at most 107 bytes
  std::optional<Endpoint> listen;  // TCP with mutual TLS for agents on other nodes of the site
  std::uint32_t ranks = 1;         // training processes of this site
};

enum class TrainingMode { kDiloco };
enum class OuterRule { kNesterov, kAverage };

struct OuterConfig {
  OuterRule rule = OuterRule::kNesterov;
  double learning_rate = 0.7;
  double momentum = 0.9;  // unused by kAverage
};

// What a site does while it is below quorum or without the store: goes on alone, this far and no further.
struct SoloConfig {
  std::uint64_t steps_max = 2000;                // inner steps without a commit, then training pauses
  std::chrono::milliseconds pause_max{600'000};  // length of that pause, then the script is told to stop
};

struct TrainingConfig {
  TrainingMode mode = TrainingMode::kDiloco;
  std::uint32_t inner_steps = 20;  // H: optimiser steps between two rounds
  OuterConfig outer;
  SoloConfig solo;
};

struct RoundConfig {
  std::chrono::milliseconds deadline{60'000};         // from open to close
  std::chrono::milliseconds open_grace{2'000};        // wait for the remaining sites once a quorum is ready
  std::chrono::milliseconds commit_deadline{60'000};  // from close to commit
  std::uint16_t quorum = 0;                           // sites that a commit needs; when not written: a majority
  bool quorum_override = false;                       // allows a quorum of half the sites or fewer
};

enum class CompressionMode { kAuto, kFixed };
enum class CodecChoice { kGrid, kRaw32, kBf16 };
enum class Regime { kAuto, kDense, kSparse };

// Bits are per value of a contribution, fractions allowed.
struct CompressionConfig {
  CompressionMode mode = CompressionMode::kAuto;
  CodecChoice codec = CodecChoice::kGrid;
  double bits = 3.0;      // kFixed: the rate; kAuto: where it starts after the warm-up
  double min_bits = 1.0;  // kAuto: floor
  double max_bits = 8.0;  // kAuto: ceiling
  Regime regime = Regime::kAuto;
  std::uint32_t warmup_rounds = 2;  // rounds at 8 bits before anything lower
  double time_share = 0.1;          // kAuto: share of the inner steps' time that an exchange may take
  std::chrono::milliseconds time_budget{0};  // kAuto: time of an exchange, in place of time_share; 0 = not set
  double error_feedback = 1.0;      // share of the residual that is carried to the next round, 0..1
};

enum class CongestionControl { kBbr, kCubic };

struct HeartbeatConfig {
  std::chrono::milliseconds interval{1'000};
  std::uint32_t misses = 3;  // a link is dead after this many silent intervals
};

struct WanConfig {
  Endpoint listen;
  std::uint32_t streams = 4;                      // bulk connections to each peer
  BitsPerSecond rate_limit;                       // sending, all peers together; 0 = no limit
  std::chrono::milliseconds probe_window{5'000};  // length of an active bandwidth probe
  HeartbeatConfig heartbeat;
  CongestionControl congestion = CongestionControl::kBbr;
  bool relay = true;  // a site whose link is down is reached over a third one, and others over this one
};

// The inside of the own site: what is promised, and measuring it when the ranks come together.
struct TopologyConfig {
  std::filesystem::path file;                     // any topology file of the site; empty = none
  bool probe = true;                              // with two ranks or more
  std::chrono::milliseconds probe_window{5'000};  // longest that the probe takes
};

struct StateConfig {
  std::filesystem::path directory;  // journal and spool; made when missing
  std::uint32_t keep_rounds = 64;   // committed updates kept for sites that missed them
  Bytes spool_limit{4 * kGiB};      // disk for those updates
};

struct LimitsConfig {
  Bytes memory{512 * kMiB};                        // frames and sums held by the gateway, all together
  std::uint32_t frames_in_flight = 256;            // sent and not yet acknowledged, to each peer
  std::uint32_t handshakes_per_second = 50;        // new TLS connections, all listeners together
  std::uint32_t connections_unauthenticated = 64;  // at one time, before their certificate is verified
};

struct AdminConfig {
  Endpoint listen;  // loopback only: the admin interface has no authentication
};

struct LogConfig {
  LogFormat format = LogFormat::kText;
  LogLevel level = LogLevel::kInfo;
};

struct GatewayConfig {
  RunConfig run;
  std::string site;               // the name of this gateway's own site, one of `sites`
  std::vector<SiteConfig> sites;  // the order gives the SiteIds and is the same at every site
  CoordinationConfig coordination;
  TlsConfig tls;
  AgentsConfig agents;
  TrainingConfig training;
  RoundConfig round;
  CompressionConfig compression;
  WanConfig wan;
  TopologyConfig topology;
  StateConfig state;
  LimitsConfig limits;
  AdminConfig admin;
  LogConfig log;
  std::filesystem::path source;  // the file that this came from, for messages
};

// One thing wrong with a configuration file. Lines and columns count from 1; 0 = the whole file.
struct ConfigProblem {
  ErrorCode code = ErrorCode::kConfigSyntax;
  int line = 0;
  int column = 0;
  std::string path;  // "wan.heartbeat.interval", "sites[1].address"; empty for syntax
  std::string text;  // found, expected, suggestion

  // "configs/x.yaml:7:3: wan.strems: unknown key; did you mean `streams`?"
  [[nodiscard]] std::string to_string(std::string_view file_name) const;
};

enum class FileChecks { kSkip, kTlsFiles };

// Every problem of the file in the order of its lines (at most kConfigProblemsMax), or the configuration.
// kTlsFiles also checks that the three TLS files can be read, fit together and are of this site, and that the key is not open to others.
struct ConfigOutcome {
  std::optional<GatewayConfig> config;  // set exactly when `problems` is empty
  std::vector<ConfigProblem> problems;
};
ConfigOutcome examine_config(std::string_view text, const std::filesystem::path& file_name, FileChecks file_checks);
// The same for a file; fails with kConfigUnreadable.
Result<ConfigOutcome> examine_config_file(const std::filesystem::path& path, FileChecks file_checks);

// Reads the file and the environment and checks everything. Its error is the first problem and says how many more there are.
Result<GatewayConfig> load_config(const std::filesystem::path& path);
// As load_config for text in memory, without looking at the TLS files. `file_name` names it in messages and anchors relative paths.
Result<GatewayConfig> parse_config(std::string_view text, const std::filesystem::path& file_name);

// REQUIRES: `name` is one of config.sites.
SiteId site_id(const GatewayConfig& config, std::string_view name);
// The gateway's own site.
SiteId own_site_id(const GatewayConfig& config);
// Whether the rounds of the run are sparse ones: below a bit, with plain averaging.
bool is_sparse(const GatewayConfig& config);
// Of what coding leaves out, the share that is added to the next contribution: less in sparse rounds, in place of outer momentum.
double residual_share(const GatewayConfig& config);
// Where the own site connects to reach `peer`: its address, or the own site's `dial` exception.
Endpoint dial_endpoint(const GatewayConfig& config, SiteId peer);
SiteSet all_sites(const GatewayConfig& config);

// The settings that all sites must share (run, site names in order, coordination, training, round, compression), one `key = value` a
// line in a fixed order and spelling: a peer's text can be compared with one's own.
std::string shared_settings(const GatewayConfig& config);
// Hash of shared_settings, sent in the peers' hello: a site with another one is refused with kConfigMismatch.
std::uint64_t shared_digest(const GatewayConfig& config);
// "round.deadline: `30 s` here, `60 s` there; ..." from two shared_settings texts; empty when they agree. `theirs` is untrusted:
// it is capped, and control characters are escaped.
std::string describe_shared_difference(std::string_view ours, std::string_view theirs);

// The effective configuration, defaults included, as JSON of the shape of the YAML file.
std::string config_to_json(const GatewayConfig& config);
// JSON schema (draft-07) of the file, for editors: the content of configs/sluice.schema.json.
std::string config_schema();

}  // namespace sluice::gateway
