#include "gateway/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/assert.h"

namespace sluice::gateway {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;
using prometheus::Registry;

// A round takes milliseconds on a LAN and minutes across oceans.
const Histogram::BucketBoundaries kRoundBuckets{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 120.0, 300.0};
// A chunk is coded in a millisecond or so.
const Histogram::BucketBoundaries kCodecBuckets{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1};
// A flush takes 0.1 ms on a good SSD and tens of milliseconds on a disk or a network volume.
const Histogram::BucketBoundaries kSyncBuckets{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0};

constexpr std::array kOutcomes{RoundOutcome::kCommitted, RoundOutcome::kAborted, RoundOutcome::kReplayed};
constexpr std::array<std::string_view, kRejectReasonCount> kRejectReasonNames{
    "untrusted",         "expired",          "san",   "not_tls", "protocol",   "run_mismatch",
    "settings_mismatch", "duplicate",        "flood", "timeout", "frame_hash", "frame_header",
    "frame_payload",     "frame_unexpected", "agent", "user",    "other"};
constexpr std::array<const char*, 4> kPhaseNames{"open", "contribute", "combine", "commit"};
constexpr std::array<const char*, 2> kCodecWorkNames{"decode_add", "encode_sum"};

// Raises a counter to a total that somebody else keeps. Counters never go down.
void raise_to(Counter& counter, std::uint64_t total) {
  const double missing = static_cast<double>(total) - counter.Value();
  if (missing > 0.0) counter.Increment(missing);
}

// Creates series that all carry this site's name.
class SeriesMaker {
 public:
  SeriesMaker(Registry& registry, const std::string& site) : registry_(registry), constant_{{"site", site}} {}

  prometheus::Family<Counter>& counters(const char* name, const char* help) {
    return BuildCounter().Name(name).Help(help).Labels(constant_).Register(registry_);
  }
  prometheus::Family<Gauge>& gauges(const char* name, const char* help) {
    return BuildGauge().Name(name).Help(help).Labels(constant_).Register(registry_);
  }
  prometheus::Family<Histogram>& histograms(const char* name, const char* help) {
    return BuildHistogram().Name(name).Help(help).Labels(constant_).Register(registry_);
  }
  Counter& counter(const char* name, const char* help) { return counters(name, help).Add({}); }
  Gauge& gauge(const char* name, const char* help) { return gauges(name, help).Add({}); }

