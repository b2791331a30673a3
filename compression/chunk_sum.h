#pragma once

// Owner's side: adds the contributions of one chunk and codes the sum without a second quantisation. Grid frames are added as
// integers, exactly, in any order; RAW32 and BF16 frames as fp32 in the order of the calls, coded as RAW32. One object per chunk, owned by
// one thread at a time; 1 to 2 MiB of memory, kept for the next chunk by reset().

#include <cstdint>
#include <span>

#include "base/aligned_vector.h"
#include "base/bytes.h"
#include "base/result.h"
#include "compression/frame.h"
#include "compression/grid_codec.h"

namespace sluice::compression {

class ChunkSum {
 public:
  ChunkSum() = default;

  // Forgets all contributions and keeps the memory.
  void reset();

  // Adds one contribution. The first one fixes chunk, count, codec family and step; a later grid frame may use 2^j times that step
  // (0 <= j <= kGridStepShiftMax), or, when it is finer, the sum so far is rescaled to it.
  // Errors: kFrameUnexpected (other chunk, count, family or step; more than kContributionsMax), kFrameBadPayload. After an
  // error the sum is unusable until reset(): the caller decodes again what it still wants.
  Status add(const FrameView& frame);

  // Codes the sum; `out` is replaced by the frame. REQUIRES: at least one contribution.
  Status encode(ByteVector& out) const;
  // The same without a copy: the bytes lie in `encoder` until its next call.
  Result<EncodedFrame> encode(FrameEncoder& encoder) const;

  [[nodiscard]] std::uint32_t contributions() const { return contributions_; }
  [[nodiscard]] std::uint32_t value_count() const { return value_count_; }

 private:
  Status check_first(const FrameView& frame);
  Status check_next(const FrameView& frame);
  Status add_grid(const FrameView& frame);
  Status add_shifted(const FrameView& frame, int shift);
  void widen();

  // Integers are int16 while the frames' own bounds guarantee that no sum leaves it (half the memory traffic), int32 from then on.
  AlignedVector<std::int16_t> narrow_;
  AlignedVector<std::int32_t> integers_;
  std::int64_t bound_ = 0;  // on |sum|
  bool is_wide_ = false;
  AlignedVector<float> values_;
  ChunkId chunk_;
  ElementType element_type_ = ElementType::kFloat32;
  std::uint32_t value_count_ = 0;
  std::uint32_t contributions_ = 0;
  float step_ = 0.0F;
  double squared_error_ = 0.0;
  bool is_grid_ = false;
};

// One call for contributions that are all there, in site order. Errors as ChunkSum::add; kInvalidArgument when empty.
Status combine_frames(std::span<const FrameView> contributions, ByteVector& out);

}  // namespace sluice::compression
