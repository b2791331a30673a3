#include "sync/internal/round_opening.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/assert.h"
#include "compression/sketch.h"

namespace sluice::sync {
namespace {

// The value that most proposals share; on a tie the one of the lowest site.
template <typename Value, typename Get>
Value most_common(const std::vector<const Proposal*>& proposals, Get get) {
  Value best{};
  std::ptrdiff_t best_count = 0;
  for (const Proposal* candidate : proposals) {
    const auto count =
        std::count_if(proposals.begin(), proposals.end(), [&](const Proposal* other) { return get(*other) == get(*candidate); });
    if (count > best_count) {
      best = get(*candidate);
      best_count = count;
    }
  }
  return best;
}

// Sketched values times this are what will be coded: the weight of the round over the weight that the sketch was made with.
double weight_scale(const RoundRecord& record, const Proposal& proposal) {
  const double scale = static_cast<double>(weight_of(record, proposal.site)) / proposal.sketch_weight;
  return std::isfinite(scale) && scale > 0.0 ? scale : 1.0;
}

}  // namespace

Membership choose_members(const std::vector<const Proposal*>& proposals, const std::optional<Digest>& reference) {
  using Model = std::pair<std::uint64_t, std::uint32_t>;
  const auto digest_of = [](const Proposal& proposal) { return proposal.base_digest; };
  const auto model_of = [](const Proposal& proposal) { return Model(proposal.manifest_hash, proposal.chunks); };
  const Digest digest = reference ? *reference : most_common<Digest>(proposals, digest_of);
  Membership result;
  std::vector<const Proposal*> same_state;
  for (const Proposal* proposal : proposals) {
    if (proposal->base_digest == digest) {
      same_state.push_back(proposal);
    } else {
      result.other_state.push_back(proposal->site);
    }
  }
  const Model model = most_common<Model>(same_state, model_of);
  for (const Proposal* proposal : same_state) {
    if (model_of(*proposal) == model) {
      result.members.push_back(proposal);
    } else {
      result.other_model.push_back(proposal->site);
    }
  }
  return result;
}

std::vector<RateMember> rate_members(const RoundRecord& record, const std::vector<const Proposal*>& members) {
  std::vector<RateMember> result;
  for (const Proposal* proposal : members) {
    result.push_back({proposal->site, proposal->sketch, weight_scale(record, *proposal), proposal->report});
  }
  return result;
}

RoundRecord open_record(const RatioController& controller, const RoundRecord& current, const std::vector<const Proposal*>& members,
                        bool may_be_direct) {
  SLUICE_ASSERT(!members.empty());
  const RoundKey key = next_key(current);
  RoundRecord record;
  record.version = current.version + 1;
  record.epoch = key.epoch;
  record.round = key.round;
  record.phase = Phase::kOpen;
  record.committed_round = current.committed_round;
  record.base_digest = members.front()->base_digest;
  record.manifest_hash = members.front()->manifest_hash;
  record.chunks = members.front()->chunks;
  for (const Proposal* proposal : members) {
    record.members.insert(proposal->site);
    record.weights.push_back({proposal->site, proposal->tokens});
  }
  RateDecision decision = controller.decide(record.round, rate_members(record, members), members.front()->values, record.chunks,
                                            may_be_direct);
  record.step = decision.step;
  record.codec = decision.codec;
  record.plan_kind = decision.plan_kind;
  record.owners = std::move(decision.owners);
  record.plan = std::move(decision.plan);
  record.reason = record.plan.text;
  return record;
}

}  // namespace sluice::sync
