#include "gateway/round_history.h"

#include <utility>

#include "gateway/wire_convert.h"

namespace sluice::gateway {
namespace {

// State reports of this many rounds are kept for comparison; a site that is further behind is compared when it opens a round again.
constexpr std::size_t kStateReportsMax = 64;

double seconds_between(TimePoint from, TimePoint to) { return std::chrono::duration<double>(to - from).count(); }

}  // namespace

void RoundHistory::ready(TimePoint now) {
  running_ = Running{};
  running_.ready = now;
}

void RoundHistory::opened(const sync::RoundRecord&, TimePoint now) {
  running_.opened = now;
  running_.contributed.reset();
  running_.complete.reset();
  running_.frame_bytes = 0;
}

void RoundHistory::contributed(std::uint64_t frame_bytes, TimePoint now) {
  running_.contributed = now;
  running_.frame_bytes += frame_bytes;
}

void RoundHistory::update_complete(TimePoint now) { running_.complete = now; }

PhaseSeconds RoundHistory::phases(const Running& running, TimePoint now) {
  const TimePoint opened = running.opened.value_or(now);
  const TimePoint ready = running.ready.value_or(opened);
  const TimePoint contributed = std::max(running.contributed.value_or(opened), opened);
  const TimePoint complete = std::max(running.complete.value_or(now), contributed);
  return {seconds_between(ready, opened), seconds_between(opened, contributed), seconds_between(contributed, complete),
          seconds_between(complete, now)};
}

std::shared_ptr<const RoundStatus> RoundHistory::finished(const sync::RoundRecord& record, RoundOutcome outcome, std::uint64_t parameters,
                                                          std::uint64_t inner_steps, std::optional<double> loss, TimePoint now,
                                                          WallTime at) {
  auto status = std::make_shared<RoundStatus>();
  status->round = record.round.value;
  status->outcome = outcome;
  status->sites = names(record.counted);
  status->members = names(record.members);
  status->step = static_cast<double>(record.step);
  status->update_digest = outcome == RoundOutcome::kAborted ? "" : digest_hex(record.update_digest);
  status->reason = record.reason;
  status->rate_reason = sync::rate_reason_name(record.plan.reason);
  status->rate_text = record.plan.text;
  status->plan = topology::plan_kind_name(sync::way_of(record));
  status->target_bits = record.plan.target_bits;
  status->budget_seconds = record.plan.budget_seconds;
  status->predicted_seconds = record.plan.predicted_seconds;
  status->loss = loss;
  status->finished_at = at;
  if (outcome != RoundOutcome::kReplayed) {
    status->phase_seconds = phases(running_, now);
    status->seconds =
        status->phase_seconds.open + status->phase_seconds.contribute + status->phase_seconds.combine + status->phase_seconds.commit;
    if (parameters > 0) status->bits_per_value = 8.0 * static_cast<double>(running_.frame_bytes) / static_cast<double>(parameters);
  }
  if (outcome == RoundOutcome::kCommitted) {
    // A ring all-reduce of K sites sends 2 (K-1)/K times the buffer from each site, at every step.
    const double sites = static_cast<double>(site_names_.size());
    status->raw_bytes =
        static_cast<std::uint64_t>(2.0 * (sites - 1.0) / sites * 4.0 * static_cast<double>(parameters) * static_cast<double>(inner_steps));
    raw_bytes_ += status->raw_bytes;
  }
  status->sent_bytes = sent_bytes_ - sent_bytes_before_;
  status->received_bytes = received_bytes_ - received_bytes_before_;
  sent_bytes_before_ = sent_bytes_;
  received_bytes_before_ = received_bytes_;
  running_ = Running{};
  rounds_.push_back(status);
  if (rounds_.size() > kRoundHistoryMax) rounds_.pop_front();
  return status;
}

void RoundHistory::set_wan_totals(std::uint64_t sent_bytes, std::uint64_t received_bytes) {
  sent_bytes_ = sent_bytes;
  received_bytes_ = received_bytes;
}

std::vector<std::string> RoundHistory::report_state(RoundId round, SiteId site, SiteId self, const Digest& digest) {
  newest_states_[site] = std::max(newest_states_[site], round);
  if (site == self) {
    for (auto entry = rounds_.rbegin(); entry != rounds_.rend(); ++entry) {
      if ((*entry)->round != round.value || (*entry)->outcome == RoundOutcome::kAborted) continue;
      auto completed = std::make_shared<RoundStatus>(**entry);
      completed->state_digest = digest_hex(digest);
      *entry = std::move(completed);
      break;
    }
  }
  // Nobody compares a round that is older than all that are kept.
  if (states_.size() >= kStateReportsMax && round < states_.begin()->first) return {};
  std::map<SiteId, Digest>& reports = states_[round];
  reports[site] = digest;
  std::vector<std::string> different;
  for (const auto& [other, other_digest] : reports) {
    if (!(other_digest == digest)) different.push_back(site_names_[other.value]);
  }
  if (states_.size() > kStateReportsMax) states_.erase(states_.begin());  // `reports` may go with it
  return different;
}

RoundId RoundHistory::newest_state(SiteId site) const {
  const auto found = newest_states_.find(site);
  return found == newest_states_.end() ? RoundId() : found->second;
}

void RoundHistory::announce(std::string text, bool is_solo, WallTime at) {
  announcements_.push_back({at, is_solo, std::move(text)});
  if (announcements_.size() > kAnnouncementHistoryMax) announcements_.pop_front();
}

std::vector<std::string> RoundHistory::names(SiteSet sites) const {
  std::vector<std::string> result;
  sites.for_each([&](SiteId site) {
    if (site.value < site_names_.size()) result.push_back(site_names_[site.value]);
  });
  return result;
}

}  // namespace sluice::gateway
