// Any floats through error feedback, coding and decoding: either refused as not finite, or what is decoded plus what is kept is
// what went in, bit for bit, on every instruction set and with the same bytes.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "compression/frame_decoder.h"
#include "compression/grid_codec.h"
#include "compression/internal/frame_hash.h"
#include "compression/internal/grid_kernels.h"
#include "compression/internal/grid_value.h"

namespace sluice::compression {
namespace {

bool is_any_non_finite(const std::vector<float>& delta, float weight) {
  for (const float value : delta) {
    if (is_non_finite(add(multiply(weight, value), 0.0F))) return true;
  }
  return is_non_finite(weight);
}

// Encoders keep their memory from input to input, as in use.
std::vector<FrameEncoder> make_encoders() {
  std::vector<FrameEncoder> encoders;
  for (const GridKernels* kernels : available_kernels()) encoders.emplace_back(*kernels);
  return encoders;
}

void round_trip(const std::vector<float>& delta, float weight, float step) {
  static std::vector<FrameEncoder> encoders = make_encoders();
  ByteVector first;
  for (FrameEncoder& encoder : encoders) {
    std::vector<float> residual(delta.size());
    const auto frame = encoder.encode_grid(delta, weight, residual, step, ChunkId(1));
    if (frame.has_value() == is_any_non_finite(delta, weight)) std::abort();
    if (!frame) return;
    if (first.empty()) first.assign(frame->bytes.begin(), frame->bytes.end());
    if (first != ByteVector(frame->bytes.begin(), frame->bytes.end())) std::abort();
    const auto view = parse_frame(frame->bytes);
    if (!view) std::abort();
    std::vector<std::int32_t> integers(delta.size());
    if (!decode_frame_integers(*view, integers)) std::abort();
    for (std::size_t i = 0; i < delta.size(); ++i) {
      const Quantised expected = quantise_value(add(multiply(weight, delta[i]), 0.0F), step, 1.0F / step);
      if (expected.integer != integers[i] || float_bits(expected.residual) != float_bits(residual[i])) std::abort();
    }
  }
}

}  // namespace
}  // namespace sluice::compression

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice::compression;
  if (size < 12) return 0;
  const float weight = sluice::load_le<float>(data);
  float step = sluice::load_le<float>(data + 4);
  if (!(step >= kGridStepMin && step <= kGridStepMax)) step = 0.01F;
  // The values are repeated, so that short inputs also reach the path of long chunks: one in 1024, chosen by the hash, because time goes
  // with the number of values.
  const std::size_t most = frame_hash(sluice::ByteSpan(data, size)) % 1024 == 0 ? 20000 : 200;
  const std::size_t repeats = 1 + (data[8] & 127U);
  const std::size_t given = std::min<std::size_t>((size - 12) / 4, most);
  std::vector<float> delta;
  for (std::size_t repeat = 0; repeat < repeats && delta.size() + given <= most; ++repeat) {
    const std::size_t at = delta.size();
    delta.resize(at + given);
    if (given != 0) std::memcpy(delta.data() + at, data + 12, 4 * given);
  }
  round_trip(delta, weight, step);
  return 0;
}