 private:
  Registry& registry_;
  Labels constant_;
};

struct LinkSeries {
  Counter& sent_payload;
  Counter& sent_overhead;
  Counter& received_payload;
  Counter& received_overhead;
  Counter& reconnects;
  Counter& resent_frames;
  Gauge& up;
  Gauge& relayed;
  Gauge& rtt;
  Gauge& streams;
  Gauge& target_bits;
  Gauge& observed_bits;
  Gauge& rate_low;
  Gauge& rate_median;
  Gauge& confidence;
  Gauge& age;
  Gauge& loss;
  Gauge& jitter;
  Gauge& budget;
  Gauge& predicted;
  Gauge& round_sent;
};

// One series of each link metric for each other site, indexed by SiteId; nothing at this site's own index.
std::vector<std::optional<LinkSeries>> make_link_series(SeriesMaker& maker, const MetricsOptions& options) {
  auto& sent = maker.counters("sluice_wan_sent_bytes_total",
                              "Bytes sent to a peer on WAN connections; kind payload is encoded frames, overhead is all else with TLS.");
  auto& received = maker.counters("sluice_wan_received_bytes_total",
                                  "Bytes received from a peer on WAN connections; kind payload or overhead as for sent bytes.");
  auto& reconnects = maker.counters("sluice_link_reconnects_total", "Times that a connection to the peer was made again after it broke.");
  auto& resent = maker.counters("sluice_link_resent_frames_total", "Frames sent again to the peer after a connection broke.");
  auto& up = maker.gauges("sluice_link_up", "1 while the control connection to the peer is up and answers heartbeats.");
  auto& relayed = maker.gauges("sluice_link_relayed", "1 while the link to the peer is down and it is reached over a third site.");
  auto& rtt = maker.gauges("sluice_link_rtt_seconds", "Median round-trip time of recent heartbeats to the peer; 0 before the first.");
  auto& streams = maker.gauges("sluice_link_streams", "Bulk connections to the peer that are up.");
  auto& target =
      maker.gauges("sluice_link_target_bit_depth", "Bits on the link over the values of the model, as planned for the last round.");
  auto& observed =
      maker.gauges("sluice_link_observed_bit_depth", "Bits on the link over the values of the model, as sent in the last finished round.");
  auto& low = maker.gauges("sluice_wan_low_bytes_per_second",
                           "Rate that the link can be counted on for (25th percentile at the receiver); 0 before it is measured.");
  auto& median =
      maker.gauges("sluice_wan_median_bytes_per_second", "Median rate of the link to the peer at the receiver; 0 before it is measured.");
  auto& confidence = maker.gauges("sluice_wan_confidence_ratio", "Confidence in the rates, 0 to 1.");
  auto& age = maker.gauges("sluice_wan_estimate_age_seconds", "Time since the link was last seen in full use.");
  auto& loss = maker.gauges("sluice_wan_loss_ratio", "Share of TCP segments to the peer that had to be sent again.");
  auto& jitter = maker.gauges("sluice_wan_jitter_seconds", "Mean change of the round-trip time from one heartbeat to the next.");
  auto& budget = maker.gauges("sluice_wan_budget_bytes", "Bytes that fit the last round's time on the link; 0 without a budget.");
  auto& predicted = maker.gauges("sluice_wan_predicted_bytes", "Bytes that the last round was expected to send on the link.");
  auto& round_sent = maker.gauges("sluice_wan_round_bytes", "Bytes that the last finished round sent on the link.");
  std::vector<std::optional<LinkSeries>> links(options.sites.size());
  for (std::size_t index = 0; index < options.sites.size(); ++index) {
    const std::string& peer = options.sites[index];
    if (peer == options.site) continue;
    const Labels label{{"peer", peer}};
    const Labels payload{{"peer", peer}, {"kind", "payload"}};
    const Labels overhead{{"peer", peer}, {"kind", "overhead"}};
    links[index].emplace(LinkSeries{
        sent.Add(payload), sent.Add(overhead),   received.Add(payload), received.Add(overhead), reconnects.Add(label), resent.Add(label),
        up.Add(label),     relayed.Add(label),   rtt.Add(label),        streams.Add(label),     target.Add(label),     observed.Add(label),
        low.Add(label),    median.Add(label),    confidence.Add(label), age.Add(label),         loss.Add(label),       jitter.Add(label),
        budget.Add(label), predicted.Add(label), round_sent.Add(label)});
  }
  return links;
}

std::vector<Counter*> make_reject_series(SeriesMaker& maker) {
  auto& family = maker.counters("sluice_rejects_total", "Connections, records and frames refused, by reason.");
  std::vector<Counter*> series;
  for (std::size_t index = 0; index < kRejectReasonCount; ++index) {
    series.push_back(&family.Add({{"reason", std::string(reject_reason_name(static_cast<RejectReason>(index)))}}));
  }
  return series;
}

std::vector<Counter*> make_plan_series(SeriesMaker& maker) {
  auto& family = maker.counters("sluice_round_plans_total", "Rounds opened, by how their frames travel.");
  std::vector<Counter*> series;
  for (int kind = 0; kind <= static_cast<int>(topology::PlanKind::kRelay); ++kind) {
    series.push_back(&family.Add({{"plan", std::string(topology::plan_kind_name(static_cast<topology::PlanKind>(kind)))}}));
  }
  return series;
}

std::vector<Counter*> make_decision_series(SeriesMaker& maker) {
  auto& family = maker.counters("sluice_rate_decisions_total", "Rounds opened, by what decided their bits.");
  std::vector<Counter*> series;
  for (int reason = 0; reason <= static_cast<int>(sync::RateReason::kNoSketch); ++reason) {
    series.push_back(&family.Add({{"reason", std::string(sync::rate_reason_name(static_cast<sync::RateReason>(reason)))}}));
  }
  return series;
}

std::vector<Counter*> make_outcome_series(SeriesMaker& maker) {
  auto& family = maker.counters("sluice_rounds_total", "Rounds that ended, by outcome: committed, aborted, or replayed afterwards.");
  std::vector<Counter*> series;
  for (const RoundOutcome outcome : kOutcomes) series.push_back(&family.Add({{"outcome", std::string(round_outcome_name(outcome))}}));
  return series;
}

std::vector<Histogram*> make_phase_series(SeriesMaker& maker) {
  auto& family = maker.histograms("sluice_round_phase_duration_seconds", "Time that a committed round spent in each phase.");
  std::vector<Histogram*> series;
  for (const char* phase : kPhaseNames) series.push_back(&family.Add({{"phase", phase}}, kRoundBuckets));
  return series;
}

// Least, median and most.
using SpreadSeries = std::array<Gauge*, 3>;

SpreadSeries make_spread_series(SeriesMaker& maker, const char* name, const char* help) {
  auto& family = maker.gauges(name, help);
  return {&family.Add({{"stat", "min"}}), &family.Add({{"stat", "median"}}), &family.Add({{"stat", "max"}})};
}

void set_spread(const SpreadSeries& series, const SpreadStatus& spread, double unit) {
  series[0]->Set(spread.least * unit);
  series[1]->Set(spread.median * unit);
  series[2]->Set(spread.most * unit);
}

std::vector<Histogram*> make_codec_series(SeriesMaker& maker) {
  auto& family = maker.histograms("sluice_codec_duration_seconds", "Time to decode and add, or to encode the sum of, one chunk.");
  std::vector<Histogram*> series;
  for (const char* work : kCodecWorkNames) series.push_back(&family.Add({{"kind", work}}, kCodecBuckets));
  return series;
}

}  // namespace

