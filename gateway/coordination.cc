#include "gateway/coordination.h"

#include <utility>

#include "base/log.h"
#include "gateway/wire_convert.h"

namespace sluice::gateway {
namespace {

constexpr std::chrono::seconds kJournalRetryDelay{1};

}  // namespace

Coordination::Coordination(SiteId self, SiteId store_site, std::uint16_t sites, const sync::RoundRecord& recovered, CoordinationHooks hooks)
    : self_(self), store_site_(store_site), sites_(sites), hooks_(std::move(hooks)) {
  if (self_ == store_site_) store_.emplace(recovered);
}

Status Coordination::start() {
  if (!store_) return {};
  // The new epoch is durable before anybody hears of it: a second crash must not hand out the same number again.
  SLUICE_CHECK_OK(hooks_.journal(store_->current()));
  hooks_.on_store_found();
  hooks_.on_record(store_->current());
  return {};
}

sync::RegisterStore::Outcome Coordination::decide(std::uint64_t expected_version, const sync::RoundRecord& next) {
  if (expected_version != store_->current().version) {
    return {false, fmt::format("the register is at version {}, not {}", store_->current().version, expected_version)};
  }
  if (const auto problem = sync::transition_problem(store_->current(), next)) return {false, *problem};
  if (next.phase == sync::Phase::kCommitted || next.phase == sync::Phase::kAborted) {
    sync::RoundRecord stored = next;
    stored.version = expected_version + 1;
    if (const Status written = hooks_.journal(stored); !written) {
      retry_at_ = Clock::now() + kJournalRetryDelay;
      set_trouble(written.error().to_string());
      return {false, written.error().to_string()};
    }
    set_trouble({});
  }
  return store_->compare_and_set(expected_version, next);
}

void Coordination::set_trouble(const std::string& why) {
  if (why == trouble_) return;
  trouble_ = why;
  if (why.empty()) {
    log_info("store", "the journal can be written again");
  } else {
    log_error("store", "no round is decided while the journal cannot be written: {}", why);
  }
  if (hooks_.on_trouble) hooks_.on_trouble(why);
}

void Coordination::on_time(TimePoint now) {
  if (!retry_at_ || now < *retry_at_) return;
  retry_at_.reset();
  announce_register();
}

void Coordination::announce_register() {
  wire::PeerMessage event;
  write_record(store_->current(), *event.mutable_store_event()->mutable_current());
  hooks_.broadcast(event);
  hooks_.on_record(store_->current());
}

void Coordination::compare_and_set(std::uint64_t expected_version, const sync::RoundRecord& next) {
  if (store_) {
    const auto outcome = decide(expected_version, next);
    if (outcome.accepted) {
      announce_register();
    } else if (!retry_at_) {
      log_debug("store", "own change refused: {}", outcome.problem);
      hooks_.on_record(store_->current());
    }
    return;
  }
  wire::PeerMessage message;
  wire::StoreCas* request = message.mutable_store_cas();
  request->set_request_id(next_request_id_++);
  request->set_expected_version(expected_version);
  write_record(next, *request->mutable_record());
  hooks_.send(store_site_, message);
}

void Coordination::on_peer_up(SiteId peer) {
  if (!store_) return;  // the store's first StoreEvent says that it is there
  wire::PeerMessage event;
  write_record(store_->current(), *event.mutable_store_event()->mutable_current());
  hooks_.send(peer, event);
}

void Coordination::on_peer_down(SiteId peer, const std::string& reason) {
  if (!store_ && peer == store_site_) hooks_.on_store_lost(reason);
}

Status Coordination::on_message(SiteId from, const wire::PeerMessage& message) {
  const bool is_request = message.kind_case() == wire::PeerMessage::kStoreCas;
  if (is_request ? !store_.has_value() : from != store_site_) {
    return fail(ErrorCode::kPeerNotEntitled, "coordinate rounds",
                is_request ? "this site does not hold the store" : fmt::format("site {} speaks for the store and does not hold it", from));
  }
  if (is_request) {
    SLUICE_TRY(const auto next, read_record(message.store_cas().record(), sites_));
    const auto outcome = decide(message.store_cas().expected_version(), next);
    if (!outcome.accepted && retry_at_) return {};  // an answer would be asked again at once
    wire::PeerMessage reply;
    reply.mutable_store_reply()->set_request_id(message.store_cas().request_id());
    reply.mutable_store_reply()->set_accepted(outcome.accepted);
    write_record(store_->current(), *reply.mutable_store_reply()->mutable_current());
    hooks_.send(from, reply);
    if (outcome.accepted) announce_register();
    return {};
  }
  const bool is_event = message.kind_case() == wire::PeerMessage::kStoreEvent;
  SLUICE_TRY(const auto current, read_record(is_event ? message.store_event().current() : message.store_reply().current(), sites_));
  hooks_.on_store_found();
  hooks_.on_record(current);
  return {};
}

}  // namespace sluice::gateway
