#include "compression/frame_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "compression/internal/dense_coder.h"
#include "compression/internal/grid_value.h"
#include "compression/internal/sparse_coder.h"

namespace sluice::compression {
namespace {

constexpr const char* kOperation = "decode frame";

Status bad_payload(const FrameView& frame, std::string_view reason) {
  return fail(ErrorCode::kFrameBadPayload, kOperation,
              fmt::format("chunk {}, {}: {}", frame.header.chunk, codec_name(frame.header.codec), reason));
}

bool decode_plain(const FrameView& frame, const GridSink& sink) {
  const std::int32_t limit = integer_limit_of(frame.header);
  for (std::size_t index = 0; index < frame.header.value_count; ++index) {
    const auto integer = load_le<std::int32_t>(frame.payload.data() + 4 * index);
    if (integer > limit || integer < -limit) return false;
    store_integers(sink, index, std::span<const std::int32_t>(&integer, 1));
  }
  return true;
}

Status decode_grid(const FrameView& frame, const GridSink& sink) {
  bool decoded = false;
  switch (frame.header.codec) {
    case Codec::kGridDense:
      decoded = decode_dense(best_kernels(), frame, sink);
      break;
    case Codec::kGridSparse:
      decoded = decode_sparse(frame, sink);
      break;
    case Codec::kGridPlain:
      decoded = decode_plain(frame, sink);
      break;
    case Codec::kRaw32:
    case Codec::kBf16:
      break;
  }
  if (!decoded) return bad_payload(frame, "payload does not decode to what the header says");
  return {};
}

float fixed_value(const FrameView& frame, std::size_t index) {
  if (frame.header.codec == Codec::kRaw32) return load_le<float>(frame.payload.data() + 4 * index);
  return float_from_bf16(load_le<std::uint16_t>(frame.payload.data() + 2 * index));
}

// RAW32 and BF16: all values are checked before the first is delivered.
template <bool kAdd>
Status decode_fixed(const FrameView& frame, std::span<float> out, float scale) {
  std::uint32_t bad = 0;
  for (std::size_t index = 0; index < out.size(); ++index) bad |= is_non_finite(fixed_value(frame, index)) ? 1U : 0U;
  if (bad != 0) return bad_payload(frame, "a value is not finite");
  for (std::size_t index = 0; index < out.size(); ++index) {
    const float value = multiply(scale, fixed_value(frame, index));
    out[index] = kAdd ? add(out[index], value) : value;
  }
  return {};
}

void check_size(const FrameView& frame, std::size_t size) {
  SLUICE_ASSERT(size == frame.header.value_count, "{} places for {} values", size, frame.header.value_count);
}

}  // namespace

Status decode_frame(const FrameView& frame, std::span<float> out, float scale) {
  check_size(frame, out.size());
  if (!is_grid(frame.header.codec)) return decode_fixed<false>(frame, out, scale);
  GridSink sink;
  sink.kind = SinkKind::kFloatSet;
  sink.values = out.data();
  sink.scaled_step = multiply(scale, frame.header.step);
  return decode_grid(frame, sink);
}

Status decode_frame_add(const FrameView& frame, std::span<float> out, float scale) {
  check_size(frame, out.size());
  if (!is_grid(frame.header.codec)) return decode_fixed<true>(frame, out, scale);
  GridSink sink;
  sink.kind = SinkKind::kFloatAdd;
  sink.values = out.data();
  sink.scaled_step = multiply(scale, frame.header.step);
  return decode_grid(frame, sink);
}

namespace {

Status decode_integers(const FrameView& frame, const GridSink& sink, std::size_t size) {
  check_size(frame, size);
  if (!is_grid(frame.header.codec)) {
    return fail(ErrorCode::kFrameUnexpected, kOperation, fmt::format("{} frames carry no integers", codec_name(frame.header.codec)));
  }
  return decode_grid(frame, sink);
}

}  // namespace

Status decode_frame_integers(const FrameView& frame, std::span<std::int32_t> out) {
  GridSink sink;
  sink.kind = SinkKind::kInteger32Set;
  sink.integers32 = out.data();
  return decode_integers(frame, sink, out.size());
}

Status add_frame_integers(const FrameView& frame, std::span<std::int32_t> out) {
  GridSink sink;
  sink.kind = SinkKind::kInteger32Add;
  sink.integers32 = out.data();
  return decode_integers(frame, sink, out.size());
}

Status add_frame_integers(const FrameView& frame, std::span<std::int16_t> out) {
  GridSink sink;
  sink.kind = SinkKind::kInteger16Add;
  sink.integers16 = out.data();
  return decode_integers(frame, sink, out.size());
}

}  // namespace sluice::compression