struct Metrics::Impl {
  explicit Impl(const MetricsOptions& options) : maker(registry, options.site), links(make_link_series(maker, options)) {
    maker.gauges("sluice_build_info", "Always 1; the label tells the version.").Add({{"version", options.version}}).Set(1.0);
  }

  LinkSeries& link(SiteId peer) {
    SLUICE_ASSERT(peer.value < links.size() && links[peer.value].has_value(), "metrics of site {}", peer);
    return *links[peer.value];
  }

  Registry registry;
  SeriesMaker maker;
  std::vector<std::optional<LinkSeries>> links;
  std::vector<Counter*> rejects = make_reject_series(maker);
  std::vector<Counter*> outcomes = make_outcome_series(maker);
  std::vector<Counter*> decisions = make_decision_series(maker);
  std::vector<Counter*> plans = make_plan_series(maker);
  Gauge& target_bits = maker.gauge("sluice_round_target_bit_depth", "Payload bits per value that the last round was opened with.");
  Gauge& round_budget = maker.gauge("sluice_round_budget_seconds", "Time that the last round's exchange may take; 0 without a budget.");
  Gauge& round_predicted =
      maker.gauge("sluice_round_predicted_seconds", "Time that the last round's exchange was expected to take; 0 if not known.");
  Histogram& round_duration =
      maker.histograms("sluice_round_duration_seconds", "Time of a committed round from the first ready rank to the journal.")
          .Add({}, kRoundBuckets);
  std::vector<Histogram*> phases = make_phase_series(maker);
  std::vector<Histogram*> codec = make_codec_series(maker);
  Histogram& journal_sync =
      maker.histograms("sluice_journal_sync_duration_seconds", "Time to bring a journal record to the disk.").Add({}, kSyncBuckets);
  Gauge& participants = maker.gauge("sluice_round_participants", "Sites counted in the last committed round.");
  Gauge& round = maker.gauge("sluice_round", "Number of the last committed round.");
  Gauge& epoch = maker.gauge("sluice_epoch", "Epoch of the coordination store.");
  Gauge& bits = maker.gauge("sluice_contribution_bit_depth", "Payload bits per value of this site's last contribution.");
  Gauge& step = maker.gauge("sluice_quantiser_step", "Common quantiser step of the last round; 0 for uncoded rounds.");
  Counter& discarded =
      maker.counter("sluice_contributions_discarded_total", "Contributions of this site that a committed round did not count.");
  Counter& announcements = maker.counter("sluice_announcements_total", "Changes of state announced to people.");
  Gauge& solo = maker.gauge("sluice_solo", "1 while this site trains alone, without quorum or store.");
  Counter& raw_bytes = maker.counter("sluice_raw_bytes_total",
                                     "Bytes that this site would have sent with a plain fp32 all-reduce at every step it has trained.");
  Counter& passed_on = maker.counter("sluice_passed_on_total", "Frames and messages that this site passed on between two others.");
  Counter& passed_on_bytes = maker.counter("sluice_passed_on_bytes_total", "Their bytes.");
  Gauge& probe_pairs = maker.gauge("sluice_site_probe_pairs", "Pairs of this site's ranks that the last probe has measured.");
  Gauge& probe_duration = maker.gauge("sluice_site_probe_seconds", "Time that the last probe of this site's ranks took.");
  Gauge& probe_failed = maker.gauge("sluice_site_probe_failed", "1 when the last probe of this site's ranks broke off.");
  SpreadSeries site_rate = make_spread_series(maker, "sluice_site_bandwidth_bytes_per_second",
                                              "Measured between this site's ranks, over their pairs; 0 before it is measured.");
  SpreadSeries site_latency = make_spread_series(maker, "sluice_site_latency_seconds",
                                                 "One way between this site's ranks, over their pairs; 0 before it is measured.");
  Gauge& agents = maker.gauge("sluice_agents_connected", "Training processes of this site that are connected.");
  Gauge& loss = maker.gauge("sluice_training_loss", "Last training loss that this site's ranks reported, their mean.");
  Counter& tokens = maker.counter("sluice_training_tokens_total", "Tokens or samples that this site's ranks reported.");
  Counter& journal_errors = maker.counter("sluice_journal_errors_total", "Journal records that could not be written.");
  Gauge& memory_used = maker.gauge("sluice_memory_used_bytes", "Memory held by frames and sums.");
  Gauge& memory_budget = maker.gauge("sluice_memory_budget_bytes", "Most that frames and sums may hold.");
  Gauge& spool_memory = maker.gauge("sluice_spool_memory_bytes", "Frames that the spool holds in memory.");
  Gauge& spool_disk = maker.gauge("sluice_spool_disk_bytes", "Frames and committed updates that the spool holds on disk.");
  Gauge& spool_budget = maker.gauge("sluice_spool_budget_bytes", "Most that the spool may hold on disk.");
  Gauge& certificate =
      maker.gauge("sluice_certificate_expiry_timestamp_seconds", "Unix time at which this gateway's certificate expires; 0 if not known.");
};

