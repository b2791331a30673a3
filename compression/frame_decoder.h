#pragma once

// Receiver's side: frames back to values or integers. Safe on any bytes that parse_frame let through: a payload that does not
// decode to exactly what its header says is kFrameBadPayload, and then the output holds unspecified finite values or, in the
// *_add functions, some of the values added. Pure, any thread.

#include <cstdint>
#include <span>

#include "base/result.h"
#include "compression/frame.h"

namespace sluice::compression {

// out[i] = (scale * step) * q[i] for grid codecs (the product scale * step rounded once to fp32), scale * value for RAW32 and BF16.
// REQUIRES: out.size() == frame.header.value_count.
// Errors: kFrameBadPayload (also for RAW32 and BF16 values that are not finite).
Status decode_frame(const FrameView& frame, std::span<float> out, float scale = 1.0F);

// out[i] += the same value.
Status decode_frame_add(const FrameView& frame, std::span<float> out, float scale = 1.0F);

// The integers of a grid frame. Errors: kFrameBadPayload, kFrameUnexpected for RAW32 and BF16.
Status decode_frame_integers(const FrameView& frame, std::span<std::int32_t> out);

// Adds them: out[i] += q[i]. REQUIRES: no sum leaves int32 (at most kContributionsMax contributions). Same errors.
Status add_frame_integers(const FrameView& frame, std::span<std::int32_t> out);
// REQUIRES: the bounds 2^magnitude_bits - 1 of all frames added stay below 32768 together; a frame beyond its own bound is refused.
Status add_frame_integers(const FrameView& frame, std::span<std::int16_t> out);

}  // namespace sluice::compression
