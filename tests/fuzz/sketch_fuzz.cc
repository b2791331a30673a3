// Any bytes as a sketch: what parses predicts finite bits at every step, gives a valid step, and comes back from its own bytes.
#include <cmath>
#include <cstdlib>
#include <vector>

#include "compression/internal/frame_hash.h"
#include "compression/sketch.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice::compression;
  const auto sketch = Sketch::parse(sluice::ByteSpan(data, size));
  if (!sketch) return 0;
  const auto again = Sketch::parse(sketch->to_bytes());
  if (!again || !(*again == *sketch)) std::abort();
  const std::uint64_t hash = frame_hash(sluice::ByteSpan(data, size));
  constexpr float kSteps[] = {kGridStepMin, 1e-4F, 1.0F, kGridStepMax};
  const double bits = predict_bits(*sketch, kSteps[hash % 4]);
  if (!std::isfinite(bits) || bits < 0.0) std::abort();
  // The rest takes a hundred times as long.
  if (hash / 4 % 64 != 0) return 0;
  for (const float step : kSteps) {
    const double again_bits = predict_bits(*sketch, step);
    if (!std::isfinite(again_bits) || again_bits < 0.0) std::abort();
  }
  const std::vector<SiteSketch> sites{{&*sketch, 1.0}, {&*sketch, 0.25}};
  const float step = choose_step(sites, 3.0);
  if (!(step >= kGridStepMin && step <= kGridStepMax)) std::abort();
  if (!std::isfinite(predict_sum_bits(sites, step))) std::abort();
  return 0;
}