std::string_view reject_reason_name(RejectReason reason) { return kRejectReasonNames[static_cast<std::size_t>(reason)]; }

RejectReason reject_reason_from(std::string_view label) {
  const auto* const found = std::find(kRejectReasonNames.begin(), kRejectReasonNames.end(), label);
  if (found == kRejectReasonNames.end()) return RejectReason::kOther;
  return static_cast<RejectReason>(found - kRejectReasonNames.begin());
}

RejectReason reject_reason_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kFrameHashMismatch:
      return RejectReason::kFrameHash;
    case ErrorCode::kFrameBadMagic:
    case ErrorCode::kFrameBadVersion:
    case ErrorCode::kFrameBadHeader:
    case ErrorCode::kFrameTruncated:
      return RejectReason::kFrameHeader;
    case ErrorCode::kFrameBadPayload:
    case ErrorCode::kNonFinite:
      return RejectReason::kFramePayload;
    case ErrorCode::kFrameUnexpected:
      return RejectReason::kFrameUnexpected;
    case ErrorCode::kConfigMismatch:
      return RejectReason::kSettingsMismatch;
    case ErrorCode::kManifestMismatch:
      return RejectReason::kAgent;
    case ErrorCode::kTimeout:
      return RejectReason::kTimeout;
    case ErrorCode::kLimitExceeded:
      return RejectReason::kFlood;
    default:
      return RejectReason::kOther;
  }
}

Metrics::Metrics(MetricsOptions options) : impl_(std::make_unique<Impl>(options)) {}
Metrics::~Metrics() = default;

void Metrics::set_link_totals(SiteId peer, const LinkTotals& totals) {
  LinkSeries& link = impl_->link(peer);
  const auto overhead = [](std::uint64_t wire, std::uint64_t payload) { return wire > payload ? wire - payload : 0; };
  raise_to(link.sent_payload, totals.sent_payload_bytes);
  raise_to(link.sent_overhead, overhead(totals.sent_wire_bytes, totals.sent_payload_bytes));
  raise_to(link.received_payload, totals.received_payload_bytes);
  raise_to(link.received_overhead, overhead(totals.received_wire_bytes, totals.received_payload_bytes));
  raise_to(link.reconnects, totals.reconnects);
  raise_to(link.resent_frames, totals.resent_frames);
}

void Metrics::set_link_up(SiteId peer, bool is_up) { impl_->link(peer).up.Set(is_up ? 1.0 : 0.0); }
void Metrics::set_link_relayed(SiteId peer, bool is_relayed) { impl_->link(peer).relayed.Set(is_relayed ? 1.0 : 0.0); }
void Metrics::count_passed_on(std::uint64_t bytes) {
  impl_->passed_on.Increment();
  impl_->passed_on_bytes.Increment(static_cast<double>(bytes));
}
void Metrics::set_link_rtt(SiteId peer, double seconds) { impl_->link(peer).rtt.Set(seconds); }
void Metrics::set_link_streams(SiteId peer, std::uint32_t streams) { impl_->link(peer).streams.Set(streams); }

void Metrics::set_link_estimate(SiteId peer, const WanPathStatus& path) {
  LinkSeries& link = impl_->link(peer);
  link.rate_low.Set(path.low_bits_per_second / 8.0);
  link.rate_median.Set(path.median_bits_per_second / 8.0);
  link.confidence.Set(path.confidence);
  link.age.Set(path.age_seconds);
  link.loss.Set(path.loss);
  link.jitter.Set(path.jitter_seconds);
}

