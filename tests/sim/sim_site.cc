#include "tests/sim/sim_site.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/sim/sim_site_inline.h"
#include "tests/sim/sim_world.h"

namespace sluice::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::size_t kSpoolRounds = 3;

}  // namespace

SimSite::SimSite(World& world, SiteId id) : world_(world), id_(id) {
  disk_.checkpoint_digest = Digest{1, world.config().is_first_state_shared ? 1ULL : 100ULL + id.value};
}

// ---- life ----

void SimSite::start_gateway() {
  if (machine_) return;
  ++life_;
  machine_ = std::make_unique<sync::RoundMachine>(world_.round_config(id_), disk_.journal_unsynced.value_or(disk_.journal));
  world_.note(fmt::format("site {} gateway starts", id_));
  if (world_.store_site() == id_) {
    sync::RoundRecord recovered = disk_.register_unsynced.value_or(disk_.register_synced);
    if (world_.config().mutant == ShellMutant::kSameEpochAfterStart && recovered.epoch.value >= sync::kEpochsPerStart) {
      recovered.epoch.value -= sync::kEpochsPerStart;
    }
    store_ = std::make_unique<sync::RegisterStore>(std::move(recovered));
    disk_.register_synced = store_->current();
    disk_.register_unsynced.reset();
    world_.set_register_at_start(store_->current());
  }
  world_.network().start(id_.value);
  arm_timer();
  if (store_) feed(sync::RecordSeen{store_->current()});
  if (has_agents()) in_gateway(world_.random().between(milliseconds(1), milliseconds(30)), [this] { attach(); });
}

void SimSite::stop_gateway() {
  if (!machine_) return;
  // A commit on its way to the disk may have reached it although nobody heard of it.
  if (cas_ && world_.random().chance(0.5)) finish_cas(*cas_, false);
  if (world_.random().chance(world_.config().faults.lose_unsynced)) {
    disk_.journal_unsynced.reset();
    disk_.register_unsynced.reset();
  }
  machine_.reset();
  store_.reset();
  cas_.reset();
  is_attached_ = false;
  is_gone_due_ = false;
  kept_.clear();
  last_updates_.clear();
  fetch_.reset();
  catch_up_.reset();
  world_.network().stop(id_.value);
}

// ---- into the machine and out of it ----

void SimSite::feed(const sync::Event& event) {
  if (!machine_) return;
  world_.note_event(id_, event);
  machine_->on(event, world_.queue().now());
  if (std::holds_alternative<sync::RecordSeen>(event)) prune();
  for (const sync::Action& action : machine_->take_actions()) {
    world_.note_action(id_, action);
    perform(action);
  }
  arm_timer();
}

void SimSite::arm_timer() {
  const auto deadline = machine_->next_deadline();
  ++timer_;
  if (!deadline || world_.config().mutant == ShellMutant::kNoTicks) return;
  const Duration late = world_.random().between(Duration(0), microseconds(300));
  world_.queue().at(*deadline + late, [this, life = life_, timer = timer_] {
    if (machine_ && life_ == life && timer_ == timer) feed(sync::Tick{});
  });
}

void SimSite::perform(const sync::Action& action) {
  using namespace sync;
  if (const auto* a = std::get_if<SendProposal>(&action)) return send_to_all(ProposalReceived{a->proposal});
  if (const auto* a = std::get_if<SendWithdraw>(&action)) return send_to_all(WithdrawReceived{id_, a->epoch, a->round});
  if (const auto* a = std::get_if<SendStateReport>(&action)) return send_to_all(StateReportReceived{id_, a->round, a->digest});
  if (const auto* a = std::get_if<SendOwnerStatus>(&action)) {
    return send_to_all(OwnerStatusReceived{id_, a->epoch, a->round, a->attempt, a->complete});
  }
  if (const auto* a = std::get_if<SendConfirm>(&action)) {
    world_.checker().confirmed(id_, *a);
    return send_to_all(ConfirmReceived{id_, a->epoch, a->round, a->attempt, a->counted, a->update_digest});
  }
  if (const auto* a = std::get_if<CompareAndSet>(&action)) return compare_and_set(*a);
  if (const auto* a = std::get_if<StartContribution>(&action)) {
    return in_agents(microseconds(100), [this, start = *a] { contribute(start.record, start.is_member); });
  }
  if (const auto* a = std::get_if<SendContributions>(&action)) {
    if (world_.config().mutant == ShellMutant::kForgetResend) return;
    for (std::uint32_t chunk = 0; chunk < a->record.chunks; ++chunk) {
      SiteSet owners = owners_of(a->record, ChunkId(chunk));
      owners.for_each([&](SiteId owner) {
        if (std::find(a->to.begin(), a->to.end(), owner) == a->to.end()) owners.erase(owner);
      });
      route_own(a->record, ChunkId(chunk), owners);
    }
    return;
  }
  if (const auto* a = std::get_if<CombineChunk>(&action)) {
    return in_gateway(world_.random().between(microseconds(50), milliseconds(2)), [this, combine_this = *a] { combine(combine_this); });
  }
  if (const auto* a = std::get_if<FinishRound>(&action)) return finish(*a);
  if (const auto* a = std::get_if<SkipRound>(&action)) {
    return in_agents(microseconds(100), [this, key = RoundKey{a->epoch, a->round}] { take_back(key); });
  }
  if (const auto* a = std::get_if<FetchUpdate>(&action)) {
    return begin_fetch(*a);
  }
  if (const auto* a = std::get_if<CatchUpState>(&action)) {
    catch_up_ = CatchUp{a->round, a->from, 0, true, {}};
    return in_gateway(Duration(0), [this] { ask_to_catch_up(); });
  }
  announcements_.push_back(std::get<Announce>(action).text);
}

