#pragma once

// RoundHistory: what the gateway remembers of its rounds for people: the last rounds, announcements, which site reported which state, and
// the byte counts from which the reduction is computed. Pure bookkeeping owned by the gateway's loop; times are passed in.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/ids.h"
#include "gateway/status.h"
#include "sync/round_record.h"

namespace sluice::gateway {

class RoundHistory {
 public:
  explicit RoundHistory(std::vector<std::string> site_names) : site_names_(std::move(site_names)) {}

  // ---- the round in progress, phase by phase; calls out of order are harmless ----
  void ready(TimePoint now);  // this site's ranks are all ready
  void opened(const sync::RoundRecord& record, TimePoint now);
  void contributed(std::uint64_t frame_bytes, TimePoint now);  // one own frame handed over
  void update_complete(TimePoint now);
  // Ends the round and returns its line. `parameters` and `inner_steps` give the raw bytes: 2 (K-1)/K x 4 bytes x parameters for each step.
  std::shared_ptr<const RoundStatus> finished(const sync::RoundRecord& record, RoundOutcome outcome, std::uint64_t parameters,
                                              std::uint64_t inner_steps, std::optional<double> loss, TimePoint now, WallTime at);
  // Totals on the WAN so far; the differences between rounds become their bytes.
  void set_wan_totals(std::uint64_t sent_bytes, std::uint64_t received_bytes);

  // A site's state after a round. Returns the names of sites that hold another one: invariant I1 is broken when that is not empty.
  std::vector<std::string> report_state(RoundId round, SiteId site, SiteId self, const Digest& digest);

  // Last round whose state the site has reported; 0 = none.
  [[nodiscard]] RoundId newest_state(SiteId site) const;

  void announce(std::string text, bool is_solo, WallTime at);

  [[nodiscard]] const std::deque<std::shared_ptr<const RoundStatus>>& rounds() const { return rounds_; }
  [[nodiscard]] const std::deque<Announcement>& announcements() const { return announcements_; }
  [[nodiscard]] std::uint64_t raw_bytes() const { return raw_bytes_; }
  [[nodiscard]] std::vector<std::string> names(SiteSet sites) const;

 private:
  struct Running {
    std::optional<TimePoint> ready;
    std::optional<TimePoint> opened;
    std::optional<TimePoint> contributed;
    std::optional<TimePoint> complete;
    std::uint64_t frame_bytes = 0;
  };
  static PhaseSeconds phases(const Running& running, TimePoint now);

  std::vector<std::string> site_names_;
  Running running_;
  std::deque<std::shared_ptr<const RoundStatus>> rounds_;
  std::deque<Announcement> announcements_;
  std::map<RoundId, std::map<SiteId, Digest>> states_;
  std::map<SiteId, RoundId> newest_states_;
  std::uint64_t raw_bytes_ = 0;
  std::uint64_t sent_bytes_ = 0;
  std::uint64_t received_bytes_ = 0;
  std::uint64_t sent_bytes_before_ = 0;
  std::uint64_t received_bytes_before_ = 0;
};

}  // namespace sluice::gateway
