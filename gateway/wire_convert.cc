#include "gateway/wire_convert.h"

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
  out.set_update_digest(write_digest(record.update_digest));
  out.set_base_digest(write_digest(record.base_digest));
  out.set_committed_round(record.committed_round.value);
  out.set_manifest_hash(record.manifest_hash);
  out.set_chunks(record.chunks);
  out.set_reason(record.reason);
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
  SLUICE_TRY(record.update_digest, read_digest(message.update_digest(), "update_digest"));
  SLUICE_TRY(record.base_digest, read_digest(message.base_digest(), "base_digest"));
  record.committed_round = RoundId(message.committed_round());
  record.manifest_hash = message.manifest_hash();
  record.chunks = message.chunks();
  record.reason = message.reason().substr(0, kReasonBytesMax);
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
}

Result<sync::Proposal> read_proposal(const wire::Proposal& message, SiteId from) {
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
