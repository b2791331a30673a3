#include "gateway/wire_convert.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "compression/sketch.h"

namespace sluice::gateway {
namespace {

constexpr const char* kOperation = "read message from peer";
constexpr std::size_t kReasonBytesMax = 512;
constexpr int kOwnersMax = 4096;  // shares of the chunks in steps of 1/4096

tl::unexpected<Error> bad_field(const char* field, const std::string& found) {
  return fail(ErrorCode::kWireBadMessage, kOperation, fmt::format("field {}: {}", field, found));
}

Result<SiteSet> read_sites(std::uint32_t bits, std::uint16_t sites, const char* field) {
  if ((bits >> sites) != 0) return bad_field(field, fmt::format("site set {:#x} names a site beyond {}", bits, sites));
  return SiteSet{bits};
}

// Rates, sizes and lengths of time: numbers from 0 up. What a peer says of them decides no more than a round's bits.
Result<double> read_amount(double value, const char* field) {
  if (!std::isfinite(value) || value < 0.0 || value > 1e18) return bad_field(field, fmt::format("{}", value));
  return value;
}

std::uint64_t to_us(Duration duration) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::microseconds>(duration).count()));
}

Duration from_us(std::uint64_t us) {
  constexpr std::uint64_t kYearUs = 366ULL * 86'400 * 1'000'000;
  return std::chrono::microseconds(std::min(us, kYearUs));
}

Result<SiteId> read_site(std::uint32_t site, std::uint16_t sites, const char* field) {
  if (site >= sites) return bad_field(field, std::to_string(site));
  return SiteId(static_cast<std::uint16_t>(site));
}

void write_plan(const sync::RatePlan& plan, wire::RatePlan& out) {
  out.set_reason(static_cast<std::uint32_t>(plan.reason));
  out.set_target_bits(plan.target_bits);
  out.set_update_bits(plan.update_bits);
  out.set_budget_seconds(plan.budget_seconds);
  out.set_predicted_seconds(plan.predicted_seconds);
  out.set_overhead_seconds(plan.overhead_seconds);
  out.set_has_limit(plan.limit_from.has_value() && plan.limit_to.has_value());
  out.set_limit_from(plan.limit_from.value_or(SiteId()).value);
  out.set_limit_to(plan.limit_to.value_or(SiteId()).value);
  out.set_text(plan.text);
  for (const sync::LinkPlan& link : plan.links) {
    wire::LinkPlan* added = out.add_links();
    added->set_from(link.from.value);
    added->set_to(link.to.value);
    added->set_rate(link.rate);
    added->set_budget_bytes(link.budget_bytes);
    added->set_predicted_bytes(link.predicted_bytes);
  }
  for (const sync::DetourPlan& detour : plan.detours) {
    wire::DetourPlan* added = out.add_detours();
    added->set_from(detour.from.value);
    added->set_to(detour.to.value);
    added->set_over(detour.over.value);
    added->set_share(detour.share);
  }
}

Status read_detours(const wire::RatePlan& message, std::uint16_t sites, sync::RatePlan& plan) {
  if (message.detours_size() > kSitesMax * kSitesMax * kSitesMax) {
    return bad_field("plan.detours", fmt::format("{} entries", message.detours_size()));
  }
  for (const wire::DetourPlan& from : message.detours()) {
    sync::DetourPlan detour;
    SLUICE_TRY(detour.from, read_site(from.from(), sites, "plan.detours.from"));
    SLUICE_TRY(detour.to, read_site(from.to(), sites, "plan.detours.to"));
    SLUICE_TRY(detour.over, read_site(from.over(), sites, "plan.detours.over"));
    SLUICE_TRY(detour.share, read_amount(from.share(), "plan.detours.share"));
    if (detour.from == detour.to || detour.over == detour.from || detour.over == detour.to || detour.share > 1.0) {
      return bad_field("plan.detours", fmt::format("from {} to {} over {}, share {}", detour.from, detour.to, detour.over, detour.share));
    }
    plan.detours.push_back(detour);
  }
  return {};
}

