#pragma once

// Escapes on the decoding side: read from their bits, filled in after the rows they belong to. Pure; inlined into the kernels, so that the
// bit tricks use the instructions of each.

#include <hwy/base.h>

#include <bit>
#include <cstdint>

#include "compression/internal/grid_kernels.h"

namespace sluice::compression {

// The integer of one escape symbol (without the low bits), read from `bits`; false when the bits end or no low bits could bring it within
// the limit of the frame.
HWY_INLINE bool read_escape(BitReader& bits, const DecodeState& state, std::int32_t half_width, std::int32_t& integer) {
  bool negative = false;
  const std::uint32_t beyond = bits.read_signed_exp_golomb(state.escape_order, negative);
  // No branch on the sign: it is a coin toss.
  const std::int64_t magnitude = static_cast<std::int64_t>(beyond) + half_width + 1;
  const std::int64_t sign = negative ? -1 : 0;
  const std::int64_t below = (std::int64_t{1} << state.low_bits) - 1;
  if (bits.failed() || (magnitude << state.low_bits) > state.integer_limit + (sign & below)) return false;
  integer = static_cast<std::int32_t>((magnitude ^ sign) - sign);
  return true;
}
inline bool read_escape(DecodeState& state, std::int32_t half_width, std::int32_t& integer) {
  return read_escape(*state.escapes, state, half_width, integer);
}

// The escapes of up to kEscapeRows rows, noted without a branch while the rows are decoded (at 3 bits every fourth row has one) and then
// filled in, in order. REQUIRES: the decoder put a 0 in their places.
inline constexpr std::size_t kEscapeRows = 64;
class EscapeRows {
 public:
  HWY_INLINE void note(std::size_t row, std::uint64_t lanes) {
    rows_[count_] = row;
    lanes_[count_] = lanes;
    count_ += lanes != 0 ? 1U : 0U;
    escapes_ += static_cast<std::size_t>(std::popcount(lanes));
  }
  // deliver(value index, integer) for each. False when an escape is missing or beyond the limit.
  template <typename Deliver>
  HWY_INLINE bool fill(DecodeState& state, std::int32_t half_width, Deliver&& deliver) {
    BitReader bits = *state.escapes;  // in registers
    lanes_[count_] = 0;
    std::size_t row = 0;
    std::uint64_t lanes = lanes_[0];
    for (; escapes_ > 0; --escapes_) {
      std::int32_t integer = 0;
      if (!read_escape(bits, state, half_width, integer)) return false;
      deliver(rows_[row] * kRowValues + static_cast<std::size_t>(std::countr_zero(lanes)), integer);
      lanes &= lanes - 1;
      row += lanes == 0 ? 1U : 0U;
      lanes = lanes == 0 ? lanes_[row] : lanes;
    }
    count_ = 0;
    *state.escapes = bits;
    return true;
  }

 private:
  std::size_t rows_[kEscapeRows + 1];
  std::uint64_t lanes_[kEscapeRows + 1];
  std::size_t count_ = 0;
  std::size_t escapes_ = 0;
};

}  // namespace sluice::compression
