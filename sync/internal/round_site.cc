// What every site does in a round, leader or not: follow the record, contribute, combine what it owns, confirm, apply, catch up.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "sync/internal/round_impl.h"
#include "sync/internal/round_opening.h"
#include "sync/internal/site_text.h"

namespace sluice::sync {
namespace {

// Update frames may be under way when the commit is seen. A site that followed the round waits this share of commit_deadline before it
// fetches.
constexpr int kFetchGraceShare = 4;

}  // namespace

// ---- following the register ----

void RoundMachine::Impl::adopt(const RoundRecord& next) {
  SLUICE_ASSERT(!has_seen_store || record.key() <= next.key(), "the register went back");
  leave_round(next);
  const RoundRecord previous = std::exchange(record, next);
  has_seen_store = true;
  quorum_since.reset();
  decidable_since.reset();
  if (record.is_running()) enter_round(previous);
  replay_early_frames();
  if (record.is_running()) combine_owned();
}

// Ends what this site has of the round that ran, when `next` speaks of another or has decided it; a commit leaves something to apply.
void RoundMachine::Impl::leave_round(const RoundRecord& next) {
  const bool goes_on = record.is_running() && next.is_running() && next.key() == record.key();
  if (goes_on) return;
  if (record.is_running() && next.committed_round < record.round && (started == record.key() || record.members.contains(config.self))) {
    std::string reason = next.phase == Phase::kAborted ? next.reason : fmt::format("void: the register is at epoch {} now", next.epoch);
    say(fmt::format("round {} of epoch {} is not counted: {}", record.round, record.epoch, reason));
    actions.push_back(SkipRound{record.epoch, record.round, std::move(reason)});
  }
  if (next.phase == Phase::kCommitted && !(pending && pending->record.round == next.round)) {
    const bool followed = tracker && record.round == next.round;
    const bool is_same_epoch = followed && record.epoch == next.epoch;
    const bool is_summed_here = is_same_epoch && is_direct(next) && tracker->has_taken_all(next.counted);
    pending = Pending{next, followed ? tracker->take_progress(next.counted) : UpdateProgress(next.counted, next.chunks),
                      followed ? record.key() : next.key(),
                      is_same_epoch && (is_summed_here || may_be_under_way(next)) ? now + config.commit_deadline / kFetchGraceShare : now,
                      is_summed_here};
    // Of an epoch that is over nothing more comes.
    if (followed && !is_same_epoch && !pending->progress.is_complete()) forget_frames();
  }
  tracker.reset();
  started = RoundKey{};
  contributing = RoundKey{};
  status_sent.reset();
  confirm_sent.reset();
}

// Whether what is missing of an update may still come by itself: every owner has been connected since before it could send any of it.
bool RoundMachine::Impl::may_be_under_way(const RoundRecord& committed) const {
  bool is_connected = is_followed_from_open && !is_direct(committed);
  owners_with_chunks(committed).for_each([&](SiteId owner) {
    const Site& known = sites[owner.value];
    if (owner != config.self && (!known.is_up || known.up_since >= opened_at)) is_connected = false;
  });
  return is_connected;
}

void RoundMachine::Impl::enter_round(const RoundRecord& previous) {
  if (record.phase == Phase::kClosed) closed_at = now;
  if (!tracker) {
    tracker.emplace(config.self, record);
    opened_at = now;
    is_followed_from_open = record.phase == Phase::kOpen;
    owners_since = record.attempt;
    if (is_followed_from_open) learn_rate();
    return;
  }
  tracker->follow(record);
  if (previous.plan_kind != record.plan_kind) {
    const SiteSet owners = owners_with_chunks(record);
    say(fmt::format("round {}: not every site could sum for itself, {} combine{} for all", record.round, text_of(owners),
                    owners.size() == 1 ? "s" : ""));
  }
  std::vector<SiteId> heirs = heirs_after(previous);
  if (heirs.empty()) return;
  owners_since = record.attempt;
  say(fmt::format("round {}: {} now combine{} the chunks of lost owners", record.round, text_of(heirs), heirs.size() == 1 ? "s" : ""));
  if (contributing == record.key() && record.counted.contains(config.self)) {
    actions.push_back(SendContributions{record, std::move(heirs)});
  }
}

// Sites that combine a chunk now which `previous` did not have sent to them.
std::vector<SiteId> RoundMachine::Impl::heirs_after(const RoundRecord& previous) const {
  std::vector<SiteId> heirs;
  const SiteSet before = is_direct(previous) ? owners_with_chunks(previous) : SiteSet{};
  for (std::size_t index = 0; index < record.owners.size(); ++index) {
    const SiteId owner = record.owners[index];
    const bool is_same = index < previous.owners.size() && owner == previous.owners[index];
    if (is_same || before.contains(owner)) continue;
    if (std::find(heirs.begin(), heirs.end(), owner) == heirs.end()) heirs.push_back(owner);
  }
  return heirs;
}

// Every site does, so that any of them can open the next round.
void RoundMachine::Impl::learn_rate() {
  std::vector<const Proposal*> members;
  std::uint64_t values = 0;
  record.members.for_each([&](SiteId site) {
    const auto& proposal = sites[site.value].proposal;
    if (!proposal || RoundKey{proposal->epoch, proposal->round} != record.key()) return;
    members.push_back(&*proposal);
    values = proposal->values;
  });
  if (members.empty()) return;
  controller.learn(record.round, {record.step, record.codec, record.plan_kind, record.owners, record.plan}, rate_members(record, members),
                   values, record.chunks);
}

void RoundMachine::Impl::replay_early_frames() {
  std::vector<EarlyFrame> still_early;
  for (EarlyFrame& frame : early) {
    if (frame.key > record.key()) {
      still_early.push_back(frame);
    } else if (frame.key == record.key() && tracker && frame.counted.empty()) {
      tracker->add_contribution(frame.site, frame.chunk);
    } else if (frame.key == record.key() && tracker) {
      tracker->add_update(frame.counted, frame.chunk, frame.digest);
    } else if (pending && frame.key == pending->frames && frame.counted == pending->record.counted) {
      pending->progress.add(frame.chunk, frame.digest);
    }
  }
  early = std::move(still_early);
}

// ---- combining ----

void RoundMachine::Impl::combine_owned() {
  for (const ChunkId chunk : tracker->owned_chunks()) combine(chunk);
}

void RoundMachine::Impl::combine(ChunkId chunk) {
  const SiteSet summed = wanted();
  if (tracker->take_combination(chunk, summed))
    actions.push_back(CombineChunk{record.epoch, record.round, chunk, summed, !is_direct(record)});
}

SiteSet RoundMachine::Impl::wanted() const { return record.phase == Phase::kOpen ? record.members : record.counted; }

// ---- saying what is new ----

// Agents that attach may hold a contribution that was decided while they, or this process, were away. What may still be counted stays.
void RoundMachine::Impl::settle_agents() {
  self().has_agents = agents && !is_catching_up;
  if (!agents || !has_seen_store || !are_agents_new) return;
  are_agents_new = false;
  if (record.is_running() && record.members.contains(config.self)) return;
  if (agents->round < record.committed_round) return;  // the update that they apply next says whom it counts
  actions.push_back(SkipRound{record.epoch, record.round, "contributions made before the agents attached are not counted"});
}

void RoundMachine::Impl::settle_contribution() {
  if (!has_seen_store || !record.is_running() || started == record.key()) return;
  const bool holds_base =
      agents && !is_catching_up && !applying && agents->round == record.committed_round && agents->digest == record.base_digest;
  const bool is_member = record.members.contains(config.self);
  const bool can_contribute = is_member && holds_base && ready && proposed == record.key() && record.phase == Phase::kOpen;
  if (is_member && !can_contribute && self().withdrawn != record.key() && contributing != record.key()) {
    withdraw("what was proposed is no longer here: gateway or agents restarted");
  }
  if (!holds_base) return;
  started = record.key();
  if (can_contribute) {
    contributing = record.key();
    ready.reset();
  }
  actions.push_back(StartContribution{record, can_contribute});
}

void RoundMachine::Impl::settle_status() {
  if (!tracker || !tracker->owns_any()) return;
  const SiteSet complete = tracker->complete_sites();
  const OwnerStatusReceived status{config.self, record.epoch, record.round, record.attempt, complete};
  self().status = status;
  const bool is_news = status_sent ? status_sent->complete != complete || status_sent->attempt < owners_since : !complete.empty();
  if (!is_news) return;
  status_sent = status;
  actions.push_back(SendOwnerStatus{status.epoch, status.round, status.attempt, status.complete});
}

void RoundMachine::Impl::settle_confirm() {
  if (!tracker) return;
  // While the round is open: for the set and attempt of a close without losses. It is as true then, and saves the way of the closed record.
  const SiteSet counted = wanted();
  const std::uint32_t attempt = record.phase == Phase::kOpen ? 1 : record.attempt;
  if (!counted.contains(config.self)) return;
  if (confirm_sent && confirm_sent->attempt == attempt && confirm_sent->counted == counted) return;
  const UpdateProgress* progress = tracker->progress(counted);
  if (progress == nullptr || !progress->is_complete()) return;
  confirm_sent = ConfirmReceived{config.self, record.epoch, record.round, attempt, counted, progress->digest()};
  self().confirm = confirm_sent;
  actions.push_back(SendConfirm{record.epoch, record.round, attempt, counted, confirm_sent->update_digest});
}

// ---- the agents' state against the register ----

void RoundMachine::Impl::settle_state() {
  if (!agents || !has_seen_store || applying || is_catching_up) return;
  if (agents->round > record.committed_round) {
    const std::string problem = fmt::format(
        "the agents hold round {}, the coordination store knows only {}: its journal was lost or replaced. Nothing is committed here until "
        "it "
        "is restored",
        agents->round, record.committed_round);
    if (problem_said != problem) say(problem);
    problem_said = problem;
    return;
  }
  if (agents->round == record.committed_round) {
    pending.reset();
    settle_divergence();
  } else if (pending && pending->record.round == record.committed_round && agents->round.next() == pending->record.round &&
             agents->digest == pending->record.base_digest) {
    settle_pending();
  } else {
    catch_up(fmt::format("the agents hold round {}, the last committed one is {}", agents->round, record.committed_round));
  }
}

// Applies the pending update, or gets what is missing of it.
void RoundMachine::Impl::settle_pending() {
  const RoundRecord& committed = pending->record;
  if (pending->progress.is_complete()) {
    if (pending->progress.digest() == committed.update_digest) {
      if (committed.members.contains(config.self) && !committed.counted.contains(config.self)) {
        say(fmt::format("round {} was committed without this site: its contribution is discarded", committed.round));
      }
      applying = committed.round;
      ready.reset();
      actions.push_back(FinishRound{committed, pending->frames});
      pending.reset();
      return;
    }
    say(fmt::format("the update of round {} that came here is not the one that was committed; getting it again", committed.round));
    forget_frames();
  }
  if (pending->is_fetching) return;
  if (!pending->is_summed_here && !may_be_under_way(committed)) pending->fetch_at = std::min(pending->fetch_at, now);
  if (now < pending->fetch_at) return wake_at(pending->fetch_at);
  const SiteSet others = live().minus(SiteSet{1U << config.self.value});
  std::vector<SiteId> from;
  others.intersect(committed.counted).for_each([&](SiteId site) { from.push_back(site); });
  others.minus(committed.counted).for_each([&](SiteId site) { from.push_back(site); });
  forget_frames();  // the shell does the same: what comes from now on is whole
  pending->is_fetching = true;
  actions.push_back(FetchUpdate{committed, std::move(from)});
}

void RoundMachine::Impl::forget_frames() {
  pending->progress = UpdateProgress(pending->record.counted, pending->record.chunks);
  pending->frames = pending->record.key();
  pending->fetch_at = now;
  pending->is_summed_here = false;
  pending->is_fetching = false;
}

// Same round, other bits: the state of the leader's agents counts, or the one that the running round builds on.
void RoundMachine::Impl::settle_divergence() {
  if (record.is_running()) {
    if (agents->digest != record.base_digest) {
      catch_up(fmt::format("the agents' state of round {} differs from the one that round {} builds on", agents->round, record.round));
    }
    return;
  }
  SiteSet holders;
  config.sites.for_each([&](SiteId site) {
    const bool is_self = site == config.self;
    if (is_self || (sites[site.value].is_up && sites[site.value].state && sites[site.value].state->round == agents->round))
      holders.insert(site);
  });
  std::optional<SiteId> reference;
  if (config.store_site && holders.contains(*config.store_site)) reference = config.store_site;
  holders.for_each([&](SiteId site) {
    if (!reference) reference = site;
  });
  if (*reference == config.self) return;
  if (sites[reference->value].state->digest == agents->digest) return;
  catch_up(fmt::format("the agents' state of round {} differs from that of site {}", agents->round, *reference));
}

void RoundMachine::Impl::catch_up(std::string reason) {
  say(fmt::format("catching up: {}", reason));
  if (reported) withdraw(reason);
  ready.reset();
  is_catching_up = true;
  self().has_agents = false;
  actions.push_back(CatchUpState{record.committed_round, holders_of(record.committed_round), std::move(reason)});
}

void RoundMachine::Impl::withdraw(const std::string& reason) {
  const RoundKey key = record.is_running() ? record.key() : next_key(record);
  self().withdrawn = key;
  self().proposal.reset();
  proposed = RoundKey{};
  reported.reset();
  actions.push_back(SendWithdraw{key.epoch, key.round, reason});
}

void RoundMachine::Impl::settle_report() {
  if (!agents || is_catching_up || applying) return;
  if (reported && reported->round == agents->round && reported->digest == agents->digest) return;
  reported = agents;
  actions.push_back(SendStateReport{agents->round, agents->digest});
}

void RoundMachine::Impl::settle_proposal() {
  if (!ready || !agents || applying || is_catching_up || !has_seen_store || store_lost || record.is_running()) return;
  if (agents->round != record.committed_round || proposed == next_key(record)) return;
  const RoundKey key = next_key(record);
  ready->epoch = key.epoch;
  ready->round = key.round;
  ready->site = config.self;
  proposed = key;
  self().proposal = ready;
  actions.push_back(SendProposal{*ready});
}

// Without the store or a quorum of sites nothing is committed. Not said before the agents are ready: at the start nobody is there yet.
void RoundMachine::Impl::settle_solo() {
  const SiteSet together = company();
  const bool is_alone = store_lost || together.size() < config.quorum;
  const bool has_changed = company_said != together && !store_lost;
  if (is_alone == is_solo && !has_changed) return;
  const std::string who =
      together == live() ? "" : fmt::format(" and train (no training processes at {})", text_of(live().minus(together)));
  if (is_alone) {
    if (company_said.empty() && !ready) return;
    is_solo = true;
    company_said = together;
    say(store_lost
            ? fmt::format("alone: the coordination store cannot be reached ({}); training goes on here, nothing is committed", *store_lost)
            : fmt::format("alone: {} of {} sites can be reached{}, a round needs {}; training goes on here, nothing is committed",
                          together.size(), config.sites.size(), who, config.quorum));
    return;
  }
  if (!has_seen_store) return;
  is_solo = false;
  company_said = together;
  say(fmt::format("together: {} of {} sites can be reached{}, a round needs {}", together.size(), config.sites.size(), who, config.quorum));
}

// ---- peers ----

void RoundMachine::Impl::repeat_to_new_peer(SiteId site) {
  const bool is_running = record.is_running();
  if (self().withdrawn == (is_running ? record.key() : next_key(record))) {
    actions.push_back(SendWithdraw{self().withdrawn.epoch, self().withdrawn.round, "said again to a site that came back"});
  }
  if (reported) actions.push_back(SendStateReport{reported->round, reported->digest});
  if (!is_running && self().proposal && proposed == next_key(record)) actions.push_back(SendProposal{*self().proposal});
  if (!tracker) return;
  if (tracker->owns_any()) {
    actions.push_back(SendOwnerStatus{record.epoch, record.round, record.attempt, tracker->complete_sites()});
  }
  if (confirm_sent) {
    actions.push_back(SendConfirm{record.epoch, record.round, confirm_sent->attempt, confirm_sent->counted, confirm_sent->update_digest});
  }
  if (contributing == record.key() && wanted().contains(config.self) && owners_with_chunks(record).contains(site)) {
    actions.push_back(SendContributions{record, {site}});
  }
}

SiteSet RoundMachine::Impl::live() const {
  SiteSet up;
  config.sites.for_each([&](SiteId site) {
    if (sites[site.value].is_up) up.insert(site);
  });
  return up;
}

SiteSet RoundMachine::Impl::company() {
  SiteSet result;
  live().for_each([&](SiteId site) {
    const auto& lost_at = sites[site.value].agents_lost_at;
    if (site != config.self && lost_at && now >= *lost_at + config.open_grace) return;
    if (site != config.self && lost_at) wake_at(*lost_at + config.open_grace);
    result.insert(site);
  });
  return result;
}

void RoundMachine::Impl::set_has_agents(Site& site, bool has_agents) {
  if (has_agents) site.agents_lost_at.reset();
  if (site.has_agents && !has_agents) site.agents_lost_at = now;
  site.has_agents = has_agents;
}

std::vector<SiteId> RoundMachine::Impl::holders_of(RoundId round) const {
  std::vector<SiteId> holders;
  const auto holds = [&](SiteId site) {
    const Site& known = sites[site.value];
    const bool has_wanted_state = !record.is_running() || (known.state && known.state->digest == record.base_digest);
    return site != config.self && known.is_up && known.state && known.state->round >= round && has_wanted_state;
  };
  if (config.store_site && holds(*config.store_site)) holders.push_back(*config.store_site);
  config.sites.for_each([&](SiteId site) {
    if (holds(site) && site != config.store_site) holders.push_back(site);
  });
  return holders;
}

}  // namespace sluice::sync
