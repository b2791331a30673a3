#include "topology/wan_probe_schedule.h"

#include <algorithm>
#include <chrono>

namespace sluice::topology {
namespace {

// Between two probes of a link that stays unknown: doubled each time.
constexpr std::chrono::minutes kPauseMin{1};
constexpr std::chrono::minutes kPauseMax{15};
// After a refusal, and after a round cut the probe short: what it measured so far may do.
constexpr std::chrono::seconds kRefusedPause{2};
constexpr std::chrono::seconds kRefusedPauseOfSite{1};
constexpr std::chrono::seconds kInterruptedPause{20};
// Probes of links that are known cost at most this share of what the link carries.
constexpr std::uint64_t kTrafficOverProbes = 50;

}  // namespace

const char* probe_reason_text(ProbeReason reason) {
  return reason == ProbeReason::kUnmeasured ? "not known" : "sets the bits or is contradicted";
}

std::optional<ProbeChoice> WanProbeSchedule::choose(const std::vector<ProbeCandidate>& candidates, std::uint64_t rounds,
                                                    TimePoint now) const {
  if (rounds < kRoundsBeforeProbe) return std::nullopt;
  std::optional<ProbeChoice> choice;
  for (const ProbeCandidate& candidate : candidates) {
    const auto found = links_.find(candidate.peer);
    const Link link = found == links_.end() ? Link{} : found->second;
    if (now < link.not_before) continue;
    if (candidate.is_unmeasured) return ProbeChoice{candidate.peer, ProbeReason::kUnmeasured};
    const std::uint64_t carried = candidate.sent_bytes - std::min(link.sent_bytes, candidate.sent_bytes);
    const bool is_cheap = candidate.probe_bytes > 0 && carried / kTrafficOverProbes >= candidate.probe_bytes;
    if (!choice && candidate.is_doubtful && is_cheap) choice = ProbeChoice{candidate.peer, ProbeReason::kDoubtful};
  }
  return choice;
}

void WanProbeSchedule::on_ended(SiteId peer, ProbeEnd end, std::uint64_t sent_bytes, TimePoint now) {
  Link& link = links_[peer];
  switch (end) {
    case ProbeEnd::kComplete:
      link.pause = std::clamp<Duration>(2 * link.pause, kPauseMin, kPauseMax);
      link.not_before = now + link.pause;
      link.sent_bytes = sent_bytes;
      return;
    case ProbeEnd::kInterrupted:
      link.not_before = now + kInterruptedPause;
      return;
    case ProbeEnd::kRefused:
      link.not_before = now + kRefusedPause + kRefusedPauseOfSite * self_.value;
      return;
  }
}

}  // namespace sluice::topology
