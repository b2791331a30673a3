#pragma once

// The truth, seen from above: what the register held, what was contributed, what was applied. Finds where a run breaks an invariant of
// docs/ARCHITECTURE.md. The first violation is kept; the run stops there.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sync/round_machine.h"

namespace sluice::sim {

// Stand-in for a coded chunk: its digest is that of the value's bytes.
Digest frame_digest(std::int64_t value);
Digest update_digest(const std::vector<std::int64_t>& sums);
// The state after applying an update to the state with digest `base`.
Digest applied(Digest base, const sync::RoundRecord& record, const std::vector<std::int64_t>& sums);

enum class Outcome { kCommitted, kDiscarded, kReturned, kUnknown };  // kUnknown: a whole state was taken over it

class Checker {
 public:
  explicit Checker(std::uint16_t quorum) : quorum_(quorum) {}

  void saw_register(const sync::RoundRecord& before, const sync::RoundRecord& after);
  void saw_store_start(const sync::RoundRecord& record);
  void contributed(SiteId site, const sync::RoundKey& key, const std::vector<std::int64_t>& values);
  void confirmed(SiteId site, const sync::SendConfirm& confirm);
  void applied_update(SiteId site, RoundId before, const sync::RoundRecord& record, const std::vector<std::int64_t>& sums, Digest after);
  void took_state(SiteId site, RoundId round, Digest digest);
  void resolved(SiteId site, const sync::RoundKey& key, Outcome outcome);
  void fail(std::string what);

  [[nodiscard]] const std::optional<std::string>& violation() const { return violation_; }
  [[nodiscard]] RoundId last_committed() const { return last_committed_; }
  [[nodiscard]] std::uint64_t aborts() const { return aborts_; }
  [[nodiscard]] std::uint64_t partial_commits() const { return partial_commits_; }
  [[nodiscard]] std::uint64_t direct_commits() const { return direct_commits_; }
  // At the end: a contribution that was given back, or discarded, must not have been counted by a commit that came after.
  void check_outcomes();

 private:
  void check_commit(const sync::RoundRecord& record);
  void check_outcome(SiteId site, const sync::RoundKey& key, Outcome outcome);

  std::uint16_t quorum_;
  std::optional<std::string> violation_;
  RoundId last_committed_;
  sync::RoundKey last_opened_;
  std::uint64_t aborts_ = 0;
  std::uint64_t partial_commits_ = 0;
  std::uint64_t direct_commits_ = 0;
  std::map<RoundId, sync::RoundRecord> committed_;
  std::map<std::pair<sync::RoundKey, SiteId>, std::vector<std::int64_t>> contributions_;
  std::map<std::pair<sync::RoundKey, SiteId>, Outcome> outcomes_;
  std::map<std::pair<sync::RoundKey, SiteId>, sync::SendConfirm> confirms_;
  std::map<RoundId, Digest> states_;
};

}  // namespace sluice::sim
