#pragma once

// StatusSnapshot: everything that a person or a script may ask a running gateway, as plain values, and StatusBoard, through which the
// loop hands it to the admin server. The loop fills a fresh snapshot after each change (and at least every kStatusIntervalMax, for
// /livez) and publishes it; a published snapshot is never changed again, so that readers on other threads need no lock.
// Names are site names, never ids. Digests are hex. Times of day are UTC, lengths of time are seconds, sizes are bytes.

#include <nlohmann/json_fwd.hpp>

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"

namespace sluice::gateway {

using WallTime = std::chrono::system_clock::time_point;

// The loop publishes at least this often, even when nothing changes: /livez takes a much older snapshot for a loop that hangs.
inline constexpr std::chrono::seconds kStatusIntervalMax{1};
inline constexpr std::size_t kRoundHistoryMax = 500;        // rounds kept for the dashboard; Prometheus keeps longer
inline constexpr std::size_t kAnnouncementHistoryMax = 50;  // announcements kept

enum class RoundOutcome : std::uint8_t {
  kCommitted,  // committed while this site followed it
  kAborted,    // nobody committed; the deltas grow until the next round
  kReplayed,   // committed by the others; this site applied it afterwards
};
// "committed", "aborted", "replayed".
std::string_view round_outcome_name(RoundOutcome outcome);

// Consecutive; they add up to the round's seconds.
struct PhaseSeconds {
  double open = 0.0;        // first rank ready -> round opened
  double contribute = 0.0;  // opened -> own frames handed over to the owners
  double combine = 0.0;     // -> update complete here
  double commit = 0.0;      // -> committed and in the journal
};

struct RoundStatus {
  std::uint64_t round = 0;
  RoundOutcome outcome = RoundOutcome::kCommitted;
  std::vector<std::string> sites;    // counted in the update; empty when aborted
  std::vector<std::string> members;  // whom the round waited for
  double bits_per_value = 0.0;       // payload bits over values, mean of the contributions
  double step = 0.0;                 // common quantiser step; 0 for RAW32 and BF16
  std::string state_digest;          // of the state after it; empty until the agents reported it
  std::string update_digest;
  double seconds = 0.0;
  PhaseSeconds phase_seconds;
  std::uint64_t raw_bytes = 0;   // that this site would have sent with a plain fp32 all-reduce at each step of the round
  std::uint64_t sent_bytes = 0;  // that this site sent on the WAN during the round, TLS included
  std::uint64_t received_bytes = 0;
  std::optional<double> loss;  // mean of this site's ranks, when they say it
  std::string reason;          // of the outcome
  // What its opener had decided about the rate (sync::RatePlan).
  std::string rate_reason;         // "budget", "floor", ...; empty when not known
  std::string rate_text;           // the same for people
  std::string plan;                // how its frames travelled: "sharded", "direct"
  double target_bits = 0.0;        // per value, mean over the members
  double budget_seconds = 0.0;     // 0 = none
  double predicted_seconds = 0.0;  // from opening to commit; 0 = not known
  WallTime finished_at{};
};

// What is known of one directed link between two sites. Rates: bits per second of TCP payload as the receiver counts them; 0 = not
// measured.
struct WanPathStatus {
  std::string from;
  std::string to;
  std::string method = "none";       // "none", "bound" (at least this), "passive", "probe"
  double low_bits_per_second = 0.0;  // 25th percentile: what the ratio controller counts on
  double median_bits_per_second = 0.0;
  double confidence = 0.0;  // 0..1
  double age_seconds = 0.0;
  double loss = 0.0;             // share of segments sent again
  double rtt_seconds_min = 0.0;  // 0 = not measured
  double rtt_seconds_p50 = 0.0;
  double rtt_seconds_p95 = 0.0;
  double jitter_seconds = 0.0;
};

struct LinkStatus {
  std::string peer;
  bool is_up = false;
  std::string via;               // the site over which the peer is reached while the link is down; empty otherwise
  std::string reason;            // why it is down, or why its bits are what they are; empty when there is nothing to say
  std::uint64_t sent_bytes = 0;  // on the wire, TLS included, since start
  std::uint64_t received_bytes = 0;
  std::uint64_t raw_bytes = 0;   // this link's share of what plain fp32 data parallelism would have sent
  double rtt_seconds_min = 0.0;  // 0 = not measured
  double rtt_seconds_p50 = 0.0;
  std::uint32_t streams = 0;  // bulk connections that are up
  std::uint64_t reconnects = 0;
  std::uint64_t resent_frames = 0;
  double send_bits_per_second = 0.0;     // that the link carries, median; 0 = not measured
  double receive_bits_per_second = 0.0;  // of the other direction, as the peer reported it
  double target_bits_per_value = 0.0;    // what the controller asks of this link
  double observed_bits_per_value = 0.0;  // what the last round needed
  WanPathStatus path;
  double plan_bits_per_second = 0.0;  // that the last round counted on; 0 = not known
  double budget_bytes = 0.0;          // of the last round on this link; 0 = none
  double predicted_bytes = 0.0;
  std::uint64_t round_bytes = 0;  // sent on this link in the last finished round
};

struct WanStatus {
  std::uint64_t sent_bytes = 0;  // all links together since start, TLS included
  std::uint64_t received_bytes = 0;
  std::uint64_t raw_bytes = 0;  // that this site would have sent with an fp32 all-reduce at every step
  // raw over sent; 0 before anything was sent.
  [[nodiscard]] double reduction() const;
};

// One training process of this site.
struct AgentStatus {
  std::uint32_t rank = 0;
  bool is_connected = false;
  std::uint64_t round = 0;  // last applied
  std::optional<double> loss;
  std::uint64_t tokens = 0;  // since start
};

struct SiteStatus {
  std::string name;
  std::string state;        // "self", "up", "relayed", "down", "catching up": one or two words
  std::uint64_t round = 0;  // last that it is known to hold
  std::optional<WallTime> last_seen;
  std::string detail;
  std::optional<WallTime> certificate_expiry;
};

// Least, median and most of some measurements; all 0 when there are none.
struct SpreadStatus {
  double least = 0.0;
  double median = 0.0;
  double most = 0.0;
};

// A link inside the site that was measured.
struct SiteLinkStatus {
  std::string from;  // "rank0", or the name of a machine
  std::string to;
  double gb_per_second = 0.0;
  std::optional<double> latency_us;
  std::optional<double> promised_gb_per_second;  // by topology.file
};

// What the ranks have measured between each other. Rates in GB/s (10^9 bytes), latencies one way in microseconds.
struct TopologyStatus {
  std::string probe = "off";  // "off", "waiting", "done", "cut" (the window was over), "failed"
  std::string failure;
  std::size_t ranks_reported = 0;
  std::size_t machines = 0;
  std::size_t pairs = 0;  // of ranks, measured
  std::size_t pairs_planned = 0;
  double seconds = 0.0;
  SpreadStatus gb_per_second;  // between ranks, each direction
  SpreadStatus latency_us;
  bool is_of_earlier_run = false;            // from the state directory: nothing was measured since the gateway started
  std::vector<SiteLinkStatus> links;         // at most kTopologyLinksShownMax
  std::shared_ptr<const std::string> graph;  // the whole as a graph file (topology/graph_file.h); null when nothing is known
};
inline constexpr std::size_t kTopologyLinksShownMax = 4096;

struct Announcement {
  WallTime at{};
  bool is_solo = false;  // this site trains alone from here on
  std::string text;
};

// What /readyz asks. All true = ready.
struct Readiness {
  bool is_config_loaded = false;
  bool is_wan_listener_up = false;
  bool is_agent_socket_up = false;
  bool is_certificate_valid = false;
  bool is_store_writable = true;  // false at the store's site while its journal cannot be written
};

struct StatusSnapshot {
  std::string site;
  std::string run;
  std::string version;
  std::uint64_t epoch = 0;
  std::uint64_t round = 0;  // last committed
  std::string phase;        // of the register: "idle", "open", "closed", "committed", "aborted"; "solo" when alone
  std::string description;  // one line from the round machine: who is waited for
  std::uint32_t quorum = 0;
  Readiness readiness;
  std::vector<std::shared_ptr<const RoundStatus>> rounds;  // oldest first; shared between snapshots, so that a copy is cheap
  std::vector<LinkStatus> links;
  WanStatus wan;
  std::vector<WanPathStatus> paths;  // all directed links of the run, as far as the sites have told
  std::string probe;                 // the active probe that runs, or how the last one ended; empty when there was none
  bool is_probing = false;
  std::uint64_t probes_ended = 0;
  bool was_probe_complete = false;  // the last one
  std::vector<AgentStatus> agents;
  std::shared_ptr<const TopologyStatus> topology;  // shared between snapshots
  std::vector<SiteStatus> sites;            // in the configuration's order, this one included
  std::vector<Announcement> announcements;  // oldest first
  std::uint64_t memory_used_bytes = 0;      // of frames and sums
  std::uint64_t memory_budget_bytes = 0;
  std::uint64_t spool_used_bytes = 0;  // on disk
  std::uint64_t spool_budget_bytes = 0;
  WallTime started_at{};
  std::optional<WallTime> certificate_expiry;
};

// The shape of /api/v1/status, described in docs/reference/api.md. At most the last `rounds_max` rounds. Text that is not UTF-8 is
// repaired, numbers that are not finite become null. Pure.
nlohmann::json to_json(const StatusSnapshot& snapshot, std::size_t rounds_max = kRoundHistoryMax);
// Its parts, for /api/v1/links, /api/v1/wan, /api/v1/topology and /api/v1/rounds.
nlohmann::json links_to_json(const StatusSnapshot& snapshot);
// {"site", "paths", "probe"}: /api/v1/wan.
nlohmann::json wan_to_json(const StatusSnapshot& snapshot);
// {"site", "topology", "links", "graph"}: /api/v1/topology.
nlohmann::json topology_to_json(const StatusSnapshot& snapshot);
nlohmann::json rounds_to_json(const StatusSnapshot& snapshot, std::size_t rounds_max = kRoundHistoryMax);
// As one line of text, whatever bytes the strings hold.
std::string dump_json(const nlohmann::json& document);

// "2026-03-01T12:00:00.250Z".
std::string format_utc(WallTime time);
// 32 hex digits, high half first.
std::string to_hex(const Digest& digest);

// Where the loop leaves the newest snapshot and everybody else finds it. Any thread; holds its lock only to copy a pointer.
class StatusBoard {
 public:
  // `now` is the loop's time, which /livez compares with its own.
  void publish(std::shared_ptr<const StatusSnapshot> snapshot, TimePoint now);
  struct Published {
    std::shared_ptr<const StatusSnapshot> snapshot;  // null before the first publish()
    TimePoint at{};
  };
  [[nodiscard]] Published current() const;

 private:
  mutable std::mutex mutex_;
  Published published_;
};

}  // namespace sluice::gateway