void Metrics::set_link_plan(SiteId peer, const LinkPlanBytes& bytes) {
  LinkSeries& link = impl_->link(peer);
  link.budget.Set(bytes.budget);
  link.predicted.Set(bytes.predicted);
  link.round_sent.Set(bytes.sent);
}

void Metrics::count_plan(topology::PlanKind kind) { impl_->plans[static_cast<std::size_t>(kind)]->Increment(); }

void Metrics::count_rate_decision(sync::RateReason reason) { impl_->decisions[static_cast<std::size_t>(reason)]->Increment(); }

void Metrics::set_round_plan(double target_bits, double budget_seconds, double predicted_seconds) {
  impl_->target_bits.Set(target_bits);
  impl_->round_budget.Set(budget_seconds);
  impl_->round_predicted.Set(predicted_seconds);
}

void Metrics::set_link_bits(SiteId peer, double target_bits_per_value, double observed_bits_per_value) {
  impl_->link(peer).target_bits.Set(target_bits_per_value);
  impl_->link(peer).observed_bits.Set(observed_bits_per_value);
}

void Metrics::count_reject(RejectReason reason) { impl_->rejects[static_cast<std::size_t>(reason)]->Increment(); }

void Metrics::round_finished(RoundOutcome outcome, double seconds, const PhaseSeconds& phases, std::uint32_t counted_sites) {
  impl_->outcomes[static_cast<std::size_t>(outcome)]->Increment();
  if (outcome != RoundOutcome::kCommitted) return;
  impl_->round_duration.Observe(seconds);
  const std::array<double, kPhaseNames.size()> values{phases.open, phases.contribute, phases.combine, phases.commit};
  for (std::size_t index = 0; index < values.size(); ++index) impl_->phases[index]->Observe(values[index]);
  impl_->participants.Set(counted_sites);
}

void Metrics::set_round(std::uint64_t committed_round, std::uint64_t epoch) {
  impl_->round.Set(static_cast<double>(committed_round));
  impl_->epoch.Set(static_cast<double>(epoch));
}

void Metrics::set_rate(double bits_per_value, double step) {
  impl_->bits.Set(bits_per_value);
  impl_->step.Set(step);
}

void Metrics::count_contribution_discarded() { impl_->discarded.Increment(); }
void Metrics::count_announcement() { impl_->announcements.Increment(); }
void Metrics::set_solo(bool is_solo) { impl_->solo.Set(is_solo ? 1.0 : 0.0); }
void Metrics::add_raw_bytes(std::uint64_t bytes) { impl_->raw_bytes.Increment(static_cast<double>(bytes)); }
void Metrics::set_topology(const TopologyStatus& topology) {
  impl_->probe_pairs.Set(static_cast<double>(topology.pairs));
  impl_->probe_duration.Set(topology.seconds);
  impl_->probe_failed.Set(topology.failure.empty() ? 0.0 : 1.0);
  set_spread(impl_->site_rate, topology.gb_per_second, 1e9);
  set_spread(impl_->site_latency, topology.latency_us, 1e-6);
}
void Metrics::set_agents_connected(std::uint32_t agents) { impl_->agents.Set(agents); }
void Metrics::set_loss(double loss) { impl_->loss.Set(loss); }
void Metrics::add_tokens(std::uint64_t tokens) { impl_->tokens.Increment(static_cast<double>(tokens)); }
void Metrics::observe_codec(CodecWork work, double seconds) { impl_->codec[static_cast<std::size_t>(work)]->Observe(seconds); }
void Metrics::observe_journal_sync(double seconds) { impl_->journal_sync.Observe(seconds); }
void Metrics::count_journal_error() { impl_->journal_errors.Increment(); }

void Metrics::set_memory(std::uint64_t used_bytes, std::uint64_t budget_bytes) {
  impl_->memory_used.Set(static_cast<double>(used_bytes));
  impl_->memory_budget.Set(static_cast<double>(budget_bytes));
}

void Metrics::set_spool(std::uint64_t memory_bytes, std::uint64_t disk_bytes, std::uint64_t budget_bytes) {
  impl_->spool_memory.Set(static_cast<double>(memory_bytes));
  impl_->spool_disk.Set(static_cast<double>(disk_bytes));
  impl_->spool_budget.Set(static_cast<double>(budget_bytes));
}

void Metrics::set_certificate_expiry(WallTime expiry) {
  impl_->certificate.Set(std::chrono::duration<double>(expiry.time_since_epoch()).count());
}

std::string Metrics::render() const { return prometheus::TextSerializer().Serialize(impl_->registry.Collect()); }

}  // namespace sluice::gateway
