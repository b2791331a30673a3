#include "gateway/agent_group.h"

#include <algorithm>
#include <cmath>

#include "gateway/wire_convert.h"

namespace sluice::gateway {
namespace {

// Rendezvous of a collective group: a few keys for each pair of ranks, each an address blob.
constexpr std::size_t kKeysMax = 65536;
constexpr std::size_t kKeyBytesMax = 256;
constexpr std::size_t kKeyValueBytesMax = 64 * 1024;
constexpr std::uint64_t kParametersMax = 1ULL << 42;

tl::unexpected<Error> refuse(std::string detail) { return fail(ErrorCode::kAgentRefused, "admit agent", std::move(detail)); }

Result<std::uint64_t> count_parameters(const wire::AgentHello& hello) {
  std::uint64_t total = 0;
  for (const wire::TensorInfo& tensor : hello.tensors()) {
    std::uint64_t count = 1;
    for (const std::uint64_t extent : tensor.shape()) {
      if (extent != 0 && count > kParametersMax / extent) return refuse(fmt::format("tensor {} is too large", tensor.name()));
      count *= extent;
    }
    total += count;
    if (total > kParametersMax) return refuse("the model has more than 2^42 parameters");
  }
  return total;
}

Result<std::vector<Digest>> read_digests(const google::protobuf::RepeatedPtrField<std::string>& list, std::uint32_t chunks) {
  if (static_cast<std::uint32_t>(list.size()) > chunks) return refuse(fmt::format("{} chunk digests for {} chunks", list.size(), chunks));
  std::vector<Digest> digests;
  for (const std::string& bytes : list) {
    SLUICE_TRY(const Digest digest, read_digest(bytes, "chunk_digests"));
    digests.push_back(digest);
  }
  return digests;
}

}  // namespace

Result<std::optional<AgentSessionId>> AgentGroup::join(AgentSessionId session, const wire::AgentHello& hello) {
  if (hello.ranks() != ranks_) {
    return refuse(fmt::format("the agent says the site has {} ranks, the configuration says agents.ranks: {}", hello.ranks(), ranks_));
  }
  if (hello.rank() >= ranks_) return refuse(fmt::format("rank {} of {}", hello.rank(), ranks_));
  SLUICE_TRY(const std::uint64_t parameters, count_parameters(hello));
  const std::uint64_t chunks = (parameters + compression::kChunkValues - 1) / compression::kChunkValues;
  if (chunks != hello.chunks())
    return refuse(fmt::format("{} parameters make {} chunks, the agent says {}", parameters, chunks, hello.chunks()));
  const RankId rank(hello.rank());
  const bool is_replacing_all = members_.empty() || (members_.size() == 1 && members_.contains(rank));
  if (!is_replacing_all && hello.manifest_hash() != manifest_hash_) {
    return fail(ErrorCode::kManifestMismatch, "admit agent",
                fmt::format("rank {} trains another model than the other ranks of this site ({} parameters against {})", hello.rank(),
                            parameters, parameters_));
  }
  AgentRank member;
  member.session = session;
  member.rank = rank;
  member.round = RoundId(hello.round());
  member.loss = std::nan("");
  SLUICE_TRY(member.chunk_digests, read_digests(hello.chunk_digests(), hello.chunks()));
  std::optional<AgentSessionId> replaced;
  if (const auto found = members_.find(rank); found != members_.end()) replaced = found->second.session;
  if (replaced) leave(*replaced);
  if (manifest_hash_ != hello.manifest_hash()) departed_.clear();
  departed_.erase(rank);
  manifest_hash_ = hello.manifest_hash();
  chunks_ = hello.chunks();
  parameters_ = parameters;
  members_.emplace(rank, std::move(member));
  return replaced;
}

std::optional<RankId> AgentGroup::leave(AgentSessionId session) {
  std::erase_if(waiting_, [&](const auto& entry) { return entry.second.session == session; });
  for (auto entry = members_.begin(); entry != members_.end(); ++entry) {
    if (entry->second.session != session) continue;
    const RankId rank = entry->first;
    entry->second.ready.reset();
    departed_[rank] = std::move(entry->second);
    members_.erase(entry);
    return rank;
  }
  return std::nullopt;
}

std::uint64_t AgentGroup::begin_generation() {
  keys_.clear();
  waiting_.clear();
  return ++generation_;
}

Result<std::optional<SiteReady>> AgentGroup::set_ready(AgentSessionId session, const wire::AgentReady& ready) {
  AgentRank* member = find_mutable(session);
  if (member == nullptr) return refuse("ready before hello");
  if (ready.round() != member->round.value + 1) {
    return refuse(fmt::format("rank {} is ready for round {} but holds the state of round {}", member->rank, ready.round(), member->round));
  }
  member->ready = ready;
  member->loss = ready.loss();
  member->tokens_total += ready.tokens();
  if (!is_complete()) return std::optional<SiteReady>();
  SiteReady merged;
  merged.round = RoundId(ready.round());
  for (const auto& [rank, each] : members_) {
    if (!each.ready || each.ready->round() != ready.round()) return std::optional<SiteReady>();
    const std::string& bytes = each.ready->sketch();
    SLUICE_TRY(const auto sketch, compression::Sketch::parse(ByteSpan(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size())));
    merged.sketch.merge(sketch);
    merged.tokens += each.ready->tokens();
    merged.inner_steps = std::max(merged.inner_steps, each.ready->inner_steps());
    merged.sketch_weight = each.ready->sketch_weight();
  }
  return std::optional<SiteReady>(std::move(merged));
}

void AgentGroup::clear_ready() {
  for (auto& [rank, member] : members_) member.ready.reset();
}

Status AgentGroup::set_applied(AgentSessionId session, const wire::RoundApplied& applied) {
  AgentRank* member = find_mutable(session);
  if (member == nullptr) return refuse("state report before hello");
  SLUICE_TRY(member->chunk_digests, read_digests(applied.chunk_digests(), chunks_));
  member->round = RoundId(applied.round());
  member->ready.reset();
  return {};
}

std::optional<AgentGroup::SiteState> AgentGroup::state() const { return common_state(members_); }

std::optional<AgentGroup::SiteState> AgentGroup::reported_state() const {
  std::map<RankId, AgentRank> ranks = members_;
  ranks.insert(departed_.begin(), departed_.end());
  return common_state(ranks);
}

std::optional<AgentGroup::SiteState> AgentGroup::common_state(const std::map<RankId, AgentRank>& ranks) const {
  if (ranks.size() != ranks_) return std::nullopt;
  const RoundId round = ranks.begin()->second.round;
  ByteVector digests;
  ByteWriter writer(digests);
  for (const auto& [rank, member] : ranks) {
    if (member.round != round) return std::nullopt;
    for (const Digest& digest : member.chunk_digests) {
      writer.write(digest.low);
      writer.write(digest.high);
    }
  }
  return SiteState{round, xxh3_128(digests)};
}

std::optional<RoundId> AgentGroup::round_min() const {
  if (!is_complete()) return std::nullopt;
  RoundId lowest = members_.begin()->second.round;
  for (const auto& [rank, member] : members_) lowest = std::min(lowest, member.round);
  return lowest;
}

const AgentRank* AgentGroup::find(AgentSessionId session) const {
  for (const auto& [rank, member] : members_) {
    if (member.session == session) return &member;
  }
  return nullptr;
}

AgentRank* AgentGroup::find_mutable(AgentSessionId session) { return const_cast<AgentRank*>(find(session)); }

std::optional<AgentSessionId> AgentGroup::session_of(ChunkId chunk) const {
  if (chunk.value >= chunks_) return std::nullopt;
  // Shard of rank r of R: chunks [r*C/R, (r+1)*C/R).
  for (const auto& [rank, member] : members_) {
    const std::uint64_t begin = std::uint64_t{rank.value} * chunks_ / ranks_;
    const std::uint64_t end = (std::uint64_t{rank.value} + 1) * chunks_ / ranks_;
    if (chunk.value >= begin && chunk.value < end) return member.session;
  }
  return std::nullopt;
}

Result<std::vector<AgentGroup::KeyAnswer>> AgentGroup::set_key(const std::string& key, const std::string& value) {
  if (key.size() > kKeyBytesMax || value.size() > kKeyValueBytesMax || keys_.size() >= kKeysMax) {
    return refuse(fmt::format("rendezvous key {} of {} bytes is over the limit", key.substr(0, 64), value.size()));
  }
  keys_[key] = value;
  std::vector<KeyAnswer> answers;
  const auto [begin, end] = waiting_.equal_range(key);
  for (auto entry = begin; entry != end; ++entry) answers.push_back({entry->second.session, entry->second.request_id, value});
  waiting_.erase(begin, end);
  return answers;
}

std::optional<std::string> AgentGroup::wait_key(AgentSessionId session, std::uint64_t request_id, const std::string& key) {
  if (const auto found = keys_.find(key); found != keys_.end()) return found->second;
  if (waiting_.size() < kKeysMax) waiting_.emplace(key, Waiting{session, request_id});
  return std::nullopt;
}

}  // namespace sluice::gateway
