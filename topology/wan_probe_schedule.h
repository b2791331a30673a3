#pragma once

// WanProbeSchedule: when a site measures one of its links by itself, and which. What real transfers tell comes first: nothing is probed
// before kRoundsBeforeProbe rounds. After that a link is probed that is still not known or out of date; and, as far as that is cheap
// beside what the link carries, one whose last transfers contradict the estimate, or which sets the bits: rounds that fit a low estimate
// are slow to show that the link has become faster.
// Pure: time is passed in, and must not go back; not thread-safe: owned by the gateway loop.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"

namespace sluice::topology {

inline constexpr std::uint64_t kRoundsBeforeProbe = 3;

enum class ProbeReason : std::uint8_t {
  kUnmeasured = 0,  // not known, or out of date
  kDoubtful = 1,    // known, but contradicted, or it sets the bits of the rounds
};
// "not known", "sets the bits or is contradicted".
const char* probe_reason_text(ProbeReason reason);

struct ProbeCandidate {
  SiteId peer;
  bool is_unmeasured = false;
  bool is_doubtful = false;
  std::uint64_t sent_bytes = 0;   // over the link since the process began
  std::uint64_t probe_bytes = 0;  // what a probe would send, as far as can be said
};

struct ProbeChoice {
  SiteId peer;
  ProbeReason reason = ProbeReason::kUnmeasured;
};

enum class ProbeEnd : std::uint8_t { kComplete, kInterrupted, kRefused };

class WanProbeSchedule {
 public:
  // `self`: sites that refused each other at one moment come back at different ones.
  explicit WanProbeSchedule(SiteId self) : self_(self) {}

  // The link to probe now, when nothing else goes on. `rounds`: that this site took part in since the process began.
  [[nodiscard]] std::optional<ProbeChoice> choose(const std::vector<ProbeCandidate>& candidates, std::uint64_t rounds, TimePoint now) const;
  // A probe has ended, whoever had asked for it. `sent_bytes`: as in ProbeCandidate, now.
  void on_ended(SiteId peer, ProbeEnd end, std::uint64_t sent_bytes, TimePoint now);

 private:
  struct Link {
    TimePoint not_before{};
    Duration pause{};              // the last one between two probes of a link that is not known
    std::uint64_t sent_bytes = 0;  // at the last probe's end
  };

  SiteId self_;
  std::map<SiteId, Link> links_;
};

}  // namespace sluice::topology
