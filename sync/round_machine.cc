#include "sync/round_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "sync/internal/round_impl.h"
#include "sync/internal/site_text.h"

namespace sluice::sync {
namespace {

// Frame events kept for rounds whose record has not come yet. A record is at most one network delay late; 2^18 frames are 64 Gi values.
constexpr std::size_t kEarlyFramesMax = std::size_t{1} << 18;

}  // namespace

RoundMachine::RoundMachine(RoundConfig config, RoundRecord recovered)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(recovered))) {}
RoundMachine::RoundMachine(RoundMachine&&) noexcept = default;
RoundMachine& RoundMachine::operator=(RoundMachine&&) noexcept = default;
RoundMachine::~RoundMachine() = default;

void RoundMachine::on(const Event& event, TimePoint now) { impl_->on(event, now); }
std::vector<Action> RoundMachine::take_actions() { return std::exchange(impl_->actions, {}); }
std::optional<TimePoint> RoundMachine::next_deadline() const { return impl_->timer; }
const RoundRecord& RoundMachine::record() const { return impl_->record; }
std::string RoundMachine::describe() const { return impl_->describe(); }

RoundMachine::Impl::Impl(RoundConfig config_in, RoundRecord recovered)
    : config(std::move(config_in)), controller(config.rate), record(std::move(recovered)) {
  SLUICE_ASSERT(config.sites.contains(config.self), "site {} is not configured", config.self);
  SLUICE_ASSERT(config.quorum >= 1 && config.quorum <= config.sites.size(), "quorum {} of {} sites", config.quorum, config.sites.size());
  SLUICE_ASSERT(!record.is_running(), "a journal keeps decided rounds only");
  self().is_up = true;
}

void RoundMachine::Impl::on(const Event& event, TimePoint time) {
  SLUICE_ASSERT(time >= now, "time goes back");
  now = time;
  std::visit([this](const auto& known) { handle(known); }, event);
  settle();
}

void RoundMachine::Impl::settle() {
  timer.reset();
  settle_agents();
  settle_contribution();
  settle_status();
  settle_confirm();
  settle_state();
  settle_report();
  settle_proposal();
  settle_solo();
  lead();
}

void RoundMachine::Impl::handle(const LocalReady& event) {
  if (!agents || applying || is_catching_up || event.proposal.base_digest != agents->digest) return;  // made from a state now gone
  ready = event.proposal;
  if (!record.is_running()) proposed = RoundKey{};
}

void RoundMachine::Impl::handle(const LocalGone& event) {
  if (agents || reported) withdraw(event.reason);
  agents.reset();
  ready.reset();
  applying.reset();
  is_catching_up = false;
  are_agents_new = true;
  if (started == record.key()) started = RoundKey{};
}

void RoundMachine::Impl::handle(const LocalState& event) {
  if (!agents || agents->round != event.round || agents->digest != event.digest) ready.reset();
  agents = AgentState{event.round, event.digest};
  applying.reset();
  is_catching_up = false;
}

void RoundMachine::Impl::handle(const PeerUp& event) {
  if (!is_peer(event.site)) return;
  sites[event.site.value].is_up = true;
  sites[event.site.value].up_since = now;
  repeat_to_new_peer(event.site);
}

void RoundMachine::Impl::handle(const PeerDown& event) {
  if (!is_peer(event.site)) return;
  // What a site that may have restarted holds, it says again. Confirmations stay true: the site did hold the update.
  Site& site = sites[event.site.value];
  site.is_up = false;
  set_has_agents(site, false);
  site.proposal.reset();
  site.status.reset();
  site.state.reset();
}

void RoundMachine::Impl::handle(const ProposalReceived& event) {
  if (!is_peer(event.proposal.site)) return;
  Site& site = sites[event.proposal.site.value];
  set_has_agents(site, true);
  site.proposal = event.proposal;
  if (site.withdrawn == RoundKey{event.proposal.epoch, event.proposal.round}) site.withdrawn = RoundKey{};
}

void RoundMachine::Impl::handle(const WithdrawReceived& event) {
  if (!is_peer(event.site)) return;
  Site& site = sites[event.site.value];
  set_has_agents(site, false);
  site.proposal.reset();
  site.state.reset();
  site.withdrawn = RoundKey{event.epoch, event.round};
}

void RoundMachine::Impl::handle(const StateReportReceived& event) {
  if (!is_peer(event.from)) return;
  Site& site = sites[event.from.value];
  set_has_agents(site, true);
  site.state = event;
}

