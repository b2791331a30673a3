#include "sync/internal/round_closing.h"

#include "base/assert.h"

namespace sluice::sync {
namespace {

// Chunks of owners outside `remaining` pass to those inside in turn; everybody else keeps what it has.
std::vector<SiteId> move_owners(const RoundRecord& record, SiteSet remaining) {
  std::vector<SiteId> heirs;
  remaining.for_each([&](SiteId site) { heirs.push_back(site); });
  SLUICE_ASSERT(!heirs.empty());
  std::vector<SiteId> owners = record.owners;
  std::size_t turn = 0;
  for (SiteId& owner : owners) {
    if (!remaining.contains(owner)) owner = heirs[turn++ % heirs.size()];
  }
  return owners;
}

// Whether somebody among `remaining` would combine a chunk that it was not sent.
bool has_heirs(const RoundRecord& record, SiteSet remaining) {
  const SiteSet owners = owners_with_chunks(record);
  return is_direct(record) ? !owners.contains_all(remaining) : !remaining.contains_all(owners);
}

// Of `candidates`, those that can be counted when `remaining` combine. A chunk that moves needs its senders once more.
SiteSet countable(const RoundRecord& record, const CloseView& view, SiteSet candidates, SiteSet remaining) {
  SiteSet counted = candidates;
  remaining.for_each([&](SiteId owner) {
    if (owners_with_chunks(record).contains(owner)) counted = counted.intersect(view.complete[owner.value]);
  });
  if (has_heirs(record, remaining)) counted = counted.intersect(view.can_resend);
  return counted;
}

std::optional<Closing> closing_by(const RoundRecord& record, const CloseView& view, SiteSet candidates, SiteSet remaining) {
  if (remaining.empty()) return std::nullopt;
  const SiteSet counted = countable(record, view, candidates, remaining);
  if (counted.size() < view.quorum) return std::nullopt;
  return Closing{counted, move_owners(record, remaining), topology::PlanKind::kSharded};
}

SiteSet only(SiteId site) {
  SiteSet set;
  set.insert(site);
  return set;
}

}  // namespace

std::optional<Closing> close_at_deadline(const RoundRecord& record, const CloseView& view) {
  const SiteSet owners = owners_with_chunks(record).intersect(view.live);
  if (auto closing = closing_by(record, view, record.members, owners)) {
    if (is_direct(record)) return Closing{closing->counted, record.owners, record.plan_kind};
    return closing;
  }
  // At most 2^16 subsets, once a deadline.
  SiteSet best_owners;
  int best_counted = 0;
  for (std::uint32_t bits = owners.bits; bits != 0; bits = (bits - 1) & owners.bits) {
    const SiteSet subset{bits};
    const int counted = countable(record, view, record.members, subset).size();
    if (counted > best_counted || (counted == best_counted && subset.size() > best_owners.size())) {
      best_counted = counted;
      best_owners = subset;
    }
  }
  if (auto closing = closing_by(record, view, record.members, best_owners)) return closing;
  if (owners_with_chunks(record).contains(view.self)) return std::nullopt;  // was among the subsets
  return closing_by(record, view, record.members, only(view.self));
}

std::optional<Closing> close_again(const RoundRecord& record, const CloseView& view, SiteSet confirmed, SiteSet agreeing) {
  if (record.attempt >= kAttemptsMax) return std::nullopt;
  // Confirmations of the dead that have not come will not come.
  if (record.counted.intersect(view.live.unite(confirmed)).size() < view.quorum) return std::nullopt;
  const SiteSet owners = owners_with_chunks(record);
  const SiteSet live_owners = owners.intersect(view.live);
  SiteSet remaining = confirmed.intersect(view.live);
  if (remaining.empty() && live_owners != owners) remaining = live_owners;
  // Two attempts among many have failed, or nobody is known to be at fault: the leader, whom all live sites reach, combines alone.
  if (remaining.empty() || record.attempt >= 2) remaining = only(view.self);
  return closing_by(record, view, record.counted.intersect(agreeing), remaining);
}

}  // namespace sluice::sync