Result<sync::RatePlan> read_plan(const wire::RatePlan& message, std::uint16_t sites) {
  sync::RatePlan plan;
  if (message.reason() > static_cast<std::uint32_t>(sync::RateReason::kNoSketch)) {
    return bad_field("plan.reason", std::to_string(message.reason()));
  }
  plan.reason = static_cast<sync::RateReason>(message.reason());
  SLUICE_TRY(plan.target_bits, read_amount(message.target_bits(), "plan.target_bits"));
  SLUICE_TRY(plan.update_bits, read_amount(message.update_bits(), "plan.update_bits"));
  SLUICE_TRY(plan.budget_seconds, read_amount(message.budget_seconds(), "plan.budget_seconds"));
  SLUICE_TRY(plan.predicted_seconds, read_amount(message.predicted_seconds(), "plan.predicted_seconds"));
  SLUICE_TRY(plan.overhead_seconds, read_amount(message.overhead_seconds(), "plan.overhead_seconds"));
  if (message.has_limit()) {
    SLUICE_TRY(plan.limit_from, read_site(message.limit_from(), sites, "plan.limit_from"));
    SLUICE_TRY(plan.limit_to, read_site(message.limit_to(), sites, "plan.limit_to"));
  }
  plan.text = message.text().substr(0, kReasonBytesMax);
  if (message.links_size() > kSitesMax * kSitesMax) return bad_field("plan.links", fmt::format("{} entries", message.links_size()));
  for (const wire::LinkPlan& from : message.links()) {
    sync::LinkPlan link;
    SLUICE_TRY(link.from, read_site(from.from(), sites, "plan.links.from"));
    SLUICE_TRY(link.to, read_site(from.to(), sites, "plan.links.to"));
    SLUICE_TRY(link.rate, read_amount(from.rate(), "plan.links.rate"));
    SLUICE_TRY(link.budget_bytes, read_amount(from.budget_bytes(), "plan.links.budget_bytes"));
    SLUICE_TRY(link.predicted_bytes, read_amount(from.predicted_bytes(), "plan.links.predicted_bytes"));
    plan.links.push_back(link);
  }
  SLUICE_CHECK_OK(read_detours(message, sites, plan));
  return plan;
}

void write_report(const sync::SiteReport& report, wire::Proposal& out) {
  for (const sync::LinkReport& link : report.links) {
    wire::LinkReport* added = out.add_links();
    added->set_peer(link.to.value);
    added->set_low_rate(link.low_rate);
    added->set_median_rate(link.median_rate);
    added->set_rtt_us_min(to_us(link.rtt_min));
    added->set_rtt_us_p50(to_us(link.rtt_p50));
    added->set_rtt_us_p95(to_us(link.rtt_p95));
    added->set_jitter_us(to_us(link.jitter));
    added->set_loss(link.loss);
    added->set_confidence(link.confidence);
    added->set_age_us(to_us(link.age));
    added->set_method(link.method);
  }
  out.set_compute_us(to_us(report.compute));
  out.set_encode_us(to_us(report.encode));
  out.set_rate_limit(report.rate_limit);
  out.set_measured_round(report.measured_round.value);
  out.set_contribution_bits(report.contribution_bits);
  out.set_update_bits(report.update_bits);
  out.set_exchange_us(to_us(report.exchange));
}