void RoundMachine::Impl::handle(const RecordSeen& event) {
  const RoundRecord& next = event.record;
  cas_version.reset();
  if (const auto problem = record_problem(next)) {
    if (problem_said != *problem) say(fmt::format("the coordination store sent a record that cannot be: {}; ignored", *problem));
    problem_said = *problem;
    return;
  }
  if (next.is_older_than(record)) {
    if (has_seen_store) return;  // overtaken on the way
    const std::string problem = fmt::format(
        "the coordination store is at round {} of epoch {}, older than the round {} of epoch {} that this site knows: its journal was lost "
        "or "
        "replaced. Nothing is committed until it is restored",
        next.round, next.epoch, record.round, record.epoch);
    if (problem_said != problem) say(problem);
    problem_said = problem;
    return;
  }
  if (has_seen_store && next.epoch == record.epoch && next.version == record.version) return;
  adopt(next);
}

void RoundMachine::Impl::handle(const StoreLost& event) {
  store_lost = event.reason;
  cas_version.reset();
}

void RoundMachine::Impl::handle(const StoreFound&) {
  store_lost.reset();
  if (!record.is_running()) proposed = RoundKey{};
}

void RoundMachine::Impl::handle(const ContributionStored& event) {
  const RoundKey key{event.epoch, event.round};
  if (!is_current(key)) return keep_early({key, event.chunk, SiteSet{}, event.site, Digest{}});
  if (tracker->add_contribution(event.site, event.chunk)) combine(event.chunk);
}

void RoundMachine::Impl::handle(const UpdateStored& event) {
  const RoundKey key{event.epoch, event.round};
  if (pending && key == pending->frames) {
    if (event.counted == pending->record.counted) pending->progress.add(event.chunk, event.frame_digest);
  } else if (is_current(key)) {
    tracker->add_update(event.counted, event.chunk, event.frame_digest);
  } else if (!event.counted.empty()) {
    keep_early({key, event.chunk, event.counted, SiteId{}, event.frame_digest});
  }
}

void RoundMachine::Impl::keep_early(const EarlyFrame& frame) {
  if (frame.key > record.key() && early.size() < kEarlyFramesMax) early.push_back(frame);
}

void RoundMachine::Impl::handle(const OwnerStatusReceived& event) {
  if (!is_peer(event.from)) return;
  sites[event.from.value].status = event;
}

void RoundMachine::Impl::handle(const ConfirmReceived& event) {
  if (!is_peer(event.from)) return;
  sites[event.from.value].confirm = event;
}

void RoundMachine::Impl::handle(const UpdateLost& event) {
  if (!pending || !pending->is_fetching || pending->record.round != event.round) return;
  pending.reset();
  catch_up(fmt::format("the update of round {} cannot be had: {}", event.round, event.reason));
}

std::string RoundMachine::Impl::describe() const {
  if (store_lost) return fmt::format("alone after round {}: no coordination store ({})", record.committed_round, *store_lost);
  const std::string head = fmt::format("round {} of epoch {}", record.round, record.epoch);
  switch (record.phase) {
    case Phase::kOpen: {
      SiteSet ready_owners;
      owners_with_chunks(record).for_each([&](SiteId site) {
        const auto& status = sites[site.value].status;
        if (status && status->epoch == record.epoch && status->round == record.round && status->complete.contains_all(record.members)) {
          ready_owners.insert(site);
        }
      });
      return fmt::format("{} open: members {}, waiting for frames at {}", head, text_of(record.members),
                         text_of(owners_with_chunks(record).minus(ready_owners)));
    }
    case Phase::kClosed: {
      SiteSet confirmed;
      record.counted.for_each([&](SiteId site) {
        const auto& confirm = sites[site.value].confirm;
        if (confirm && RoundKey{confirm->epoch, confirm->round} == record.key() && confirm->attempt == record.attempt)
          confirmed.insert(site);
      });
      return fmt::format("{} closed (attempt {}): counts {}, waiting for confirmations of {}", head, record.attempt,
                         text_of(record.counted), text_of(record.counted.minus(confirmed)));
    }
    case Phase::kIdle:
    case Phase::kCommitted:
    case Phase::kAborted:
      break;
  }
  SiteSet proposed_by;
  config.sites.for_each([&](SiteId site) {
    if (sites[site.value].proposal && is_valid(*sites[site.value].proposal)) proposed_by.insert(site);
  });
  const char* phase = record.phase == Phase::kIdle ? "nothing committed yet" : record.phase == Phase::kAborted ? "aborted" : "committed";
  return fmt::format("{} {}: proposed by {}, live {}", head, phase, text_of(proposed_by), text_of(live()));
}

}  // namespace sluice::sync
