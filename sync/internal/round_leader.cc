// What moves the register: opening, closing, committing, aborting. Every site that may lead evaluates the same conditions on what it knows;
// compare-and-set lets one of them win.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "sync/internal/round_impl.h"
#include "sync/internal/round_opening.h"
#include "sync/internal/site_text.h"

namespace sluice::sync {
namespace {

// With a store outside the sites the k-th live site waits k times this before it decides in place of the first ones.
constexpr Duration kLeaderStagger = std::chrono::milliseconds(500);

}  // namespace

void RoundMachine::Impl::lead() {
  if (!has_seen_store || store_lost || cas_version) return;
  if (config.store_site && *config.store_site != config.self) return;
  std::optional<RoundRecord> next = decide();
  if (!next) {
    decidable_since.reset();
    return;
  }
  if (!decidable_since) decidable_since = now;
  const auto live_before = static_cast<int>(live().intersect(SiteSet{(1U << config.self.value) - 1U}).size());
  const TimePoint due = *decidable_since + (config.store_site ? Duration{} : live_before * kLeaderStagger);
  if (now < due) return wake_at(due);
  const auto problem = transition_problem(record, *next);
  SLUICE_ASSERT(!problem, "decided what no register takes: {}", *problem);
  cas_version = record.version;
  actions.push_back(CompareAndSet{record.version, std::move(*next)});
}

std::optional<RoundRecord> RoundMachine::Impl::decide() {
  switch (record.phase) {
    case Phase::kOpen:
      return decide_close();
    case Phase::kClosed:
      return decide_commit();
    case Phase::kIdle:
    case Phase::kCommitted:
    case Phase::kAborted:
      return decide_open();
  }
  return std::nullopt;
}

// ---- open ----

bool RoundMachine::Impl::is_valid(const Proposal& proposal) const {
  return !record.is_running() && RoundKey{proposal.epoch, proposal.round} == next_key(record) && proposal.tokens > 0 &&
         proposal.chunks > 0 && proposal.chunks <= kChunksMax;
}

std::optional<RoundRecord> RoundMachine::Impl::decide_open() {
  std::vector<const Proposal*> proposals;
  SiteSet awaited;
  live().for_each([&](SiteId site) {
    const Site& known = sites[site.value];
    if (known.proposal && is_valid(*known.proposal)) {
      proposals.push_back(&*known.proposal);
    } else if (known.has_agents) {
      awaited.insert(site);
    }
  });
  std::optional<Digest> reference;
  if (agents && !is_catching_up && !applying && agents->round == record.committed_round) reference = agents->digest;
  const Membership membership = choose_members(proposals, reference);
  if (membership.members.size() < config.quorum) {
    quorum_since.reset();
    return std::nullopt;
  }
  if (!quorum_since) quorum_since = now;
  const TimePoint patience_ends = *quorum_since + config.open_grace;
  if (!awaited.empty() && now < patience_ends) {
    wake_at(patience_ends);
    return std::nullopt;
  }
  announce_left_out("made its delta from another state", membership.other_state);
  announce_left_out("trains another model than the rest", membership.other_model);
  SiteSet members;
  for (const Proposal* member : membership.members) members.insert(member->site);
  return open_record(controller, record, membership.members, company().minus(members).empty());
}

void RoundMachine::Impl::announce_left_out(const std::string& what, const std::vector<SiteId>& left_out) {
  if (left_out.empty()) return;
  std::string text = fmt::format("{} {} and takes no part in round {}", text_of(left_out), what, next_key(record).round);
  if (left_out_said == text) return;
  left_out_said = text;
  say(std::move(text));
}

// ---- close ----

CloseView RoundMachine::Impl::close_view() const {
  CloseView view;
  view.self = config.self;
  view.quorum = config.quorum;
  view.live = live();
  view.can_resend = view.live;
  view.live.for_each([&](SiteId site) {
    const Site& known = sites[site.value];
    if (known.withdrawn == record.key()) view.can_resend.erase(site);
    if (known.status && RoundKey{known.status->epoch, known.status->round} == record.key() && known.status->attempt >= owners_since) {
      view.complete[site.value] = known.status->complete.intersect(record.members);
    }
  });
  return view;
}

RoundRecord RoundMachine::Impl::closed(const Closing& closing, std::string reason) const {
  RoundRecord next = record;
  next.phase = Phase::kClosed;
  next.attempt = record.attempt + 1;
  next.counted = closing.counted;
  next.owners = closing.owners;
  next.plan_kind = closing.plan_kind;
  next.reason = std::move(reason);
  return next;
}

RoundRecord RoundMachine::Impl::aborted(std::string reason) const {
  RoundRecord next = record;
  next.phase = Phase::kAborted;
  next.counted = SiteSet{};
  next.reason = std::move(reason);
  return next;
}

std::optional<RoundRecord> RoundMachine::Impl::decide_close() {
  const CloseView view = close_view();
  SiteSet owners = owners_with_chunks(record);
  // In a direct round nobody needs what a lost site would have summed.
  if (is_direct(record) && owners.intersect(view.live).size() >= config.quorum) owners = owners.intersect(view.live);
  SiteSet complete = record.members;
  owners.for_each([&](SiteId owner) { complete = complete.intersect(view.complete[owner.value]); });
  const bool all_owners_live = view.live.contains_all(owners);
  const auto closed_for = [&](std::string reason) { return closed({complete, record.owners, record.plan_kind}, std::move(reason)); };
  if (all_owners_live && complete == record.members) return closed_for("all members are complete");
  // Who has withdrawn will not become complete; nobody else is waited for.
  SiteSet awaited = record.members.minus(complete);
  awaited.for_each([&](SiteId site) {
    if (sites[site.value].withdrawn == record.key()) awaited.erase(site);
  });
  if (all_owners_live && awaited.empty() && complete.size() >= config.quorum) {
    return closed_for(fmt::format("without {}: withdrawn", text_of(record.members.minus(complete))));
  }
  const TimePoint deadline = opened_at + config.deadline;
  if (now < deadline) {
    wake_at(deadline);
    return std::nullopt;
  }
  const auto closing = close_at_deadline(record, view);
  if (!closing) {
    return aborted(fmt::format("at the deadline only {} of {} sites were complete, a round needs {}", complete.size(),
                               record.members.size(), config.quorum));
  }
  return closed(*closing, fmt::format("deadline: without {}", text_of(record.members.minus(closing->counted))));
}

// ---- commit ----

std::optional<RoundRecord> RoundMachine::Impl::decide_commit() {
  SiteSet confirmed;
  SiteSet agreeing;  // the largest group with one digest; on a tie the one of the lowest site
  Digest digest;
  record.counted.for_each([&](SiteId site) {
    const auto& confirm = sites[site.value].confirm;
    const auto matches = [&](const std::optional<ConfirmReceived>& other) {
      return other && RoundKey{other->epoch, other->round} == record.key() && other->attempt == record.attempt &&
             other->counted == record.counted;
    };
    if (!matches(confirm)) return;
    confirmed.insert(site);
    SiteSet group;
    record.counted.for_each([&](SiteId other) {
      const auto& theirs = sites[other.value].confirm;
      if (matches(theirs) && theirs->update_digest == confirm->update_digest) group.insert(other);
    });
    if (group.size() <= agreeing.size()) return;
    agreeing = group;
    digest = confirm->update_digest;
  });
  const bool is_unanimous = agreeing == confirmed;
  const bool has_quorum = confirmed.size() >= config.quorum;
  const bool all_live_confirmed = record.counted.intersect(live()).minus(confirmed).empty();
  const TimePoint deadline = closed_at + config.commit_deadline;
  const bool is_late = now >= deadline;
  if (is_unanimous && has_quorum && (all_live_confirmed || is_late)) {
    RoundRecord next = record;
    next.phase = Phase::kCommitted;
    next.update_digest = digest;
    next.committed_round = record.round;
    next.reason = fmt::format("{} of {} counted sites confirmed", confirmed.size(), record.counted.size());
    next.plan.links.clear();  // the journal keeps what decides something
    return next;
  }
  if (!is_late && (is_unanimous || !all_live_confirmed)) {
    wake_at(deadline);
    return std::nullopt;
  }
  if (!is_unanimous) {
    say(fmt::format("round {}: sites hold different updates. {} agree, {} do not: look for failing memory or a broken gateway there",
                    record.round, text_of(agreeing), text_of(confirmed.minus(agreeing))));
  }
  const auto closing = close_again(record, close_view(), agreeing, is_unanimous ? record.counted : agreeing);
  if (!closing) {
    return aborted(fmt::format("attempt {}: {} of {} counted sites confirmed, a round needs {}", record.attempt, agreeing.size(),
                               record.counted.size(), config.quorum));
  }
  return closed(*closing, fmt::format("attempt {} was confirmed by {} only", record.attempt, text_of(agreeing)));
}

}  // namespace sluice::sync
