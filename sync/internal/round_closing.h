#pragma once

// Which sites a round counts, and who combines, when not everything went as planned. Pure functions.

#include <array>
#include <optional>
#include <vector>

#include "sync/round_record.h"

namespace sluice::sync {

// What the leader knows when it closes.
struct CloseView {
  SiteId self;
  std::uint16_t quorum = 1;
  SiteSet live;                               // link up, self included
  SiteSet can_resend;                         // live, and still able to send its kept frames again
  std::array<SiteSet, kSitesMax> complete{};  // by owner: members of whom it holds every chunk that it owns, by the current record
};

struct Closing {
  SiteSet counted;
  std::vector<SiteId> owners;
  topology::PlanKind plan_kind = topology::PlanKind::kSharded;
};

// After this many closes of one round the next failure aborts it.
inline constexpr std::uint32_t kAttemptsMax = 4;

// At the deadline: the members that every live owner has completely. When these are fewer than the quorum (some pairs of sites cannot reach
// one another), the combination by some of the owners that counts most sites; the leader alone at last. Nothing: abort. A direct round
// stays one in the first case; otherwise some sites hold what the others lack, and they become the owners of a sharded one.
std::optional<Closing> close_at_deadline(const RoundRecord& record, const CloseView& view);

// After the commit deadline of a closed record. `confirmed`: sites that hold the whole update and agree; `agreeing`: when confirmations
// differ, those that may still be counted (else record.counted). Nothing: abort. A direct round goes on with owners: not every site could
// sum for itself.
std::optional<Closing> close_again(const RoundRecord& record, const CloseView& view, SiteSet confirmed, SiteSet agreeing);

}  // namespace sluice::sync
