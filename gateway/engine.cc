#include "gateway/engine.h"

#include <algorithm>
#include <random>
#include <thread>
#include <utility>

#include <asio/post.hpp>

#include "base/assert.h"
#include "base/log.h"
#include "compression/frame.h"
#include "gateway/wire_convert.h"

namespace sluice::gateway {
namespace {

constexpr std::size_t kCommitRecordsMax = 4096;  // some 300 bytes each

sync::RoundConfig machine_config(const GatewayConfig& config) {
  sync::RoundConfig result;
  result.self = own_site_id(config);
  result.sites = all_sites(config);
  result.quorum = config.round.quorum;
  result.store_site = site_id(config, config.coordination.site);
  result.open_grace = config.round.open_grace;
  result.deadline = config.round.deadline;
  result.commit_deadline = config.round.commit_deadline;
  switch (config.compression.codec) {
    case CodecChoice::kGrid:
      result.rate.codec = static_cast<std::uint8_t>(compression::Codec::kGridDense);
      break;
    case CodecChoice::kRaw32:
      result.rate.codec = static_cast<std::uint8_t>(compression::Codec::kRaw32);
      break;
    case CodecChoice::kBf16:
      result.rate.codec = static_cast<std::uint8_t>(compression::Codec::kBf16);
      break;
  }
  result.rate.is_auto = config.compression.mode == CompressionMode::kAuto;
  result.rate.bits = config.compression.bits;
  result.rate.min_bits = config.compression.min_bits;
  result.rate.max_bits = config.compression.max_bits;
  result.rate.warmup_rounds = config.compression.warmup_rounds;
  result.rate.may_relay = config.wan.relay;
  result.rate.time_share = config.compression.time_share;
  result.rate.time_budget = config.compression.time_budget;
  // Chosen for the run: sparse rounds go with plain averaging, dense ones with outer momentum.
  result.rate.regime = is_sparse(config) ? sync::RateRegime::kSparse : sync::RateRegime::kDense;
  result.rate.residual_share = residual_share(config);
  return result;
}

std::vector<std::string> site_names(const GatewayConfig& config) {
  std::vector<std::string> names;
  for (const SiteConfig& site : config.sites) names.push_back(site.name);
  return names;
}

// The last record that says something durable; every parse error is a damaged or foreign journal.
sync::RoundRecord recover(const Journal& journal, std::uint16_t sites, std::map<RoundId, sync::RoundRecord>& commits) {
  sync::RoundRecord last;
  for (const ByteVector& bytes : journal.records()) {
    auto record = parse_record(bytes, sites);
    if (!record) {
      log_warning("journal", "a record is not readable and is passed over: {}", record.error().to_string());
      continue;
    }
    if (record->phase == sync::Phase::kCommitted) commits[record->round] = *record;
    last = std::move(*record);
  }
  return last;
}

PeerLinksConfig links_config(const GatewayConfig& config, SiteId self) {
  PeerLinksConfig result;
  result.run = config.run.name;
  result.domain = config.run.domain;
  result.self = self;
  result.self_name = config.site;
  result.listen_host = config.wan.listen.host;
  result.listen_port = config.wan.listen.port;
  for (const SiteConfig& site : config.sites) {
    if (site.name == config.site) continue;
    const SiteId peer = site_id(config, site.name);
    const Endpoint endpoint = dial_endpoint(config, peer);
    result.peers.push_back({peer, site.name, endpoint.host, endpoint.port});
  }
  result.streams = config.wan.streams;
  result.heartbeat_interval = config.wan.heartbeat.interval;
  result.heartbeat_misses = config.wan.heartbeat.misses;
  result.shared_digest = shared_digest(config);
  result.shared_settings = shared_settings(config);
  result.explain_settings = [ours = result.shared_settings](std::string_view theirs) { return describe_shared_difference(ours, theirs); };
  std::random_device random;
  result.boot_id = (std::uint64_t{random()} << 32U) | (random() | 1U);
  result.handshakes_per_second = config.limits.handshakes_per_second;
  result.connections_unauthenticated = config.limits.connections_unauthenticated;
  result.rate_limit = config.wan.rate_limit;
  result.congestion = config.wan.congestion == CongestionControl::kBbr ? "bbr" : "cubic";
  return result;
}

}  // namespace

Engine::Engine(EngineParts parts)
    : parts_(std::move(parts)),
      self_(own_site_id(parts_.config)),
      sites_(static_cast<std::uint16_t>(parts_.config.sites.size())),
      routes_(self_, sites_, parts_.config.wan.relay),
      group_(parts_.config.agents.ranks),
      history_(site_names(parts_.config)),
      timer_(parts_.loop),
      publish_timer_(parts_.loop),
      started_at_(std::chrono::system_clock::now()) {
  sync::RoundRecord recovered = recover(parts_.journal, sites_, commits_);
  newest_epoch_ = recovered.epoch;
  machine_ = std::make_unique<sync::RoundMachine>(machine_config(parts_.config), recovered);
  combiner_ = std::make_unique<ChunkCombiner>(parts_.loop, std::max(1U, std::thread::hardware_concurrency()));

  PeerLinks::Callbacks peers;
  peers.on_up = [this](SiteId peer, bool is_new) { on_peer_up(peer, is_new); };
  peers.on_down = [this](SiteId peer, const std::string& reason) { on_peer_down(peer, reason); };
  peers.on_control = [this](SiteId from, const wire::PeerMessage& message) { on_peer_control(from, message); };
  peers.on_frame = [this](SiteId from, FrameRecord frame) { on_peer_frame(from, std::move(frame)); };
  peers.on_drained = [this](SiteId peer) { on_drained(peer); };
  peers.on_refused = [this](std::string_view reason, const std::string& detail) { on_refused(reason, detail); };
  links_ = std::make_unique<PeerLinks>(parts_.loop, links_config(parts_.config, self_), parts_.tls, std::move(peers));

  AgentServer::Callbacks agents;
  agents.on_connected = [](AgentSessionId) {};
  agents.on_control = [this](AgentSessionId session, const wire::AgentMessage& message) { on_agent_control(session, message); };
  agents.on_frame = [this](AgentSessionId session, FrameRecord frame) { on_agent_frame(session, std::move(frame)); };
  agents.on_disconnected = [this](AgentSessionId session, const std::string& reason) { on_agent_gone(session, reason); };
  agents.on_refused = [this](std::string_view reason, const std::string& detail) { on_refused(reason, detail); };
  agents.on_drained = [](AgentSessionId) {};
  AgentServerConfig agent_config;
  agent_config.socket = parts_.config.agents.socket;
  if (parts_.config.agents.listen) {
    agent_config.listen_host = parts_.config.agents.listen->host;
    agent_config.listen_port = parts_.config.agents.listen->port;
  }
  agent_config.domain = parts_.config.run.domain;
  agents_ = std::make_unique<AgentServer>(parts_.loop, agent_config, parts_.tls, std::move(agents));

  CoordinationHooks hooks;
  hooks.send = [this](SiteId to, const wire::PeerMessage& message) { send_control(to, message); };
  hooks.broadcast = [this](const wire::PeerMessage& message) { broadcast(message); };
  hooks.on_record = [this](const sync::RoundRecord& record) { on_record(record); };
  hooks.on_store_found = [this] { feed(sync::StoreFound{}); };
  hooks.on_store_lost = [this](std::string reason) { feed(sync::StoreLost{std::move(reason)}); };
  hooks.on_trouble = [this](const std::string& why) { on_store_trouble(why); };
  hooks.journal = [this](const sync::RoundRecord& record) { return write_journal(record); };
  coordination_ =
      std::make_unique<Coordination>(self_, site_id(parts_.config, parts_.config.coordination.site), sites_, recovered, std::move(hooks));

  CatchUpHooks catch_up;
  catch_up.send_peer = [this](SiteId to, const wire::PeerMessage& message) { send_control(to, message); };
  catch_up.send_peer_frame = [this](SiteId to, FrameRecord frame) { send_peer_frame(to, std::move(frame)); };
  catch_up.send_agents = [this](const wire::AgentMessage& message) { send_agents(message); };
  catch_up.send_agent_frame = [this](ChunkId chunk, FrameRecord frame) { send_agent_frame(chunk, std::move(frame)); };
  catch_up.live_peers = [this] { return live_peers(); };
  catch_up.commit_record = [this](RoundId round) -> std::optional<sync::RoundRecord> {
    const auto found = commits_.find(round);
    return found == commits_.end() ? std::nullopt : std::optional(found->second);
  };
  catch_up.keep_commit_record = [this](const sync::RoundRecord& record) { keep_record(record); };
  catch_up.on_update_chunk = [this](const sync::RoundRecord& record, ChunkId chunk, const Digest& digest) {
    feed(sync::UpdateStored{record.epoch, record.round, record.counted, chunk, digest});
  };
  catch_up.say = [](const std::string& text) { log_info("catch-up", "{}", text); };
  catch_up_ = std::make_unique<CatchUp>(sites_, parts_.config.training.outer.rule == OuterRule::kNesterov, parts_.spool, group_,
                                        std::move(catch_up));
  prober_ = std::make_unique<WanProber>(parts_.loop, parts_.config.wan.probe_window, prober_hooks());
}

Engine::~Engine() = default;

Status Engine::start() {
  SLUICE_CHECK_OK(agents_->start());
  SLUICE_CHECK_OK(links_->start());
  SLUICE_CHECK_OK(coordination_->start());
  log_info("gateway", "site {} of run {}: {} sites, quorum {}, {} ranks here, last committed round {}", parts_.config.site,
           parts_.config.run.name, sites_, parts_.config.round.quorum, group_.ranks(), machine_->record().committed_round);
  publish();
  on_timer();
  arm_probe_timer();
  return {};
}

void Engine::stop() {
  is_stopped_ = true;
  timer_.cancel();
  publish_timer_.cancel();
  probe_timer_.cancel();
  prober_->stop();
  agents_->stop();
  links_->stop();
}

// ---- the machine ----

void Engine::feed(sync::Event event) {
  events_.push_back(std::move(event));
  if (is_feeding_) return;  // the loop below takes it: actions never nest
  is_feeding_ = true;
  while (!events_.empty()) {
    const sync::Event next = std::move(events_.front());
    events_.pop_front();
    machine_->on(next, Clock::now());
    for (sync::Action& action : machine_->take_actions()) {
      std::visit([this](auto& each) { act(each); }, action);
    }
  }
  is_feeding_ = false;
  arm_timer();
  mark_changed();
}

void Engine::on_record(const sync::RoundRecord& record) {
  // Every start of the store begins a later epoch, unless it started from a journal older than the one before.
  const EpochId known = machine_->record().epoch;
  if (record.epoch.value + sync::kEpochsPerStart <= known.value && !is_store_behind_) {
    is_store_behind_ = true;
    const std::string text = fmt::format(
        "the store speaks of epoch {}, this site has seen {}: its journal was moved or restored; start this gateway again to follow it",
        record.epoch, known);
    log_error("store", "{}", text);
    history_.announce(text, false, std::chrono::system_clock::now());
  }
  feed(sync::RecordSeen{record});
  if (const auto model = run_model()) refuse_other_model(*model, "the run");
}

void Engine::on_store_trouble(const std::string& why) {
  const std::string text = why.empty() ? "the store decides rounds again" : "no round is decided: " + why;
  history_.announce(text, false, std::chrono::system_clock::now());
  is_store_stuck_ = !why.empty();
  mark_changed();
}

void Engine::broadcast(const wire::PeerMessage& message) {
  for (std::uint16_t site = 0; site < sites_; ++site) {
    if (SiteId(site) != self_) send_control(SiteId(site), message);
  }
}

void Engine::act(sync::SendProposal& action) {
  wire::PeerMessage message;
  write_proposal(action.proposal, *message.mutable_proposal());
  broadcast(message);
}

void Engine::act(sync::SendWithdraw& action) {
  wire::PeerMessage message;
  message.mutable_withdraw()->set_epoch(action.epoch.value);
  message.mutable_withdraw()->set_round(action.round.value);
  message.mutable_withdraw()->set_reason(action.reason);
  broadcast(message);
}

void Engine::act(sync::SendStateReport& action) {
  wire::PeerMessage message;
  message.mutable_state_report()->set_round(action.round.value);
  message.mutable_state_report()->set_state_digest(write_digest(action.digest));
  broadcast(message);
}

void Engine::act(sync::CompareAndSet& action) { coordination_->compare_and_set(action.expected_version, action.next); }

void Engine::act(sync::StartContribution& action) {
  const sync::RoundRecord& record = action.record;
  const auto held = group_.state();
  // Agents that are behind hear of the round by replay, once it is committed: they could not apply its update now.
  if (!held || held->round.next() != record.round || catch_up_->is_bringing_agents()) return;
  history_.opened(record, Clock::now());
  note_opened(record, Clock::now());
  contribution_ = Contribution{record.epoch, record.round, action.is_member, group_.generation()};
  own_chunks_.clear();
  wire::AgentMessage message;
  wire::RoundOpened* opened = message.mutable_round_opened();
  opened->set_epoch(record.epoch.value);
  opened->set_round(record.round.value);
  opened->set_step(record.step);
  opened->set_weight(sync::weight_of(record, self_));
  opened->set_codec(record.codec);
  opened->set_members(record.members.bits);
  opened->set_is_member(action.is_member);
  sync::RoundRecord if_all = record;
  if_all.counted = record.members;
  opened->set_scale_if_all(sync::scale_of(if_all));
  send_agents(message);
  for (FrameRecord& frame : std::exchange(early_updates_, {})) {
    if (frame.envelope.round == record.round.value && frame.envelope.epoch == record.epoch.value) {
      send_agent_frame(ChunkId(frame.envelope.chunk), std::move(frame));
    }
  }
  parts_.metrics.set_round(record.committed_round.value, record.epoch.value);
}

void Engine::act(sync::SendContributions& action) {
  for (std::uint32_t chunk = 0; chunk < action.record.chunks; ++chunk) {
    const SiteSet owners = sync::owners_of(action.record, ChunkId(chunk));
    for (const SiteId to : action.to) {
      if (owners.contains(to)) send_contribution(to, ChunkId(chunk));
    }
  }
}

// REQUIRES: called for the round of the current record.
void Engine::send_contribution(SiteId owner, ChunkId chunk) {
  const sync::RoundRecord& record = machine_->record();
  // Not coded yet in this epoch: it goes out when it is. What the spool holds then is of a round that was given up.
  if (!own_chunks_.contains(chunk)) return;
  auto frame = parts_.spool.get(FrameKey{record.round, wire::FrameRole::kContribution, self_, SiteSet(), chunk});
  if (!frame) return;
  if (owner == self_) {
    feed(sync::ContributionStored{record.epoch, record.round, self_, chunk});
    return;
  }
  wire::FrameEnvelope envelope;
  envelope.epoch = record.epoch.value;
  envelope.round = record.round.value;
  envelope.chunk = chunk.value;
  envelope.role = static_cast<std::uint16_t>(wire::FrameRole::kContribution);
  envelope.site = self_.value;
  send_peer_frame(owner, FrameRecord{envelope, *frame});
}

void Engine::act(sync::CombineChunk& action) {
  std::vector<SharedBytes> frames;
  bool is_whole = true;
  action.counted.for_each([&](SiteId site) {
    auto frame = parts_.spool.get(FrameKey{action.round, wire::FrameRole::kContribution, site, SiteSet(), action.chunk});
    if (frame) {
      frames.push_back(*frame);
    } else {
      log_error("round", "chunk {} of site {} is not in the spool: {}", action.chunk, name(site), frame.error().to_string());
      is_whole = false;
    }
  });
  if (!is_whole) return;  // the round closes without the site at its deadline
  const FrameKey key{action.round, wire::FrameRole::kUpdate, SiteId(), action.counted, action.chunk};
  const TimePoint began = Clock::now();
  const bool is_shared = action.is_shared;
  combiner_->combine(std::move(frames), [this, key, is_shared, epoch = action.epoch, began](Result<SharedBytes> sum) {
    if (is_stopped_) return;
    parts_.metrics.observe_codec(CodecWork::kEncodeSum, std::chrono::duration<double>(Clock::now() - began).count());
    if (!sum) {
      parts_.metrics.count_reject(reject_reason_of(sum.error().code));
      log_error("round", "chunk {} of round {} cannot be combined: {}", key.chunk, key.round, sum.error().to_string());
      return;
    }
    deliver_update(key, std::move(*sum), epoch, is_shared);
  });
}

wire::FrameEnvelope Engine::update_envelope(const FrameKey& key, EpochId epoch) const {
  wire::FrameEnvelope envelope;
  envelope.epoch = epoch.value;
  envelope.round = key.round.value;
  envelope.chunk = key.chunk.value;
  envelope.counted = key.counted.bits;
  envelope.role = static_cast<std::uint16_t>(wire::FrameRole::kUpdate);
  envelope.site = self_.value;
  return envelope;
}

Status Engine::keep_update(const FrameKey& key, const SharedBytes& frame, EpochId epoch) {
  const auto known = update_epochs_.find(key);
  if (known != update_epochs_.end() && known->second == epoch && parts_.spool.has(key)) return {};
  SLUICE_CHECK_OK(parts_.spool.put(key, frame));
  update_epochs_[key] = epoch;
  update_bytes_[key.counted.bits] += frame->size();
  return {};
}

// A committed update must outlive the processes that confirmed it: it is in a file before this site confirms.
Status Engine::promote_update(RoundId round, SiteSet counted, std::uint32_t chunks) {
  const FrameKey which{round, wire::FrameRole::kUpdate, SiteId(), counted, ChunkId()};
  if (promoted_ == which) return {};
  promoted_.reset();
  SLUICE_CHECK_OK(parts_.spool.promote(round, counted, chunks));
  promoted_ = which;
  return {};
}

// An update chunk that this site made: to every peer when it is shared, to the own agents, to the machine.
void Engine::deliver_update(const FrameKey& key, SharedBytes frame, EpochId epoch, bool is_shared) {
  if (epoch != machine_->record().epoch) return;  // the round was given up meanwhile
  if (const Status kept = keep_update(key, frame, epoch); !kept) {
    log_error("spool", "{}", kept.error().to_string());
    return;
  }
  const wire::FrameEnvelope envelope = update_envelope(key, epoch);
  if (is_shared) {
    for (const SiteId peer : live_peers()) send_peer_frame(peer, FrameRecord{envelope, frame});
  }
  send_agent_frame(key.chunk, FrameRecord{envelope, frame});
  feed(sync::UpdateStored{epoch, key.round, key.counted, key.chunk, xxh3_128(*frame)});
}

void Engine::act(sync::SendOwnerStatus& action) {
  wire::PeerMessage message;
  wire::OwnerStatus* status = message.mutable_owner_status();
  status->set_epoch(action.epoch.value);
  status->set_round(action.round.value);
  status->set_attempt(action.attempt);
  status->set_complete_sites(action.complete.bits);
  broadcast(message);
}

void Engine::act(sync::SendConfirm& action) {
  history_.update_complete(Clock::now());
  if (const Status kept = promote_update(action.round, action.counted, machine_->record().chunks); !kept) {
    log_error("spool", "round {} is not confirmed, its update cannot be kept: {}", action.round, kept.error().to_string());
    return;  // the round goes on with the sites that can
  }
  wire::PeerMessage message;
  wire::Confirm* confirm = message.mutable_confirm();
  confirm->set_epoch(action.epoch.value);
  confirm->set_round(action.round.value);
  confirm->set_attempt(action.attempt);
  confirm->set_counted(action.counted.bits);
  confirm->set_update_digest(write_digest(action.update_digest));
  broadcast(message);
}

Status Engine::write_journal(const sync::RoundRecord& record) {
  const TimePoint began = Clock::now();
  const Status written = parts_.journal.append(serialize_record(record), Durability::kDurable);
  parts_.metrics.observe_journal_sync(std::chrono::duration<double>(Clock::now() - began).count());
  if (!written) {
    parts_.metrics.count_journal_error();
    return written;
  }
  if (record.phase == sync::Phase::kCommitted) keep_record(record);
  return {};
}

void Engine::keep_record(const sync::RoundRecord& record) {
  commits_[record.round] = record;
  while (commits_.size() > kCommitRecordsMax) commits_.erase(commits_.begin());
}

void Engine::act(sync::FinishRound& action) {
  const sync::RoundRecord& record = action.record;
  // The store site wrote it before it answered the commit; everybody else does so now, before the agents act on it.
  if (!coordination_->is_store()) {
    if (const Status written = write_journal(record); !written) log_error("journal", "{}", written.error().to_string());
  }
  const auto held = group_.state();
  const bool is_following = contribution_ && contribution_->round == record.round && contribution_->epoch == action.frames.epoch &&
                            contribution_->generation == group_.generation() && held && held->round.value + 1 == record.round.value &&
                            !catch_up_->is_bringing_agents() && fetched_round_ != record.round;
  const bool was_counted = is_following && contribution_->is_member && record.counted.contains(self_);
  if (is_following) {
    wire::AgentMessage message;
    wire::RoundCommitted* committed = message.mutable_round_committed();
    committed->set_epoch(action.frames.epoch.value);
    committed->set_round(record.round.value);
    committed->set_counted(record.counted.bits);
    committed->set_scale(sync::scale_of(record));
    committed->set_was_counted(was_counted);
    committed->set_reason(record.reason);
    send_agents(message);
  }
  if (const Status kept = promote_update(record.round, record.counted, record.chunks); !kept) {
    log_warning("spool", "round {} is not kept for replay: {}", record.round, kept.error().to_string());
  }
  parts_.spool.drop_rounds_before(record.round.next());
  if (contribution_ && contribution_->is_member && !was_counted) parts_.metrics.count_contribution_discarded();
  const auto& members = group_.members();
  std::optional<double> loss;
  if (!members.empty()) loss = members.begin()->second.loss;
  update_link_figures();
  const auto status = history_.finished(record, is_following ? RoundOutcome::kCommitted : RoundOutcome::kReplayed, group_.parameters(),
                                        is_following ? inner_steps_ : 0, loss, Clock::now(), std::chrono::system_clock::now());
  parts_.metrics.round_finished(status->outcome, status->seconds, status->phase_seconds, static_cast<std::uint32_t>(record.counted.size()));
  parts_.metrics.set_round(record.round.value, record.epoch.value);
  note_finished(record, is_following ? status->bits_per_value : 0.0, Clock::now());
  parts_.metrics.set_rate(status->bits_per_value, static_cast<double>(record.step));
  parts_.metrics.add_raw_bytes(status->raw_bytes);
  contribution_.reset();
  early_updates_.clear();
  update_epochs_.clear();
  update_bytes_.clear();
  group_.clear_ready();
  if (!is_following && held && held->round < record.round) {
    catch_up_->need_agents(record.round, held->round.value == 0, {}, "a round was committed while they were away", Clock::now());
  }
  log_info("round", "{} committed by {}: {:.3f} bits per value, {:.3f} s, {}", record.round, fmt::join(history_.names(record.counted), "+"),
           status->bits_per_value, status->seconds, with_names(plan_.text));
}

void Engine::act(sync::SkipRound& action) {
  wire::AgentMessage message;
  message.mutable_round_skipped()->set_round(action.round.value);
  message.mutable_round_skipped()->set_reason(with_names(action.reason));
  send_agents(message);
  const bool was_running = contribution_.has_value();
  contribution_.reset();
  early_updates_.clear();
  group_.clear_ready();
  if (!was_running) return;  // said for a contribution that an earlier process may have taken
  sync::RoundRecord record = machine_->record();
  record.round = action.round;
  record.epoch = action.epoch;
  record.counted = SiteSet();
  record.reason = with_names(action.reason);
  const auto status = history_.finished(record, RoundOutcome::kAborted, group_.parameters(), 0, std::nullopt, Clock::now(),
                                        std::chrono::system_clock::now());
  parts_.metrics.round_finished(status->outcome, status->seconds, status->phase_seconds, 0);
  log_warning("round", "{} given up: {}", action.round, with_names(action.reason));
}

// The own replay file, when a process that died had written it and it has the committed digest.
bool Engine::feed_from_replay_file(const sync::RoundRecord& record) {
  if (!parts_.spool.has_committed(record.round)) return false;
  ByteVector digests;
  ByteWriter writer(digests);
  std::vector<Digest> chunks;
  for (std::uint32_t chunk = 0; chunk < record.chunks; ++chunk) {
    const auto frame = parts_.spool.get_committed(record.round, ChunkId(chunk));
    if (!frame) return false;
    chunks.push_back(xxh3_128(**frame));
    writer.write(chunks.back().low);
    writer.write(chunks.back().high);
  }
  if (!(xxh3_128(digests) == record.update_digest)) {
    parts_.spool.drop_committed_from(record.round);
    return false;
  }
  promoted_ = FrameKey{record.round, wire::FrameRole::kUpdate, SiteId(), record.counted, ChunkId()};
  for (std::uint32_t chunk = 0; chunk < record.chunks; ++chunk) {
    feed(sync::UpdateStored{record.epoch, record.round, record.counted, ChunkId(chunk), chunks[chunk]});
  }
  return true;
}

void Engine::act(sync::FetchUpdate& action) {
  fetched_round_ = action.record.round;
  keep_record(action.record);
  if (feed_from_replay_file(action.record)) return;
  std::erase_if(update_epochs_, [&](const auto& entry) { return entry.first.round == action.record.round; });
  promoted_.reset();
  catch_up_->need_update(action.record, action.from, Clock::now());
}

void Engine::act(sync::CatchUpState& action) {
  const auto held = group_.state();
  // A state that is not behind differs; a fresh one (round 0) is not worth replaying from.
  const bool take_state = !held || held->round.value == 0 || held->round >= action.round;
  catch_up_->need_agents(action.round, take_state, action.from, with_names(action.reason), Clock::now());
}

void Engine::act(sync::Announce& action) {
  is_solo_ = action.is_solo;
  const std::string text = with_names(action.text);
  if (text == last_announcement_) return;
  last_announcement_ = text;
  history_.announce(text, action.is_solo, std::chrono::system_clock::now());
  parts_.metrics.count_announcement();
  parts_.metrics.set_solo(action.is_solo);
  log_warning("round", "{}", text);
  wire::AgentMessage message;
  message.mutable_announcement()->set_text(text);
  message.mutable_announcement()->set_solo(action.is_solo);
  send_agents(message);
}

// ---- time ----

void Engine::arm_timer() {
  if (is_stopped_) return;
  // At least once a second: link figures and /livez depend on it.
  TimePoint at = Clock::now() + std::chrono::seconds(1);
  if (const auto deadline = machine_->next_deadline()) at = std::min(at, *deadline);
  if (const auto deadline = catch_up_->next_deadline()) at = std::min(at, *deadline);
  if (const auto deadline = coordination_->next_deadline()) at = std::min(at, *deadline);
  timer_.expires_at(at);
  timer_.async_wait([this](const asio::error_code& error) {
    if (!error) on_timer();
  });
}

void Engine::on_timer() {
  if (is_stopped_) return;
  const TimePoint now = Clock::now();
  catch_up_->on_time(machine_->record().committed_round, now);
  coordination_->on_time(now);
  const auto deadline = machine_->next_deadline();
  if (deadline && *deadline <= now) {
    feed(sync::Tick{});
  } else {
    arm_timer();
    mark_changed();
  }
}

}  // namespace sluice::gateway
