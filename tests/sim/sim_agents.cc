// The agents' side of a site.

#include <fmt/format.h>

#include <utility>

#include "tests/sim/sim_site.h"
#include "tests/sim/sim_site_inline.h"
#include "tests/sim/sim_world.h"

namespace sluice::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Phase = SimAgents::Phase;

constexpr std::uint64_t kManifest = 7;

}  // namespace

void SimSite::start_agents() {
  if (has_agents()) return;
  agents_ = SimAgents{Phase::kComputing,
                      agents_.life + 1,
                      agents_.task + 1,
                      disk_.checkpoint_round,
                      disk_.checkpoint_digest,
                      Values(world_.config().chunks, 0),
                      std::nullopt};
  world_.note(fmt::format("site {} agents start at round {}", id_, agents_.round));
  compute();
  if (machine_) in_gateway(world_.random().between(milliseconds(1), milliseconds(30)), [this] { attach(); });
}

void SimSite::stop_agents() {
  agents_.phase = Phase::kDead;
  agents_.contribution.reset();
  if (!std::exchange(is_attached_, false)) return;
  catch_up_.reset();
  is_gone_due_ = true;
  in_gateway(world_.random().between(microseconds(100), milliseconds(20)), [this] { tell_gone(); });
}

void SimSite::tell_gone() {
  if (std::exchange(is_gone_due_, false)) feed(sync::LocalGone{"the training processes are gone"});
}

void SimSite::attach() {
  if (!has_agents() || is_attached_) return;
  if (agents_.phase == Phase::kApplying) return in_gateway(milliseconds(1), [this] { attach(); });
  tell_gone();  // when the new processes are here before the end of the old ones was seen
  is_attached_ = true;
  feed(sync::LocalState{agents_.round, agents_.digest});
  if (agents_.phase == Phase::kReady) tell_ready();
}

void SimSite::compute() {
  agents_.phase = Phase::kComputing;
  const std::uint64_t task = ++agents_.task;
  const SimConfig& config = world_.config();
  world_.queue().after(world_.random().between(config.compute_min, config.compute_max) * slowness_, [this, task] {
    if (agents_.phase == Phase::kComputing && agents_.task == task) become_ready();
  });
}

// Work in progress goes on at the new speed, begun again.
void SimSite::slow_down(int factor) {
  if (factor == slowness_) return;
  slowness_ = factor;
  if (agents_.phase == Phase::kComputing) compute();
}

void SimSite::become_ready() {
  for (std::int64_t& value : agents_.delta) value += static_cast<std::int64_t>(world_.random().between(1, 1000));
  agents_.phase = Phase::kReady;
  ++agents_.task;
  tell_ready();
}

void SimSite::tell_ready() {
  if (!is_attached_) return;
  in_gateway(microseconds(100), [this, task = agents_.task] {
    if (!is_attached_ || agents_.task != task) return;
    sync::Proposal proposal;
    proposal.tokens = world_.random().between(1, 5);
    proposal.manifest_hash = kManifest;
    proposal.chunks = world_.config().chunks;
    proposal.base_digest = agents_.digest;
    feed(sync::LocalReady{proposal});
  });
}

void SimSite::tell_state() {
  if (!is_attached_) return;
  in_gateway(microseconds(100), [this, life = agents_.life] {
    if (is_attached_ && agents_.life == life) feed(sync::LocalState{agents_.round, agents_.digest});
  });
}

void SimSite::contribute(const sync::RoundRecord& record, bool is_member) {
  if (world_.config().mutant == ShellMutant::kContributeAfterRestart && record.members.contains(id_)) is_member = true;
  if (!is_member) return;
  if (agents_.contribution) {
    return world_.checker().fail(fmt::format("I4: site {} contributes while its last contribution is undecided", id_));
  }
  if (agents_.phase != Phase::kReady || agents_.digest != record.base_digest) {
    return world_.checker().fail(fmt::format("site {} is asked for a contribution that it did not propose", id_));
  }
  agents_.contribution = {record.key(), std::exchange(agents_.delta, Values(record.chunks, 0))};
  agents_.phase = Phase::kContributing;
  ++agents_.task;
  world_.checker().contributed(id_, record.key(), agents_.contribution->second);
  Duration delay{};
  for (std::uint32_t chunk = 0; chunk < record.chunks; ++chunk) {
    delay += world_.random().between(microseconds(50), world_.config().encode_max) * slowness_;
    const ContributionFrame frame{record.key(), id_, ChunkId(chunk), agents_.contribution->second[chunk]};
    in_gateway(delay, [this, frame] {
      if (!is_attached_ || machine_->record().key() != frame.key || !machine_->record().is_running()) return;
      kept_[{frame.key, frame.chunk}][id_] = frame.value;
      route_own(machine_->record(), frame.chunk, sync::owners_of(machine_->record(), frame.chunk));
    });
  }
}

void SimSite::apply(const std::vector<SpoolEntry>& updates) {
  agents_.phase = Phase::kApplying;
  const std::uint64_t task = ++agents_.task;
  for (const SpoolEntry& update : updates) {
    if (agents_.digest != update.record.base_digest) {
      return world_.checker().fail(fmt::format("site {} is asked to apply round {} to another state", id_, update.record.round));
    }
    const RoundId before = agents_.round;
    agents_.digest = applied(agents_.digest, update.record, update.sums);
    agents_.round = update.record.round;
    world_.checker().applied_update(id_, before, update.record, update.sums, agents_.digest);
    if (agents_.contribution) {
      const auto [key, values] = *std::exchange(agents_.contribution, std::nullopt);
      if (key.round != update.record.round)
        world_.checker().fail(fmt::format("I4: site {} was never told about its contribution to round {}", id_, key.round));
      world_.checker().resolved(id_, key, update.record.counted.contains(id_) ? Outcome::kCommitted : Outcome::kDiscarded);
    }
    if (agents_.round.value % world_.config().rounds_per_checkpoint == 0) {
      disk_.checkpoint_round = agents_.round;
      disk_.checkpoint_digest = agents_.digest;
    }
  }
  agents_.delta.assign(agents_.delta.size(), 0);
  world_.queue().after(world_.random().between(microseconds(100), milliseconds(4)), [this, task] {
    if (agents_.phase != Phase::kApplying || agents_.task != task) return;
    tell_state();
    compute();
  });
}

void SimSite::take_back(const sync::RoundKey& key) {
  if (!agents_.contribution || agents_.contribution->first > key || world_.config().mutant == ShellMutant::kIgnoreSkip) return;
  const auto [made_for, values] = *std::exchange(agents_.contribution, std::nullopt);
  world_.checker().resolved(id_, made_for, Outcome::kReturned);
  for (std::size_t chunk = 0; chunk < values.size(); ++chunk) agents_.delta[chunk] += values[chunk];
  if (agents_.phase == Phase::kContributing) compute();
}

void SimSite::take_state(RoundId round, Digest digest) {
  if (agents_.contribution) world_.checker().resolved(id_, std::exchange(agents_.contribution, std::nullopt)->first, Outcome::kUnknown);
  agents_.round = round;
  agents_.digest = digest;
  agents_.delta.assign(agents_.delta.size(), 0);
  world_.checker().took_state(id_, round, digest);
  tell_state();
  compute();
}

}  // namespace sluice::sim