void SimSite::send(Node to, Message message) { world_.network().send(id_.value, to, std::move(message)); }

void SimSite::send_to_all(const Message& message) {
  for (Node peer = 0; peer < world_.site_count(); ++peer) {
    if (peer != id_.value) send(peer, message);
  }
}

// ---- the store ----

void SimSite::compare_and_set(sync::CompareAndSet action) {
  world_.draw_plan(action.next);
  if (!store_) return send(world_.store_node(), StoreCasMessage{action.expected_version, action.next});
  const bool is_commit = action.next.phase == sync::Phase::kCommitted;
  if (is_commit) cas_ = action;
  in_gateway(is_commit ? world_.random().between(microseconds(100), milliseconds(3)) : Duration(0),
             [this, action] { finish_cas(action, true); });
}

void SimSite::finish_cas(sync::CompareAndSet action, bool is_heard) {
  cas_.reset();
  const sync::RoundRecord before = store_->current();
  const bool is_accepted = store_->compare_and_set(action.expected_version, action.next).accepted;
  if (is_accepted) {
    world_.set_register(before, store_->current());
    if (action.next.phase == sync::Phase::kCommitted && world_.config().mutant != ShellMutant::kSkipFsync) {
      disk_.register_synced = store_->current();
      disk_.register_unsynced.reset();
    } else {
      disk_.register_unsynced = store_->current();
    }
  }
  if (!is_heard) return;
  if (is_accepted) send_to_all(StoreRecordMessage{store_->current()});
  feed(sync::RecordSeen{store_->current()});
}

// ---- frames ----

void SimSite::keep(const ContributionFrame& frame) {
  kept_[{frame.key, frame.chunk}][frame.site] = frame.value;
  feed(sync::ContributionStored{frame.key.epoch, frame.key.round, frame.site, frame.chunk});
}

void SimSite::route_own(const sync::RoundRecord& record, ChunkId chunk, SiteSet to) {
  const auto frames = kept_.find({record.key(), chunk});
  if (frames == kept_.end() || !frames->second.contains(id_)) return;
  const ContributionFrame frame{record.key(), id_, chunk, frames->second.at(id_)};
  bool is_sent = false;
  to.for_each([&](SiteId owner) {
    if (owner == id_) return in_gateway(Duration(0), [this, frame] { keep(frame); });
    send(owner.value, frame);
    is_sent = true;
  });
  if (is_sent && world_.config().mutant == ShellMutant::kDropKeptFrames) frames->second.erase(id_);
}

void SimSite::combine(const sync::CombineChunk& action) {
  const sync::RoundKey key{action.epoch, action.round};
  const auto frames = kept_.find({key, action.chunk});
  if (frames == kept_.end()) {
    if (machine_->record().key() > key) return;  // decided meanwhile
    return world_.checker().fail(fmt::format("site {} was asked to sum a chunk of which nothing is here", id_));
  }
  std::int64_t sum = 0;
  SiteSet here;
  for (const auto& [site, value] : frames->second) {
    here.insert(site);
    if (action.counted.contains(site) || world_.config().mutant == ShellMutant::kSumAllKept) sum += value;
  }
  if (!here.contains_all(action.counted))
    return world_.checker().fail(fmt::format("site {} was asked to sum frames that are not here", id_));
  const UpdateFrame update{key, action.counted, action.chunk, sum};
  if (action.is_shared) send_to_all(update);
  store_update(update);
}

void SimSite::store_update(const UpdateFrame& frame) {
  auto& chunks = disk_.updates[{frame.key, frame.counted.bits}];
  if (chunks.contains(frame.chunk)) return;
  std::int64_t value = frame.value;
  if (std::exchange(corrupts_next_, false)) {
    world_.note(fmt::format("FAULT: site {} corrupts chunk {}", id_, frame.chunk));
    value += 1 + static_cast<std::int64_t>(world_.random().below(1U << 30));  // two corruptions are not alike
  }
  chunks[frame.chunk] = value;
  last_updates_[{frame.key, 0}][frame.chunk] = value;
  feed(sync::UpdateStored{frame.key.epoch, frame.key.round, frame.counted, frame.chunk, frame_digest(value)});
}