Result<sync::SiteReport> read_report(const wire::Proposal& message, std::uint16_t sites) {
  sync::SiteReport report;
  if (message.links_size() > kSitesMax) return bad_field("links", fmt::format("{} entries", message.links_size()));
  for (const wire::LinkReport& from : message.links()) {
    sync::LinkReport link;
    SLUICE_TRY(link.to, read_site(from.peer(), sites, "links.peer"));
    SLUICE_TRY(link.low_rate, read_amount(from.low_rate(), "links.low_rate"));
    SLUICE_TRY(link.median_rate, read_amount(from.median_rate(), "links.median_rate"));
    SLUICE_TRY(link.loss, read_amount(from.loss(), "links.loss"));
    SLUICE_TRY(link.confidence, read_amount(from.confidence(), "links.confidence"));
    link.rtt_min = from_us(from.rtt_us_min());
    link.rtt_p50 = from_us(from.rtt_us_p50());
    link.rtt_p95 = from_us(from.rtt_us_p95());
    link.jitter = from_us(from.jitter_us());
    link.age = from_us(from.age_us());
    link.method = static_cast<std::uint8_t>(std::min(from.method(), 3U));
    report.links.push_back(link);
  }
  report.compute = from_us(message.compute_us());
  report.encode = from_us(message.encode_us());
  SLUICE_TRY(report.rate_limit, read_amount(message.rate_limit(), "rate_limit"));
  report.measured_round = RoundId(message.measured_round());
  SLUICE_TRY(report.contribution_bits, read_amount(message.contribution_bits(), "contribution_bits"));
  SLUICE_TRY(report.update_bits, read_amount(message.update_bits(), "update_bits"));
  report.exchange = from_us(message.exchange_us());
  return report;
}

}  // namespace

std::string write_digest(const Digest& digest) {
  std::string bytes(16, '\0');
  std::memcpy(bytes.data(), &digest.low, 8);
  std::memcpy(bytes.data() + 8, &digest.high, 8);
  return bytes;
}

Result<Digest> read_digest(const std::string& bytes, const char* field) {
  if (bytes.empty()) return Digest{};
  if (bytes.size() != 16) return bad_field(field, fmt::format("{} bytes, expected 16", bytes.size()));
  Digest digest;
  std::memcpy(&digest.low, bytes.data(), 8);
  std::memcpy(&digest.high, bytes.data() + 8, 8);
  return digest;
}

std::string digest_hex(const Digest& digest) { return fmt::format("{:016x}{:016x}", digest.high, digest.low); }

void write_record(const sync::RoundRecord& record, wire::RoundRecord& out) {
  out.set_version(record.version);
  out.set_epoch(record.epoch.value);
  out.set_round(record.round.value);
  out.set_phase(static_cast<std::uint32_t>(record.phase));
  out.set_attempt(record.attempt);
  out.set_members(record.members.bits);
  out.set_counted(record.counted.bits);
  for (const sync::SiteTokens& weight : record.weights) {
    wire::SiteWeight* added = out.add_weights();
    added->set_site(weight.site.value);
    added->set_tokens(weight.tokens);
  }
  out.set_step(record.step);
  out.set_codec(record.codec);
  for (const SiteId owner : record.owners) out.add_owners(owner.value);
  out.set_plan_kind(static_cast<std::uint32_t>(record.plan_kind));
  out.set_update_digest(write_digest(record.update_digest));
  out.set_base_digest(write_digest(record.base_digest));
  out.set_committed_round(record.committed_round.value);
  out.set_manifest_hash(record.manifest_hash);
  out.set_chunks(record.chunks);
  out.set_reason(record.reason);
  write_plan(record.plan, *out.mutable_plan());
}

