#include "sync/round_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/assert.h"
#include "sync/ratio_controller.h"

namespace sluice::sync {
namespace {

using Problem = std::optional<std::string>;

// What stays as it was from open to the decision.
bool has_same_terms(const RoundRecord& a, const RoundRecord& b) {
  return a.members == b.members && a.weights == b.weights && a.step == b.step && a.codec == b.codec && a.base_digest == b.base_digest &&
         a.manifest_hash == b.manifest_hash && a.chunks == b.chunks;
}

Problem open_problem(const RoundRecord& current, const RoundRecord& next) {
  if (current.is_running()) return "a round is running";
  if (next.key() != next_key(current)) {
    return fmt::format("opens round {} of epoch {}, expected round {} of epoch {}", next.round, next.epoch, next_key(current).round,
                       next_key(current).epoch);
  }
  if (next.committed_round != current.committed_round) return "opening changes what was committed";
  return std::nullopt;
}

Problem closed_problem(const RoundRecord& current, const RoundRecord& next) {
  if (!current.is_running()) return "closes a round that is not running";
  if (next.attempt != current.attempt + 1) return fmt::format("attempt {} follows attempt {}", next.attempt, current.attempt);
  if (current.phase == Phase::kClosed && !current.counted.contains_all(next.counted))
    return "a later attempt counts a site that was left out";
  // A direct round in which not every site can sum goes on with owners; no other change is possible.
  if (next.plan_kind != current.plan_kind && !(is_direct(current) && next.plan_kind == topology::PlanKind::kSharded))
    return "changes the kind of the plan";
  return std::nullopt;
}

Problem committed_problem(const RoundRecord& current, const RoundRecord& next) {
  if (current.phase != Phase::kClosed) return "commits a round that is not closed";
  if (next.attempt != current.attempt || next.counted != current.counted || next.owners != current.owners ||
      next.plan_kind != current.plan_kind) {
    return "commits something else than what was closed";
  }
  return std::nullopt;
}

Problem weights_problem(const RoundRecord& record) {
  SiteSet weighted;
  for (const SiteTokens& entry : record.weights) {
    if (entry.site.value >= kSitesMax) return "weight of an unknown site";
    if (entry.tokens == 0) return fmt::format("site {} has no weight", entry.site);
    if (weighted.contains(entry.site)) return fmt::format("site {} has two weights", entry.site);
    weighted.insert(entry.site);
  }
  if (weighted != record.members) return "weights and members differ";
  return std::nullopt;
}

// Of every phase but kIdle; an aborted record that a starting store made keeps the terms of the round that it voids.
Problem terms_problem(const RoundRecord& record) {
  if (record.plan.links.size() > std::size_t{kSitesMax} * kSitesMax) return "a plan for more links than there are";
  if (record.members.empty()) return "no members";
  if (record.members.bits >> kSitesMax != 0) return "unknown member";
  if (!record.members.contains_all(record.counted)) return "counts a site that is no member";
  if (const Problem problem = weights_problem(record)) return problem;
  if (!std::isfinite(record.step) || record.step < 0.0F) return "step is not a number from 0 up";
  if (record.chunks == 0 || record.chunks > kChunksMax) return fmt::format("{} chunks, expected 1 to {}", record.chunks, kChunksMax);
  if (record.plan_kind > topology::PlanKind::kDirect) return "unknown kind of plan";
  if (is_direct(record) && !record.plan.detours.empty()) return "ways over third sites in a direct round";
  if (record.owners.empty() || record.owners.size() > kOwnerSlotsMax)
    return fmt::format("{} owners, expected 1 to {}", record.owners.size(), kOwnerSlotsMax);
  for (const SiteId owner : record.owners) {
    if (owner.value >= kSitesMax) return "unknown owner";
  }
  return std::nullopt;
}

}  // namespace

RoundKey next_key(const RoundRecord& record) {
  const EpochId epoch = record.phase == Phase::kAborted ? record.epoch.next() : record.epoch;
  if (record.is_running()) return {epoch, record.round.next()};
  return {epoch, record.committed_round.next()};
}

SiteSet owners_with_chunks(const RoundRecord& record) {
  SiteSet owners;
  const std::size_t used = is_direct(record) ? record.owners.size() : std::min<std::size_t>(record.owners.size(), record.chunks);
  for (std::size_t index = 0; index < used; ++index) owners.insert(record.owners[index]);
  return owners;
}

SiteSet owners_of(const RoundRecord& record, ChunkId chunk) {
  SLUICE_ASSERT(!record.owners.empty());
  if (is_direct(record)) return owners_with_chunks(record);
  SiteSet owner;
  owner.insert(record.owners[chunk.value % record.owners.size()]);
  return owner;
}

float weight_of(const RoundRecord& record, SiteId site) {
  // In the order of the record, which all sites share; sums of up to 16 token counts are exact in double below 2^49 each.
  double total = 0.0;
  double own = 0.0;
  for (const SiteTokens& entry : record.weights) {
    total += static_cast<double>(entry.tokens);
    if (entry.site == site) own = static_cast<double>(entry.tokens);
  }
  return total > 0.0 ? static_cast<float>(own / total) : 0.0F;
}

float scale_of(const RoundRecord& record) {
  double sum = 0.0;
  record.counted.for_each([&](SiteId site) { sum += static_cast<double>(weight_of(record, site)); });
  return sum > 0.0 ? static_cast<float>(1.0 / sum) : 0.0F;
}

std::optional<std::string> record_problem(const RoundRecord& record) {
  switch (record.phase) {
    case Phase::kIdle:
      if (record.round.value != 0 || record.committed_round.value != 0) return "idle after a round";
      return std::nullopt;
    case Phase::kOpen:
    case Phase::kClosed:
    case Phase::kAborted:
      if (record.round != record.committed_round.next()) return "round does not follow the last committed one";
      if (record.phase == Phase::kOpen && (record.attempt != 0 || !record.counted.empty())) return "counts before it is closed";
      if (record.phase == Phase::kClosed && (record.attempt == 0 || record.counted.empty())) return "closed without counted sites";
      return terms_problem(record);
    case Phase::kCommitted:
      if (record.round != record.committed_round || record.round.value == 0)
        return "committed, but another round was the last one committed";
      if (record.counted.empty()) return "committed without counted sites";
      return terms_problem(record);
  }
  return fmt::format("unknown phase {}", static_cast<int>(record.phase));
}

std::optional<std::string> transition_problem(const RoundRecord& current, const RoundRecord& next) {
  if (Problem problem = record_problem(next)) return problem;
  if (next.phase == Phase::kOpen) return open_problem(current, next);
  if (next.key() != current.key()) {
    return fmt::format("speaks of round {} of epoch {}, the register of round {} of epoch {}", next.round, next.epoch, current.round,
                       current.epoch);
  }
  if (next.phase == Phase::kIdle) return "nothing becomes idle again";
  if (!has_same_terms(current, next)) return "changes the terms of a running round";
  if (next.phase == Phase::kClosed) return closed_problem(current, next);
  if (next.phase == Phase::kCommitted) return committed_problem(current, next);
  if (!current.is_running()) return "aborts a round that is not running";
  if (next.committed_round != current.committed_round) return "aborting changes what was committed";
  return std::nullopt;
}

RegisterStore::RegisterStore(RoundRecord recovered) : current_(std::move(recovered)) {
  const std::optional<std::string> problem = record_problem(current_);
  SLUICE_ASSERT(!problem, "the journal holds a record that no register ever held: {}", *problem);
  current_.epoch = EpochId((current_.epoch.value / kEpochsPerStart + 1) * kEpochsPerStart);
  current_.version += 1;
  if (current_.is_running()) {
    current_.phase = Phase::kAborted;
    current_.counted = SiteSet{};
    current_.reason = "the coordination store started anew while the round ran";
  }
}

RegisterStore::Outcome RegisterStore::compare_and_set(std::uint64_t expected_version, RoundRecord next) {
  if (expected_version != current_.version) {
    return {false, fmt::format("the register is at version {}, not {}", current_.version, expected_version)};
  }
  if (auto problem = transition_problem(current_, next)) return {false, std::move(*problem)};
  next.version = expected_version + 1;
  current_ = std::move(next);
  return {true, {}};
}

}  // namespace sluice::sync
