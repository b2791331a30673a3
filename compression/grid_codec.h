#pragma once

// Sender's side: error feedback, quantisation on the common grid and entropy coding of one chunk into a frame.
//     a = weight * delta + residual;  q = round_half_even(a * (1 / step));  residual = a - step * q
// in fp32, round to nearest even, no fused multiply-add: every machine produces the same bytes and residuals. Pure; any
// thread, one call at a time per residual. Values and residuals have the unit of the parameters. |q| <= kGridIntegerMax: what
// goes beyond stays in the residual.
//
// A NaN or Inf in weight * delta + residual refuses the frame with kNonFinite, naming the index; the residual is then as before
// the call, up to fp32 rounding, and `out` is empty.

#include <cstdint>
#include <memory>
#include <span>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "compression/frame.h"

namespace sluice::compression {

struct GridKernels;  // internal: the loops of one instruction set

struct EncodeStats {
  std::uint64_t bits = 0;      // of the whole frame, header and hash included
  double squared_error = 0.0;  // sum of residual^2
  std::uint32_t nonzeros = 0;  // integers that are not 0
};

struct EncodedFrame {
  ByteSpan bytes;  // lies in the encoder
  EncodeStats stats;
};

// The encoder with its memory (about 3 MiB once used), so that a frame needs neither allocation nor copy. One thread at a time. The bytes
// of a frame stay valid until the next call. Each function has the requirements and errors of the free function below.
class FrameEncoder {
 public:
  FrameEncoder();
  // Uses the given loops instead of the fastest ones; same bytes. For tests and benchmarks.
  explicit FrameEncoder(const GridKernels& kernels);
  ~FrameEncoder();
  FrameEncoder(FrameEncoder&&) noexcept;
  FrameEncoder& operator=(FrameEncoder&&) noexcept;

  Result<EncodedFrame> encode_grid(std::span<const float> delta, float weight, std::span<float> residual, float step, ChunkId chunk,
                                   ElementType element_type = ElementType::kFloat32, float decay = 1.0F);
  // The same with an int16 residual, half the memory and faster: on entry in units of previous_step / 32768 (any valid step when
  // all are 0), on return in units of step / 32768. What is beyond the grid is lost: int16 cannot keep it. A difference of up to
  // step / 65536 per value and round is the price.
  Result<EncodedFrame> encode_grid_short(std::span<const float> delta, float weight, std::span<std::int16_t> residual, float previous_step,
                                         float step, ChunkId chunk, ElementType element_type = ElementType::kFloat32, float decay = 1.0F);
  Result<EncodedFrame> encode_raw(std::span<const float> delta, float weight, std::span<float> residual, ChunkId chunk,
                                  ElementType element_type = ElementType::kFloat32);
  Result<EncodedFrame> encode_bf16(std::span<const float> delta, float weight, std::span<float> residual, ChunkId chunk,
                                   ElementType element_type = ElementType::kFloat32);
  Result<EncodedFrame> encode_integers(std::span<const std::int32_t> integers, float step, std::uint8_t contributions, double squared_error,
                                       ChunkId chunk, ElementType element_type = ElementType::kFloat32);
  Result<EncodedFrame> encode_integers(std::span<const std::int16_t> integers, float step, std::uint8_t contributions, double squared_error,
                                       ChunkId chunk, ElementType element_type = ElementType::kFloat32);
  // fp32 values as RAW32, for sums. Errors: kNonFinite.
  Result<EncodedFrame> encode_values(std::span<const float> values, std::uint8_t contributions, double squared_error, ChunkId chunk,
                                     ElementType element_type = ElementType::kFloat32);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Encodes one chunk; `residual` has the size of `delta` and is updated in place. `out` is replaced by the frame. `decay` multiplies the
// residual first: 1 in the dense regime, 0.95 in the sparse one.
// REQUIRES: delta.size() == residual.size() <= kChunkValues.
// Errors: kNonFinite (also for a weight that is not finite), kInvalidArgument (step outside kGridStepMin .. kGridStepMax, decay outside
// 1/16 .. 1).
Result<EncodeStats> encode_grid_frame(std::span<const float> delta, float weight, std::span<float> residual, float step, ChunkId chunk,
                                      ByteVector& out, ElementType element_type = ElementType::kFloat32, float decay = 1.0F);

// weight * delta + residual as fp32; the residual becomes 0. Same requirements and errors.
Result<EncodeStats> encode_raw_frame(std::span<const float> delta, float weight, std::span<float> residual, ChunkId chunk, ByteVector& out,
                                     ElementType element_type = ElementType::kFloat32);

// weight * delta + residual rounded to bfloat16; the residual keeps the rounding. A value that would round to Inf is kNonFinite.
Result<EncodeStats> encode_bf16_frame(std::span<const float> delta, float weight, std::span<float> residual, ChunkId chunk, ByteVector& out,
                                      ElementType element_type = ElementType::kFloat32);

// The contribution `frame` (any codec) was discarded: gives back the residual from before its encoding, up to fp32 rounding:
// residual = ((residual + decoded) - weight * delta) / decay. REQUIRES: delta, weight and decay as at encoding, sizes equal.
Status undo_frame(const FrameView& frame, std::span<const float> delta, float weight, std::span<float> residual, float decay = 1.0F);

// The same for an int16 residual, which returns to units of previous_step / 32768. Errors also kFrameUnexpected for RAW32 and BF16.
Status undo_frame_short(const FrameView& frame, std::span<const float> delta, float weight, std::span<std::int16_t> residual,
                        float previous_step, float decay = 1.0F);

// Codes integers of a common grid losslessly (the sum of contributions). REQUIRES: |integers| <= contributions * kGridIntegerMax.
Result<EncodeStats> encode_integer_frame(std::span<const std::int32_t> integers, float step, std::uint8_t contributions,
                                         double squared_error, ChunkId chunk, ByteVector& out,
                                         ElementType element_type = ElementType::kFloat32);

// Codes fp32 sums as RAW32. Errors: kNonFinite.
Result<EncodeStats> encode_value_frame(std::span<const float> values, std::uint8_t contributions, double squared_error, ChunkId chunk,
                                       ByteVector& out, ElementType element_type = ElementType::kFloat32);

}  // namespace sluice::compression
