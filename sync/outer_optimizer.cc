#include "sync/outer_optimizer.h"

#include <cstring>

#include "base/assert.h"
#include "base/bytes.h"

namespace sluice::sync {
namespace {

ByteSpan bytes_of(std::span<const float> values) { return {reinterpret_cast<const std::uint8_t*>(values.data()), values.size_bytes()}; }

void apply_average(float learning_rate, float scale, std::span<const float> update, std::span<float> parameters) {
  const std::size_t count = parameters.size();
  const float* from = update.data();
  float* to = parameters.data();
  for (std::size_t index = 0; index < count; ++index) {
    const float d = scale * from[index];
    to[index] = to[index] - learning_rate * d;
  }
}

void apply_nesterov(const OuterConfig& config, float scale, std::span<const float> update, std::span<float> parameters,
                    std::span<float> momentum) {
  const std::size_t count = parameters.size();
  const float* from = update.data();
  float* to = parameters.data();
  float* m = momentum.data();
  for (std::size_t index = 0; index < count; ++index) {
    const float d = scale * from[index];
    const float kept = config.momentum * m[index] + d;
    m[index] = kept;
    to[index] = to[index] - config.learning_rate * (d + config.momentum * kept);
  }
}

}  // namespace

void apply_outer_step(const OuterConfig& config, float scale, std::span<const float> update, std::span<float> parameters,
                      std::span<float> momentum) {
  SLUICE_ASSERT(update.size() == parameters.size(), "{} updates for {} parameters", update.size(), parameters.size());
  if (has_momentum(config.rule)) {
    SLUICE_ASSERT(momentum.size() == parameters.size(), "{} momenta for {} parameters", momentum.size(), parameters.size());
    apply_nesterov(config, scale, update, parameters, momentum);
  } else {
    apply_average(config.learning_rate, scale, update, parameters);
  }
}

void prepare_average(const OuterConfig& config, float scale, std::span<const float> parameters, std::span<float> next) {
  SLUICE_ASSERT(next.size() == parameters.size(), "{} updates for {} parameters", next.size(), parameters.size());
  const std::size_t count = parameters.size();
  const float* from = parameters.data();
  float* to = next.data();
  for (std::size_t index = 0; index < count; ++index) {
    const float d = scale * to[index];
    to[index] = from[index] - config.learning_rate * d;
  }
}

Digest state_digest(std::span<const float> parameters, std::span<const float> momentum) {
  const ByteSpan kept = bytes_of(momentum);
  // All bytes are zero when the first one is and each equals the next: memcmp runs at the speed of memory.
  const bool is_untouched = kept.empty() || (kept[0] == 0 && std::memcmp(kept.data(), kept.data() + 1, kept.size() - 1) == 0);
  const Digest parts[2] = {xxh3_128(bytes_of(parameters)), xxh3_128(is_untouched ? ByteSpan{} : kept)};
  return combine_digests(parts);
}

Digest combine_digests(std::span<const Digest> digests) {
  static_assert(sizeof(Digest) == 16, "two words without padding");
  return xxh3_128({reinterpret_cast<const std::uint8_t*>(digests.data()), digests.size_bytes()});
}

}  // namespace sluice::sync
