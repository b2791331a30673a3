#pragma once

// From proposals to the record that opens a round: who takes part, with which weights, step and owners. Pure functions.

#include <optional>
#include <string>
#include <vector>

#include "sync/round_machine.h"

namespace sluice::sync {

struct Membership {
  std::vector<const Proposal*> members;  // by site, ascending
  std::vector<SiteId> other_state;       // made their delta from another state than the members
  std::vector<SiteId> other_model;       // same state digest, another manifest
};

// `proposals` by site, ascending, all for the round to be opened. `reference` is the state of the leader's own agents; without it the
// state that most proposals name counts, then the lower site.
Membership choose_members(const std::vector<const Proposal*>& proposals, const std::optional<Digest>& reference);

// What the ratio controller has to know of the members of `record`.
std::vector<RateMember> rate_members(const RoundRecord& record, const std::vector<const Proposal*>& members);

// The record that opens the round after `current`. `may_be_direct`: no other site wants the update. REQUIRES: members not empty.
RoundRecord open_record(const RatioController& controller, const RoundRecord& current, const std::vector<const Proposal*>& members,
                        bool may_be_direct);

}  // namespace sluice::sync