void SimSite::finish(const sync::FinishRound& action) {
  const auto& chunks = world_.config().mutant == ShellMutant::kIgnoreDigestOnApply
                           ? last_updates_[{action.frames, 0}]
                           : disk_.updates[{action.frames, action.record.counted.bits}];
  if (chunks.size() != action.record.chunks)
    return world_.checker().fail(fmt::format("site {} finishes a round whose update is not here", id_));
  SpoolEntry entry{action.record, {}};
  for (const auto& [chunk, value] : chunks) entry.sums.push_back(value);
  if (disk_.journal_unsynced) disk_.journal = *disk_.journal_unsynced;
  disk_.journal_unsynced = action.record;
  disk_.spool[action.record.round] = entry;
  while (disk_.spool.size() > kSpoolRounds) disk_.spool.erase(disk_.spool.begin());
  std::vector<SpoolEntry> updates{entry};
  if (world_.config().mutant == ShellMutant::kApplyTwice) updates.push_back(entry);
  in_agents(microseconds(100), [this, updates] { apply(updates); });
}

// Frames of decided rounds go; the last committed update may still be waited for.
void SimSite::prune() {
  const sync::RoundRecord& record = machine_->record();
  std::erase_if(kept_, [&](const auto& entry) { return entry.first.first < record.key(); });
  const auto is_old = [&](const auto& entry) { return entry.first.first.round.value + 2 <= record.round.value; };
  std::erase_if(disk_.updates, is_old);
  std::erase_if(last_updates_, is_old);
}

// ---- network ----

void SimSite::on_up(Node peer) {
  if (peer == world_.store_node()) return feed(sync::StoreFound{});
  const SiteId site(static_cast<std::uint16_t>(peer));
  feed(sync::PeerUp{site});
  if (store_ && world_.config().mutant != ShellMutant::kNoRecordOnConnect) send(peer, StoreRecordMessage{store_->current()});
  if (world_.store_site() == site) feed(sync::StoreFound{});
}

void SimSite::on_down(Node peer, const std::string& reason) {
  if (world_.config().mutant == ShellMutant::kNeverDown) return;
  if (peer == world_.store_node()) return feed(sync::StoreLost{reason});
  const SiteId site(static_cast<std::uint16_t>(peer));
  feed(sync::PeerDown{site, reason});
  if (world_.store_site() == site) feed(sync::StoreLost{reason});
}

void SimSite::on_message(Node from, const Message& message) {
  using namespace sync;
  const ShellMutant mutant = world_.config().mutant;
  if (const auto* m = std::get_if<ProposalReceived>(&message)) {
    ProposalReceived event = *m;
    if (mutant == ShellMutant::kAcceptOldProposals) {
      event.proposal.epoch = next_key(machine_->record()).epoch;
      event.proposal.round = next_key(machine_->record()).round;
    }
    return feed(event);
  }
  if (const auto* m = std::get_if<ConfirmReceived>(&message)) {
    ConfirmReceived event = *m;
    if (mutant == ShellMutant::kAcceptLateConfirms) {
      event.attempt = machine_->record().attempt;
      event.counted = machine_->record().counted;
    }
    return feed(event);
  }
  if (const auto* m = std::get_if<ContributionFrame>(&message)) {
    ContributionFrame frame = *m;
    if (mutant == ShellMutant::kIgnoreKeyOfFrames) frame.key = machine_->record().key();
    return keep(frame);
  }
  if (const auto* m = std::get_if<UpdateFrame>(&message)) {
    UpdateFrame frame = *m;
    if (mutant == ShellMutant::kIgnoreKeyOfFrames) frame.key = machine_->record().key();
    if (mutant == ShellMutant::kIgnoreCountedOfUpdates && machine_->record().phase == Phase::kClosed)
      frame.counted = machine_->record().counted;
    return store_update(frame);
  }
  if (const auto* m = std::get_if<WithdrawReceived>(&message)) return feed(*m);
  if (const auto* m = std::get_if<StateReportReceived>(&message)) return feed(*m);
  if (const auto* m = std::get_if<OwnerStatusReceived>(&message)) return feed(*m);
  if (const auto* m = std::get_if<StoreRecordMessage>(&message)) return feed(RecordSeen{m->record});
  if (const auto* m = std::get_if<FetchRoundMessage>(&message)) return on_fetch_round(from, *m);
  if (const auto* m = std::get_if<FetchRoundReply>(&message)) return on_fetch_round_reply(*m);
  if (std::holds_alternative<FetchStateMessage>(message)) return on_fetch_state(from);
  if (const auto* m = std::get_if<FetchStateReply>(&message)) return on_fetch_state_reply(*m);
}

}  // namespace sluice::sim
