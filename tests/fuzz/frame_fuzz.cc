// Any bytes as a frame: parsed as they are, and again with magic, version and hash made right, so that the payload decoders are reached
// behind the hash. Checks: no crash, all instruction sets agree on the verdict and the integers, sums accept or refuse cleanly.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "compression/chunk_sum.h"
#include "compression/frame_decoder.h"
#include "compression/internal/dense_coder.h"
#include "compression/internal/frame_hash.h"

namespace sluice::compression {
namespace {

void decode_everywhere(const FrameView& view) {
  const std::size_t count = view.header.value_count;
  std::vector<float> values(count);
  const bool ok = decode_frame(view, values).has_value();
  if (view.header.codec != Codec::kGridDense) return;
  std::vector<std::int32_t> expected(count);
  if (decode_frame_integers(view, expected).has_value() != ok) std::abort();
  for (const GridKernels* kernels : available_kernels()) {
    std::vector<std::int32_t> integers(count);
    GridSink sink;
    sink.integers32 = integers.data();
    if (decode_dense(*kernels, view, sink) != ok) std::abort();
    if (ok && integers != expected) std::abort();
  }
}

void read_bytes(ByteSpan bytes) {
  const auto view = parse_frame(bytes);
  if (!view) return;
  decode_everywhere(*view);
  ChunkSum sum;
  if (!sum.add(*view) || !sum.add(*view)) return;
  ByteVector out;
  if (!sum.encode(out)) return;  // RAW32 sums may overflow
  const auto coded = parse_frame(out);
  if (!coded) std::abort();
  std::vector<float> values(coded->header.value_count);
  if (!decode_frame(*coded, values)) std::abort();
}

}  // namespace
}  // namespace sluice::compression

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice::compression;
  const sluice::ByteSpan bytes(data, size);
  read_bytes(bytes);
  if (size < kFrameHeaderBytes + kFrameTrailerBytes || size > kFrameBytesMax) return 0;
  sluice::ByteVector fixed(bytes.begin(), bytes.end());
  std::memcpy(fixed.data(), "SLF1\x01", 5);
  const std::size_t payload = size - kFrameHeaderBytes - kFrameTrailerBytes;
  sluice::store_le(fixed.data() + 20, static_cast<std::uint32_t>(payload));
  sluice::store_le(fixed.data() + 24, static_cast<std::uint32_t>(8 * payload));
  sluice::store_le(fixed.data() + size - 8, frame_hash(sluice::ByteSpan(fixed).first(size - 8)));
  read_bytes(fixed);
  return 0;
}
