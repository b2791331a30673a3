#pragma once

// Metrics: every metric of the gateway, by typed functions; docs/reference/metrics.md lists them and a test compares. Owns its registry
// and creates all series at construction, so that a series is there, at zero, before its first event and an update never allocates.
// Any thread may call any function. Values are base units (seconds, bytes); names start with sluice_; every series carries the label
// `site` (this one), some carry `peer`, `reason`, `outcome`, `phase`, `kind`, all of them from fixed lists.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "gateway/status.h"
#include "sync/rate_plan.h"
#include "topology/wan_planner.h"

namespace sluice::gateway {

// Why something from the network was refused.
enum class RejectReason : std::uint8_t {
  kUntrusted,         // certificate of another authority, or none
  kExpired,           // certificate out of its time
  kSan,               // right authority, wrong or missing site name
  kNotTls,            // something else than TLS spoke on the port
  kProtocol,          // no common version, or a malformed record
  kRunMismatch,       // another run
  kSettingsMismatch,  // the shared settings differ
  kDuplicate,         // a second connection for what is already there
  kFlood,             // more connections or handshakes than allowed
  kTimeout,           // silent past its deadline
  kFrameHash,         // frames: hash does not match
  kFrameHeader,       // frames: header malformed or of an unknown version
  kFramePayload,      // frames: payload does not decode
  kFrameUnexpected,   // frames: another round, chunk, epoch or codec
  kAgent,             // an agent of the site: wrong rank, model or version
  kUser,              // a process of another user on the agents' socket
  kOther,
};
inline constexpr std::size_t kRejectReasonCount = static_cast<std::size_t>(RejectReason::kOther) + 1;
// The label: "untrusted", "not_tls", "frame_hash", ...
std::string_view reject_reason_name(RejectReason reason);
// The reason with that label, as the listeners report it; kOther for an unknown one.
RejectReason reject_reason_from(std::string_view label);
// Where an error of a frame or link decoder belongs; kOther when it is none of these.
RejectReason reject_reason_of(ErrorCode code);

// Codec work done by the gateway.
enum class CodecWork : std::uint8_t { kDecodeAdd, kEncodeSum };

struct MetricsOptions {
  std::string site;
  std::vector<std::string> sites;  // all sites' names in the order of their ids, this one included
  std::string version;
};

// Cumulative since start, of one link. Payload = encoded frames; wire = everything, TLS included.
struct LinkTotals {
  std::uint64_t sent_payload_bytes = 0;
  std::uint64_t sent_wire_bytes = 0;
  std::uint64_t received_payload_bytes = 0;
  std::uint64_t received_wire_bytes = 0;
  std::uint64_t reconnects = 0;
  std::uint64_t resent_frames = 0;
};

class Metrics {
 public:
  explicit Metrics(MetricsOptions options);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // ---- links; REQUIRES: `peer` is another site of the run ----
  void set_link_totals(SiteId peer, const LinkTotals& totals);  // counters go up to these; a smaller value changes nothing
  void set_link_up(SiteId peer, bool is_up);
  void set_link_rtt(SiteId peer, double seconds);
  void set_link_streams(SiteId peer, std::uint32_t streams);
  // What is known of the link from this site to the peer.
  void set_link_estimate(SiteId peer, const WanPathStatus& path);
  struct LinkPlanBytes {
    double budget = 0.0;  // 0 = none
    double predicted = 0.0;
    double sent = 0.0;
  };
  void set_link_plan(SiteId peer, const LinkPlanBytes& bytes);
  void set_link_bits(SiteId peer, double target_bits_per_value, double observed_bits_per_value);
  void count_reject(RejectReason reason);
  void set_link_relayed(SiteId peer, bool is_relayed);
  // Something of another site, for a third one.
  void count_passed_on(std::uint64_t bytes);

  // ---- rounds ----
  void round_finished(RoundOutcome outcome, double seconds, const PhaseSeconds& phases, std::uint32_t counted_sites);
  void set_round(std::uint64_t committed_round, std::uint64_t epoch);
  void count_rate_decision(sync::RateReason reason);
  void count_plan(topology::PlanKind kind);
  void set_round_plan(double target_bits, double budget_seconds, double predicted_seconds);
  void set_rate(double bits_per_value, double step);
  void count_contribution_discarded();  // of this site
  void count_announcement();
  void set_solo(bool is_solo);
  void add_raw_bytes(std::uint64_t bytes);  // numerator of the reduction; the sent wire bytes are its denominator

  // ---- the own site ----
  void set_topology(const TopologyStatus& topology);

  // ---- this process ----
  void set_agents_connected(std::uint32_t agents);
  void set_loss(double loss);  // mean of this site's ranks
  void add_tokens(std::uint64_t tokens);
  void observe_codec(CodecWork work, double seconds);
  void observe_journal_sync(double seconds);
  void count_journal_error();
  void set_memory(std::uint64_t used_bytes, std::uint64_t budget_bytes);
  void set_spool(std::uint64_t memory_bytes, std::uint64_t disk_bytes, std::uint64_t budget_bytes);
  void set_certificate_expiry(WallTime expiry);

  // Prometheus text exposition format 0.0.4.
  [[nodiscard]] std::string render() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::gateway
