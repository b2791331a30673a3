#include "compression/chunk_sum.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/assert.h"
#include "compression/frame_decoder.h"
#include "compression/grid_codec.h"

namespace sluice::compression {
namespace {

tl::unexpected<Error> unexpected_frame(const FrameView& frame, std::string_view what) {
  return fail(ErrorCode::kFrameUnexpected, "add contribution", fmt::format("chunk {}: {}", frame.header.chunk, what));
}

// j when coarse == 2^j * fine exactly, 0 <= j <= kGridStepShiftMax; -1 otherwise.
int step_shift(float coarse, float fine) {
  for (int shift = 0; shift <= kGridStepShiftMax; ++shift) {
    if (std::ldexp(fine, shift) == coarse) return shift;
  }
  return -1;
}

std::int32_t integer_bound(std::uint32_t contributions) { return static_cast<std::int32_t>(contributions) * kGridIntegerMax; }

// Multiplies by 2^shift; false when an integer would leave its bound.
bool scale_integers(std::span<std::int32_t> integers, int shift, std::int32_t limit) {
  const std::int32_t bound = limit >> shift;
  for (std::int32_t& integer : integers) {
    if (integer > bound || integer < -bound) return false;
    integer *= std::int32_t{1} << shift;
  }
  return true;
}

}  // namespace

void ChunkSum::reset() {
  contributions_ = 0;
  value_count_ = 0;
  step_ = 0.0F;
  squared_error_ = 0.0;
  bound_ = 0;
  is_wide_ = false;
}

void ChunkSum::widen() {
  if (is_wide_) return;
  integers_.assign(narrow_.begin(), narrow_.end());
  is_wide_ = true;
}

Status ChunkSum::check_first(const FrameView& frame) {
  chunk_ = frame.header.chunk;
  element_type_ = frame.header.element_type;
  value_count_ = frame.header.value_count;
  step_ = frame.header.step;
  is_grid_ = is_grid(frame.header.codec);
  if (is_grid_) {
    narrow_.assign(value_count_, 0);
  } else {
    values_.assign(value_count_, 0.0F);
  }
  return {};
}

Status ChunkSum::check_next(const FrameView& frame) {
  const FrameHeader& header = frame.header;
  if (header.chunk != chunk_) return unexpected_frame(frame, fmt::format("the sum is of chunk {}", chunk_));
  if (header.value_count != value_count_) {
    return unexpected_frame(frame, fmt::format("{} values, {} expected", header.value_count, value_count_));
  }
  if (header.element_type != element_type_) return unexpected_frame(frame, "another element type");
  if (is_grid(header.codec) != is_grid_) return unexpected_frame(frame, fmt::format("{} beside another family", codec_name(header.codec)));
  if (contributions_ + header.contributions > kContributionsMax) return unexpected_frame(frame, "too many contributions");
  return {};
}

Status ChunkSum::add_grid(const FrameView& frame) {
  if (frame.header.step < step_) {
    const int finer = step_shift(step_, frame.header.step);
    if (finer < 0) return unexpected_frame(frame, fmt::format("step {} beside {}", frame.header.step, step_));
    widen();
    if (!scale_integers(integers_, finer, integer_bound(contributions_))) {
      return unexpected_frame(frame, "integers too large for the finer step");
    }
    bound_ <<= finer;
    step_ = frame.header.step;
  } else if (frame.header.step > step_) {
    const int shift = step_shift(frame.header.step, step_);
    if (shift < 0) return unexpected_frame(frame, fmt::format("step {} beside {}", frame.header.step, step_));
    return add_shifted(frame, shift);
  }
  bound_ += (std::int64_t{1} << frame.header.magnitude_bits) - 1;
  if (bound_ > std::numeric_limits<std::int16_t>::max()) widen();
  return is_wide_ ? add_frame_integers(frame, std::span<std::int32_t>(integers_))
                  : add_frame_integers(frame, std::span<std::int16_t>(narrow_));
}

Status ChunkSum::add_shifted(const FrameView& frame, int shift) {
  widen();
  std::vector<std::int32_t> coarse(value_count_);
  SLUICE_CHECK_OK(decode_frame_integers(frame, coarse));
  if (!scale_integers(coarse, shift, integer_bound(frame.header.contributions))) {
    return unexpected_frame(frame, "integers too large for the common step");
  }
  for (std::size_t index = 0; index < coarse.size(); ++index) integers_[index] += coarse[index];
  return {};
}

Status ChunkSum::add(const FrameView& frame) {
  SLUICE_CHECK_OK(contributions_ == 0 ? check_first(frame) : check_next(frame));
  SLUICE_CHECK_OK(is_grid_ ? add_grid(frame) : decode_frame_add(frame, values_));
  contributions_ += frame.header.contributions;
  squared_error_ += frame.header.squared_error;
  return {};
}

Result<EncodedFrame> ChunkSum::encode(FrameEncoder& encoder) const {
  SLUICE_ASSERT(contributions_ >= 1, "a sum of nothing");
  const auto contributions = static_cast<std::uint8_t>(contributions_);
  if (!is_grid_) return encoder.encode_values(values_, contributions, squared_error_, chunk_, element_type_);
  if (is_wide_)
    return encoder.encode_integers(std::span<const std::int32_t>(integers_), step_, contributions, squared_error_, chunk_, element_type_);
  return encoder.encode_integers(std::span<const std::int16_t>(narrow_), step_, contributions, squared_error_, chunk_, element_type_);
}

Status ChunkSum::encode(ByteVector& out) const {
  out.clear();
  thread_local FrameEncoder encoder;  // only scratch memory
  SLUICE_TRY(const EncodedFrame frame, encode(encoder));
  out.assign(frame.bytes.begin(), frame.bytes.end());
  return {};
}

Status combine_frames(std::span<const FrameView> contributions, ByteVector& out) {
  if (contributions.empty()) return fail(ErrorCode::kInvalidArgument, "combine frames", "no contributions");
  ChunkSum sum;
  for (const FrameView& frame : contributions) SLUICE_CHECK_OK(sum.add(frame));
  return sum.encode(out);
}

}  // namespace sluice::compression
