// Updates and state from other sites: what the shell does for FetchUpdate and CatchUpState.

#include <algorithm>
#include <utility>

#include "tests/sim/sim_site.h"
#include "tests/sim/sim_site_inline.h"
#include "tests/sim/sim_world.h"

namespace sluice::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr Duration kAnswerLimit = milliseconds(120);
constexpr Duration kRetry = milliseconds(40);

}  // namespace

// The committed update of this record, when it lies whole in the spool, finished or not.
std::optional<SpoolEntry> SimSite::find_update(const sync::RoundRecord& record) const {
  const auto finished = disk_.spool.find(record.round);
  if (finished != disk_.spool.end()) return finished->second;
  for (const auto& [what, chunks] : disk_.updates) {
    if (what.first.round != record.round || what.second != record.counted.bits || chunks.size() != record.chunks) continue;
    SpoolEntry entry{record, {}};
    for (const auto& [chunk, value] : chunks) entry.sums.push_back(value);
    if (update_digest(entry.sums) == record.update_digest) return entry;
  }
  return std::nullopt;
}

// The parts that lie here are forgotten before anything else comes, as the machine forgets them. The whole stays until it is told anew.
void SimSite::begin_fetch(const sync::FetchUpdate& action) {
  fetch_ = Fetch{action.record, action.from, 0, find_update(action.record)};
  if (!fetch_->own) disk_.updates.erase({action.record.key(), action.record.counted.bits});
  in_gateway(Duration(0), [this] { ask_for_update(); });
}

void SimSite::ask_for_update() {
  if (!fetch_) return;
  if (const auto own = std::exchange(fetch_->own, std::nullopt)) {
    disk_.updates.erase({fetch_->record.key(), fetch_->record.counted.bits});
    return on_fetch_round_reply({true, own->record, own->sums, own->record.round});
  }
  while (fetch_->next < fetch_->from.size()) {
    const SiteId peer = fetch_->from[fetch_->next++];
    if (!world_.network().is_up(id_.value, peer.value)) continue;
    send(peer.value, FetchRoundMessage{fetch_->record.round});
    in_gateway(kAnswerLimit * slowness_, [this, round = fetch_->record.round, asked = fetch_->next] {
      if (fetch_ && fetch_->record.round == round && fetch_->next == asked) ask_for_update();
    });
    return;
  }
  const RoundId round = std::exchange(fetch_, std::nullopt)->record.round;
  feed(sync::UpdateLost{round, "no site that was asked has it"});
}

void SimSite::on_fetch_round(Node from, const FetchRoundMessage& message) {
  auto found = disk_.spool.find(message.round);
  if (found != disk_.spool.end()) return send(from, FetchRoundReply{true, found->second.record, found->second.sums, message.round});
  const sync::RoundRecord& record = machine_->record();
  const bool is_last_commit = record.phase == sync::Phase::kCommitted && record.round == message.round;
  const std::optional<SpoolEntry> entry = is_last_commit ? find_update(record) : std::nullopt;
  send(from, entry ? FetchRoundReply{true, entry->record, entry->sums, message.round} : FetchRoundReply{false, {}, {}, message.round});
}

void SimSite::on_fetch_round_reply(const FetchRoundReply& reply) {
  if (fetch_ && fetch_->record.round == reply.round) {
    if (!reply.available) return ask_for_update();
    const sync::RoundRecord record = std::exchange(fetch_, std::nullopt)->record;
    for (std::uint32_t chunk = 0; chunk < record.chunks; ++chunk) {
      store_update({record.key(), record.counted, ChunkId(chunk), reply.sums[chunk]});
    }
    return;
  }
  if (!catch_up_ || !catch_up_->is_replaying || !is_attached_) return;
  std::vector<SpoolEntry>& updates = catch_up_->updates;
  const RoundId wanted = RoundId(agents_.round.value + updates.size() + 1);
  if (reply.round != wanted) return;
  const bool fits = reply.available && (!updates.empty() || reply.record.base_digest == agents_.digest);
  if (fits) {
    updates.push_back({reply.record, reply.sums});
    if (reply.round < catch_up_->round) return ask_to_catch_up();
  }
  if (updates.empty()) {
    catch_up_->is_replaying = false;
    return ask_to_catch_up();
  }
  const std::vector<SpoolEntry> ready = std::exchange(catch_up_, std::nullopt)->updates;
  in_agents(microseconds(100), [this, ready] { apply(ready); });
}

// Replays when the agents are behind and somebody has the updates, else takes the state. Goes on until it has succeeded.
void SimSite::ask_to_catch_up() {
  if (!catch_up_ || !is_attached_) return;
  const std::uint64_t asked = ++catch_up_turn_;
  std::vector<Node> candidates;
  for (const SiteId site : catch_up_->from) {
    if (world_.network().is_up(id_.value, site.value)) candidates.push_back(site.value);
  }
  for (Node peer = 0; candidates.empty() && peer < world_.site_count(); ++peer) {
    if (peer != id_.value && world_.network().is_up(id_.value, peer) && world_.random().chance(0.5)) candidates.push_back(peer);
  }
  if (!candidates.empty()) {
    const Node peer = candidates[catch_up_->turn % candidates.size()];
    const RoundId next = RoundId(agents_.round.value + catch_up_->updates.size() + 1);
    const auto own = disk_.spool.find(next);
    if (catch_up_->is_replaying && next <= catch_up_->round && own != disk_.spool.end()) {
      in_gateway(Duration(0), [this, entry = own->second] { on_fetch_round_reply({true, entry.record, entry.sums, entry.record.round}); });
    } else if (catch_up_->is_replaying && next <= catch_up_->round) {
      send(peer, FetchRoundMessage{next});
    } else {
      catch_up_->is_replaying = false;
      send(peer, FetchStateMessage{});
    }
  }
  in_gateway(candidates.empty() ? kRetry : kAnswerLimit * slowness_, [this, asked] {
    if (!catch_up_ || catch_up_turn_ != asked) return;
    ++catch_up_->turn;
    catch_up_->is_replaying = !catch_up_->is_replaying;
    catch_up_->updates.clear();
    ask_to_catch_up();
  });
}

void SimSite::on_fetch_state(Node from) {
  const bool can_serve = is_attached_ && has_agents() && agents_.phase != SimAgents::Phase::kApplying && !catch_up_;
  send(from, can_serve ? FetchStateReply{true, agents_.round, agents_.digest} : FetchStateReply{});
}

void SimSite::on_fetch_state_reply(const FetchStateReply& reply) {
  if (!catch_up_ || catch_up_->is_replaying || !reply.available || reply.round < catch_up_->round || !is_attached_) return;
  catch_up_.reset();
  in_agents(microseconds(100), [this, reply] { take_state(reply.round, reply.digest); });
}

}  // namespace sluice::sim
