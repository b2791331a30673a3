#pragma once

// The outer optimiser: what every site does to its global parameters with the combined update of a round. fp32, one value after the
// other, no fused multiply-add (the build forbids it), so that all sites hold the same bits. Pure functions over spans, chunk by chunk;
// any thread, one call at a time per span.
//
// The update is the weighted sum of the sites' deltas, and a delta is global minus local parameters: a gradient. With d = scale * update:
//     kAverage    p = p - lr * d
//     kNesterov   m = momentum * m + d;  p = p - lr * (d + momentum * m)      (torch.optim.SGD(nesterov=True), momentum starting at 0)

#include <cstdint>
#include <span>

#include "base/hash.h"

namespace sluice::sync {

enum class OuterRule : std::uint8_t { kAverage = 0, kNesterov = 1 };

struct OuterConfig {
  OuterRule rule = OuterRule::kNesterov;
  float learning_rate = 0.7F;
  float momentum = 0.9F;  // kNesterov only

  bool operator==(const OuterConfig&) const = default;
};

// Whether the rule keeps a momentum value per parameter.
constexpr bool has_momentum(OuterRule rule) { return rule == OuterRule::kNesterov; }

// REQUIRES: update and parameters have one size; momentum too when the rule has momentum, otherwise it is not touched.
void apply_outer_step(const OuterConfig& config, float scale, std::span<const float> update, std::span<float> parameters,
                      std::span<float> momentum);

// kAverage into another place: on entry `next` holds the update, on return what apply_outer_step would have made of `parameters`, bit for
// bit. REQUIRES: one size.
void prepare_average(const OuterConfig& config, float scale, std::span<const float> parameters, std::span<float> next);

// Digest of one chunk's state: XXH3-128 over the XXH3-128 of the parameters and that of the momentum. A momentum whose bytes are all zero
// counts as empty: the state of a run that has not begun is the same under every rule.
Digest state_digest(std::span<const float> parameters, std::span<const float> momentum);
// Digest of several chunks: XXH3-128 over their digests in order (low word first, little-endian).
Digest combine_digests(std::span<const Digest> digests);

}  // namespace sluice::sync
