#include "gateway/catch_up.h"

#include <algorithm>
#include <utility>

#include "compression/frame.h"
#include "gateway/wire_convert.h"

namespace sluice::gateway {
namespace {

constexpr std::uint32_t kParametersRole = 1;
constexpr std::uint32_t kMomentumRole = 2;

wire::FrameEnvelope replay_envelope(const sync::RoundRecord& record, ChunkId chunk) {
  wire::FrameEnvelope envelope;
  envelope.epoch = record.epoch.value;
  envelope.round = record.round.value;
  envelope.chunk = chunk.value;
  envelope.counted = record.counted.bits;
  envelope.role = static_cast<std::uint16_t>(wire::FrameRole::kReplay);
  return envelope;
}

}  // namespace

// ---- bringing the agents up to date ----

void CatchUp::need_agents(RoundId committed, bool take_state, std::vector<SiteId> from, const std::string& reason, TimePoint now) {
  holders_ = std::move(from);
  if (is_bringing_ && (take_state_ || !take_state)) return;
  is_bringing_ = true;
  take_state_ = take_state;
  batch_end_ = RoundId();
  hooks_.say(fmt::format("bringing this site's agents to round {} by {}: {}", committed, take_state ? "state transfer" : "replay", reason));
  advance(committed, now);
}

void CatchUp::on_agents_changed(RoundId committed, TimePoint now) {
  if (!is_bringing_) return;
  if (!agents_.is_complete()) {
    state_.reset();
    batch_end_ = RoundId();
    return;
  }
  advance(committed, now);
}

void CatchUp::advance(RoundId committed, TimePoint now) {
  if (!is_bringing_ || !agents_.is_complete() || state_) return;
  const auto held = agents_.state();
  const RoundId lowest = *agents_.round_min();
  if (take_state_) {
    begin_state_transfer(now);
    return;
  }
  if (held && held->round >= committed) {
    is_bringing_ = false;
    hooks_.say(fmt::format("this site's agents hold round {}", held->round));
    return;
  }
  if (batch_end_ > lowest) return;  // they are still applying
  replay_batch(lowest.next(), committed, now);
}

bool CatchUp::replay_batch(RoundId from, RoundId committed, TimePoint now) {
  const RoundId last(std::min(committed.value, from.value + kReplayBatchRounds - 1));
  for (RoundId round = from; round <= last; round = round.next()) {
    const auto record = hooks_.commit_record(round);
    if (record && spool_.has_committed(round)) continue;
    if (fetch_) return false;  // one at a time; on_time() comes back here
    sync::RoundRecord unknown;
    unknown.round = round;
    need_update(record.value_or(unknown), hooks_.live_peers(), now);
    return false;
  }
  wire::AgentMessage message;
  message.mutable_catch_up()->set_to_round(last.value);
  message.mutable_catch_up()->set_reason(fmt::format("rounds {} to {} were committed without this site", from, last));
  hooks_.send_agents(message);
  batch_end_ = last;
  for (RoundId round = from; round <= last; round = round.next()) replay_round(*hooks_.commit_record(round));
  return true;
}

void CatchUp::replay_round(const sync::RoundRecord& record) {
  for (std::uint32_t chunk = 0; chunk < record.chunks; ++chunk) {
    auto frame = spool_.get_committed(record.round, ChunkId(chunk));
    if (!frame) {
      // The file was found damaged just now: the agents lack a chunk, so the batch is repeated from a fetch.
      hooks_.say(frame.error().to_string());
      batch_end_ = RoundId();
      return;
    }
    hooks_.send_agent_frame(ChunkId(chunk), FrameRecord{replay_envelope(record, ChunkId(chunk)), *frame});
  }
  wire::AgentMessage message;
  wire::RoundCommitted* committed = message.mutable_round_committed();
  committed->set_epoch(record.epoch.value);
  committed->set_round(record.round.value);
  committed->set_counted(record.counted.bits);
  committed->set_scale(sync::scale_of(record));
  committed->set_was_counted(false);
  committed->set_reason("replayed");
  hooks_.send_agents(message);
}

// ---- fetching one committed update ----

void CatchUp::need_update(const sync::RoundRecord& record, std::vector<SiteId> from, TimePoint now) {
  if (fetch_ && fetch_->round == record.round) return;
  Fetch fetch;
  fetch.round = record.round;
  if (record.chunks > 0) {
    fetch.counted = record.counted;
    fetch.chunks = record.chunks;
    for (std::uint32_t chunk = 0; chunk < record.chunks; ++chunk) fetch.missing.insert(ChunkId(chunk));
  }
  for (const SiteId site : hooks_.live_peers()) {
    if (std::find(from.begin(), from.end(), site) != from.end()) fetch.left.push_back(site);
  }
  fetch_ = std::move(fetch);
  ask_next_for_round(now);
}

void CatchUp::ask_next_for_round(TimePoint now) {
  fetch_->asked.reset();
  fetch_->retry_at.reset();
  if (fetch_->left.empty()) {
    fetch_->retry_at = now + kFetchRetryDelay;
    return;
  }
  fetch_->asked = fetch_->left.front();
  fetch_->left.pop_front();
  fetch_->progress_at = now;
  wire::PeerMessage message;
  message.mutable_fetch_round()->set_round(fetch_->round.value);
  hooks_.send_peer(*fetch_->asked, message);
}

Status CatchUp::on_fetch_round_reply(SiteId from, const wire::FetchRoundReply& reply, TimePoint now) {
  if (!fetch_ || fetch_->asked != from || fetch_->round.value != reply.round()) return {};
  if (!reply.available()) {
    if (fetch_->left.empty() && is_bringing_) {
      // Nobody has the round any more: replay is no way, the state itself has to come.
      fetch_.reset();
      take_state_ = true;
      begin_state_transfer(now);
      return {};
    }
    ask_next_for_round(now);
    return {};
  }
  SLUICE_TRY(auto record, read_record(reply.record(), sites_));
  if (record.round != fetch_->round || record.phase != sync::Phase::kCommitted || record.chunks != agents_.chunks()) {
    ask_next_for_round(now);
    return fail(ErrorCode::kWireBadMessage, "fetch round", fmt::format("site {} sent the record of another round or model", from));
  }
  fetch_->progress_at = now;
  if (!fetch_->counted) {
    fetch_->counted = record.counted;
    fetch_->chunks = record.chunks;
    for (std::uint32_t chunk = 0; chunk < record.chunks; ++chunk) {
      const FrameKey key{record.round, wire::FrameRole::kUpdate, SiteId(), record.counted, ChunkId(chunk)};
      if (!spool_.has(key)) fetch_->missing.insert(ChunkId(chunk));
    }
  }
  hooks_.keep_commit_record(record);
  return finish_fetch(now);
}

Status CatchUp::take_update_frame(SiteId from, const FrameRecord& frame, TimePoint now) {
  if (!fetch_ || fetch_->asked != from || fetch_->round.value != frame.envelope.round) return {};
  SLUICE_TRY(const auto view, compression::parse_frame(*frame.frame));
  const ChunkId chunk(frame.envelope.chunk);
  if (view.header.chunk != chunk || (fetch_->counted && fetch_->counted->bits != frame.envelope.counted)) {
    return fail(ErrorCode::kFrameUnexpected, "fetch round", fmt::format("site {} sent chunk {} of another set", from, chunk));
  }
  const SiteSet counted{frame.envelope.counted};
  SLUICE_CHECK_OK(spool_.put(FrameKey{fetch_->round, wire::FrameRole::kUpdate, SiteId(), counted, chunk}, frame.frame));
  fetch_->progress_at = now;
  fetch_->missing.erase(chunk);
  sync::RoundRecord record;
  if (const auto known = hooks_.commit_record(fetch_->round)) record = *known;
  record.round = fetch_->round;
  record.counted = counted;
  hooks_.on_update_chunk(record, chunk, xxh3_128(*frame.frame));
  return finish_fetch(now);
}

// Once every chunk is here: the round becomes a replay file, and the agents go on with it.
Status CatchUp::finish_fetch(TimePoint now) {
  if (!fetch_ || !fetch_->counted || !fetch_->missing.empty()) return {};
  const Fetch done = *fetch_;
  fetch_.reset();
  if (!is_bringing_) return {};
  // The machine may have finished the round at its last chunk: then it is a replay file already.
  if (!spool_.has_committed(done.round)) SLUICE_CHECK_OK(spool_.promote(done.round, *done.counted, done.chunks));
  spool_.drop_round(done.round);
  const auto lowest = agents_.round_min();
  if (lowest && batch_end_ <= *lowest && !take_state_) replay_batch(lowest->next(), std::max(done.round, batch_end_), now);
  return {};
}

// ---- taking the state ----

void CatchUp::begin_state_transfer(TimePoint now) {
  StateTransfer transfer;
  for (std::uint32_t chunk = 0; chunk < agents_.chunks(); ++chunk)
    transfer.roles_missing.emplace(ChunkId(chunk), has_momentum_ ? kParametersRole | kMomentumRole : kParametersRole);
  transfer.round_min = RoundId(~std::uint64_t{0});
  state_ = std::move(transfer);
  wire::AgentMessage message;
  message.mutable_catch_up()->set_with_state(true);
  message.mutable_catch_up()->set_reason(
      "the state comes from another site; if none holds it (all training processes began anew), load the saved states with state_file, or "
      "begin a new run with another run.name and empty state directories");
  hooks_.send_agents(message);
  ask_next_for_state(now);
}

void CatchUp::ask_next_for_state(TimePoint now) {
  state_->asked.reset();
  state_->requested.clear();
  state_->retry_at.reset();
  if (state_->left.empty()) {
    const auto sources = state_sources();
    state_->left.assign(sources.begin(), sources.end());
    if (state_->left.empty()) {
      state_->retry_at = now + kFetchRetryDelay;
      return;
    }
  }
  state_->asked = state_->left.front();
  state_->left.pop_front();
  request_state_window(now);
}

// Live sites, those that are said to hold the state first.
std::vector<SiteId> CatchUp::state_sources() const {
  std::vector<SiteId> sources = hooks_.live_peers();
  std::stable_partition(sources.begin(), sources.end(),
                        [&](SiteId site) { return std::find(holders_.begin(), holders_.end(), site) != holders_.end(); });
  return sources;
}

void CatchUp::request_state_window(TimePoint now) {
  state_->progress_at = now;
  wire::PeerMessage message;
  for (const auto& [chunk, roles] : state_->roles_missing) {
    if (state_->requested.size() >= kStateWindowChunks) break;
    if (state_->requested.insert(chunk).second) message.mutable_fetch_state()->add_chunks(chunk.value);
  }
  if (message.fetch_state().chunks_size() > 0) hooks_.send_peer(*state_->asked, message);
}

Status CatchUp::on_fetch_state_reply(SiteId from, const wire::FetchStateReply& reply, TimePoint now) {
  if (!state_ || state_->asked != from) return {};
  state_->progress_at = now;
  if (reply.available()) return {};
  state_->asked.reset();
  state_->requested.clear();
  // Everybody else may be in the same place as this site: ask again in a moment rather than in a circle.
  state_->retry_at = now + kFetchRetryDelay;
  return {};
}

Status CatchUp::take_state_frame(SiteId from, const FrameRecord& frame, TimePoint now) {
  if (!state_ || state_->asked != from) return {};
  SLUICE_TRY(const auto view, compression::parse_frame(*frame.frame));
  const ChunkId chunk(frame.envelope.chunk);
  const auto found = state_->roles_missing.find(chunk);
  if (view.header.chunk != chunk || found == state_->roles_missing.end()) {
    return fail(ErrorCode::kFrameUnexpected, "take state", fmt::format("site {} sent chunk {}, which was not asked for", from, chunk));
  }
  state_->progress_at = now;
  state_->round_min = std::min(state_->round_min, RoundId(frame.envelope.round));
  hooks_.send_agent_frame(chunk, frame);
  const bool is_parameters = frame.envelope.role == static_cast<std::uint16_t>(wire::FrameRole::kStateParameters);
  found->second &= ~(is_parameters ? kParametersRole : kMomentumRole);
  if (found->second != 0) return {};
  state_->roles_missing.erase(found);
  state_->requested.erase(chunk);
  if (!state_->roles_missing.empty()) {
    if (state_->requested.size() < kStateWindowChunks / 2) request_state_window(now);
    return {};
  }
  const RoundId reached = state_->round_min;
  state_.reset();
  take_state_ = false;
  batch_end_ = reached;
  wire::AgentMessage message;
  message.mutable_catch_up()->set_to_round(reached.value);
  message.mutable_catch_up()->set_reason("the state is complete");
  hooks_.send_agents(message);
  return {};
}

Status CatchUp::on_frame(SiteId from, const FrameRecord& frame, TimePoint now) {
  if (frame.envelope.role == static_cast<std::uint16_t>(wire::FrameRole::kReplay)) return take_update_frame(from, frame, now);
  return take_state_frame(from, frame, now);
}

void CatchUp::on_peer_down(SiteId peer, TimePoint now) {
  for (auto& [chunk, waiting] : waiting_for_state_) waiting.erase(peer);
  std::erase_if(waiting_for_state_, [](const auto& entry) { return entry.second.empty(); });
  if (fetch_ && fetch_->asked == peer) ask_next_for_round(now);
  if (state_ && state_->asked == peer) ask_next_for_state(now);
}

// ---- serving ----

void CatchUp::serve_round(SiteId to, RoundId round) {
  wire::PeerMessage message;
  wire::FetchRoundReply* reply = message.mutable_fetch_round_reply();
  reply->set_round(round.value);
  const auto record = hooks_.commit_record(round);
  const bool is_available = record && spool_.has_committed(round);
  reply->set_available(is_available);
  if (is_available) write_record(*record, *reply->mutable_record());
  hooks_.send_peer(to, message);
  if (!is_available) return;
  for (std::uint32_t chunk = 0; chunk < record->chunks; ++chunk) {
    auto frame = spool_.get_committed(round, ChunkId(chunk));
    if (!frame) {
      hooks_.say(frame.error().to_string());
      return;  // the peer asks another site when nothing more comes
    }
    hooks_.send_peer_frame(to, FrameRecord{replay_envelope(*record, ChunkId(chunk)), *frame});
  }
}

void CatchUp::serve_state(SiteId to, const wire::FetchState& request, bool is_in_sync) {
  wire::PeerMessage answer;
  wire::FetchStateReply* reply = answer.mutable_fetch_state_reply();
  const auto held = agents_.state();
  reply->set_available(held.has_value() && is_in_sync);
  if (held) reply->set_round(held->round.value);
  if (!reply->available()) reply->set_reason("this site's agents are away or catching up themselves");
  hooks_.send_peer(to, answer);
  if (!reply->available() || request.chunks_size() > static_cast<int>(kStateWindowChunks)) return;
  wire::AgentMessage message;
  message.mutable_state_request()->set_request_id(next_request_id_++);
  for (const std::uint32_t chunk : request.chunks()) {
    if (chunk >= agents_.chunks()) continue;
    waiting_for_state_[ChunkId(chunk)].insert(to);
    message.mutable_state_request()->add_chunks(chunk);
  }
  hooks_.send_agents(message);  // each rank answers for the chunks of its shard
}

void CatchUp::on_agent_state_frame(const FrameRecord& frame) {
  const auto found = waiting_for_state_.find(ChunkId(frame.envelope.chunk));
  if (found == waiting_for_state_.end()) return;
  for (const SiteId site : found->second) hooks_.send_peer_frame(site, frame);
  // Parameters come first, momentum (if the rule has one) second: with the last one the chunk is served.
  const auto last = has_momentum_ ? wire::FrameRole::kStateMomentum : wire::FrameRole::kStateParameters;
  if (frame.envelope.role == static_cast<std::uint16_t>(last)) waiting_for_state_.erase(found);
}

// ---- time ----

void CatchUp::on_time(RoundId committed, TimePoint now) {
  if (fetch_) {
    if (fetch_->retry_at && now >= *fetch_->retry_at) {
      const auto peers = hooks_.live_peers();
      fetch_->left.assign(peers.begin(), peers.end());
      ask_next_for_round(now);
    } else if (fetch_->asked && now - fetch_->progress_at >= kFetchSilenceMax) {
      ask_next_for_round(now);
    }
  }
  if (state_) {
    const bool is_silent = state_->asked && now - state_->progress_at >= kFetchSilenceMax;
    if (is_silent || (state_->retry_at && now >= *state_->retry_at)) ask_next_for_state(now);
  }
  if (is_bringing_ && !state_ && !fetch_) advance(committed, now);
}

std::optional<TimePoint> CatchUp::next_deadline() const {
  std::optional<TimePoint> earliest;
  const auto consider = [&](TimePoint at) { earliest = earliest ? std::min(*earliest, at) : at; };
  if (fetch_ && fetch_->retry_at) consider(*fetch_->retry_at);
  if (fetch_ && fetch_->asked) consider(fetch_->progress_at + kFetchSilenceMax);
  if (state_ && state_->retry_at) consider(*state_->retry_at);
  if (state_ && state_->asked) consider(state_->progress_at + kFetchSilenceMax);
  return earliest;
}

}  // namespace sluice::gateway