Result<sync::RoundRecord> read_record(const wire::RoundRecord& message, std::uint16_t sites) {
  sync::RoundRecord record;
  record.version = message.version();
  record.epoch = EpochId(message.epoch());
  record.round = RoundId(message.round());
  if (message.phase() > static_cast<std::uint32_t>(sync::Phase::kAborted)) return bad_field("phase", std::to_string(message.phase()));
  record.phase = static_cast<sync::Phase>(message.phase());
  record.attempt = message.attempt();
  SLUICE_TRY(record.members, read_sites(message.members(), sites, "members"));
  SLUICE_TRY(record.counted, read_sites(message.counted(), sites, "counted"));
  if (message.weights_size() > kSitesMax) return bad_field("weights", fmt::format("{} entries", message.weights_size()));
  for (const wire::SiteWeight& weight : message.weights()) {
    if (weight.site() >= sites) return bad_field("weights.site", std::to_string(weight.site()));
    record.weights.push_back({SiteId(static_cast<std::uint16_t>(weight.site())), weight.tokens()});
  }
  if (!std::isfinite(message.step()) || message.step() < 0.0F) return bad_field("step", fmt::format("{}", message.step()));
  record.step = message.step();
  if (message.codec() > 255) return bad_field("codec", std::to_string(message.codec()));
  record.codec = static_cast<std::uint8_t>(message.codec());
  if (message.owners_size() > kOwnersMax) return bad_field("owners", fmt::format("{} entries", message.owners_size()));
  for (const std::uint32_t owner : message.owners()) {
    if (owner >= sites) return bad_field("owners", std::to_string(owner));
    record.owners.emplace_back(static_cast<std::uint16_t>(owner));
  }
  if (message.plan_kind() > static_cast<std::uint32_t>(topology::PlanKind::kDirect)) {
    return bad_field("plan_kind", std::to_string(message.plan_kind()));
  }
  record.plan_kind = static_cast<topology::PlanKind>(message.plan_kind());
  SLUICE_TRY(record.update_digest, read_digest(message.update_digest(), "update_digest"));
  SLUICE_TRY(record.base_digest, read_digest(message.base_digest(), "base_digest"));
  record.committed_round = RoundId(message.committed_round());
  record.manifest_hash = message.manifest_hash();
  record.chunks = message.chunks();
  record.reason = message.reason().substr(0, kReasonBytesMax);
  SLUICE_TRY(record.plan, read_plan(message.plan(), sites));
  const bool is_running = record.phase == sync::Phase::kOpen || record.phase == sync::Phase::kClosed;
  if (is_running && record.owners.empty()) return bad_field("owners", "none in a running round");
  return record;
}

void write_proposal(const sync::Proposal& proposal, wire::Proposal& out) {
  out.set_epoch(proposal.epoch.value);
  out.set_round(proposal.round.value);
  out.set_tokens(proposal.tokens);
  if (proposal.sketch) {
    const ByteVector sketch = proposal.sketch->to_bytes();
    out.set_sketch(sketch.data(), sketch.size());
  }
  out.set_sketch_weight(proposal.sketch_weight);
  out.set_manifest_hash(proposal.manifest_hash);
  out.set_chunks(proposal.chunks);
  out.set_state_digest(write_digest(proposal.base_digest));
  out.set_values(proposal.values);
  write_report(proposal.report, out);
}

Result<sync::Proposal> read_proposal(const wire::Proposal& message, SiteId from, std::uint16_t sites) {
  sync::Proposal proposal;
  proposal.epoch = EpochId(message.epoch());
  proposal.round = RoundId(message.round());
  proposal.site = from;
  proposal.tokens = message.tokens();
  if (!message.sketch().empty()) {
    const ByteSpan bytes(reinterpret_cast<const std::uint8_t*>(message.sketch().data()), message.sketch().size());
    SLUICE_TRY(auto sketch, compression::Sketch::parse(bytes));
    proposal.sketch = std::make_shared<const compression::Sketch>(std::move(sketch));
  }
  if (!std::isfinite(message.sketch_weight()) || message.sketch_weight() < 0.0) {
    return bad_field("sketch_weight", fmt::format("{}", message.sketch_weight()));
  }
  proposal.sketch_weight = message.sketch_weight();
  proposal.manifest_hash = message.manifest_hash();
  proposal.chunks = message.chunks();
  SLUICE_TRY(proposal.base_digest, read_digest(message.state_digest(), "state_digest"));
  proposal.values = message.values();
  SLUICE_TRY(proposal.report, read_report(message, sites));
  return proposal;
}

ByteVector serialize_record(const sync::RoundRecord& record) {
  wire::RoundRecord message;
  write_record(record, message);
  ByteVector bytes(message.ByteSizeLong());
  message.SerializeToArray(bytes.data(), static_cast<int>(bytes.size()));
  return bytes;
}

Result<sync::RoundRecord> parse_record(ByteSpan bytes, std::uint16_t sites) {
  wire::RoundRecord message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return bad_field("record", "not a RoundRecord");
  return read_record(message, sites);
}

}  // namespace sluice::gateway
