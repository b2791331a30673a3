#pragma once

// Escapes on the decoding side: read ahead from their bits, put to their places in the rows. Pure; inlined into the kernels, so that the
// bit tricks use the instructions of each. One thread at a time; the bytes of the section stay the caller's.

#include <hwy/base.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "compression/internal/bit_stream.h"
#include "compression/limits.h"

namespace sluice::compression {

// Rows whose escapes are handled together; at 3 bits every fourth or fifth row has one.
inline constexpr std::size_t kEscapeRows = 64;

// The escapes of a frame in order, as integers without the low bits. Each code begins where the one before ends, so they are read many at a
// time and ahead of the rows, four codes to a load: what is left of the wait from one length to the next is shifts in registers.
class EscapeQueue {
 public:
  // Escapes of kEscapeRows rows.
  static constexpr std::size_t kBlock = kEscapeRows * 64;

  // `limit`: largest |q| that the frame may hold, low bits included.
  EscapeQueue(ByteSpan section, unsigned order, unsigned low_bits, std::int32_t half_width, std::int32_t limit)
      : reader_(section), order_(order), low_bits_(low_bits), beyond_(static_cast<std::uint32_t>(half_width) + 1), limit_(limit) {}

  // Makes `count` escapes available, or all that are left. False when one of them is broken or no low bits could bring it within the limit.
  // REQUIRES: count <= kBlock. In any case kBlock + 64 bytes may be read at bytes() afterwards.
  HWY_INLINE bool prepare(std::size_t count) {
    if (next_ <= kBlock && (available() >= count || is_exhausted_)) return true;
    move_to_front();
    return is_exhausted_ || refill();
  }
  [[nodiscard]] std::size_t available() const { return end_ - next_; }
  // The available escapes. As bytes: those beyond a byte are 0, and has_wide() is true.
  [[nodiscard]] const std::int32_t* integers() const { return integers_.data() + next_; }
  [[nodiscard]] const std::int8_t* bytes() const { return bytes_.data() + next_; }
  [[nodiscard]] bool has_wide() const { return has_wide_; }
  // REQUIRES: count <= available().
  void skip(std::size_t count) { next_ += count; }
  HWY_INLINE bool take(std::int32_t& integer) {
    if (next_ == end_) return false;
    integer = integers_[next_++];
    return true;
  }
  // True when every escape was taken and nothing but padding is left.
  [[nodiscard]] bool is_finished() const { return next_ == end_ && reader_.is_finished(); }

 private:
  static constexpr std::size_t kRoom = 2 * kBlock;
  static constexpr unsigned kShortBits = 14;  // four codes of this length lie in one load at any bit

  void move_to_front() {
    std::copy(integers_.begin() + static_cast<std::ptrdiff_t>(next_), integers_.begin() + static_cast<std::ptrdiff_t>(end_),
              integers_.begin());
    std::copy(bytes_.begin() + static_cast<std::ptrdiff_t>(next_), bytes_.begin() + static_cast<std::ptrdiff_t>(end_), bytes_.begin());
    end_ -= next_;
    next_ = 0;
  }

  HWY_INLINE bool refill() {
    while (true) {
      read_short();
      for (int longer = 0; longer < 4; ++longer) {
        if (end_ == kRoom) return true;
        if (reader_.is_finished()) {
          is_exhausted_ = true;
          return true;
        }
        if (!read_one()) return false;
      }
    }
  }

  // Reads codes of at most kShortBits bits, four at a time, as long as they come and are within a byte.
  HWY_INLINE void read_short() {
    if (order_ + 2 > kShortBits) return;
    const unsigned longest = (kShortBits - 2 - order_) / 2;
    const std::uint32_t largest = std::min<std::uint32_t>(127, static_cast<std::uint32_t>(limit_) >> low_bits_);
    const unsigned order = order_;
    const std::uint32_t low_mask = (1U << order) - 1U;
    const std::uint32_t beyond = beyond_;
    BitReader reader = reader_;  // in registers
    std::size_t to = end_;
    while (to + 4 <= kRoom && reader.has_word()) {
      std::uint64_t window = reader.word();
      unsigned used = 0;
      unsigned length_max = 0;
      std::uint32_t magnitude_max = 0;
      for (std::size_t i = 0; i < 4; ++i) {
        const auto length = static_cast<unsigned>(std::countr_zero((window >> 1) | std::uint64_t{2} << longest));
        const auto rest = static_cast<std::uint32_t>(window >> (length + 2));
        const std::uint32_t high = (1U << length) - 1U + (rest & ((1U << length) - 1U));
        const std::uint32_t magnitude = (high << order | ((rest >> length) & low_mask)) + beyond;
        const std::uint32_t sign = 0U - static_cast<std::uint32_t>(window & 1U);
        integers_[to + i] = static_cast<std::int32_t>((magnitude ^ sign) - sign);
        bytes_[to + i] = static_cast<std::int8_t>((magnitude ^ sign) - sign);
        length_max = std::max(length_max, length);
        magnitude_max = std::max(magnitude_max, magnitude);
        const unsigned bits = 2 * length + 2 + order;
        used += bits;
        window >>= bits;
      }
      if (length_max > longest || magnitude_max > largest) break;
      reader.skip(used);
      to += 4;
    }
    reader_ = reader;
    end_ = to;
  }

  HWY_INLINE bool read_one() {
    bool negative = false;
    const std::uint32_t coded = reader_.read_signed_exp_golomb(order_, negative);
    // No branch on the sign: it is a coin toss.
    const std::int64_t magnitude = static_cast<std::int64_t>(coded) + beyond_;
    const std::int64_t sign = negative ? -1 : 0;
    const std::int64_t below = (std::int64_t{1} << low_bits_) - 1;
    if (reader_.failed() || (magnitude << low_bits_) > limit_ + (sign & below)) return false;
    const auto integer = static_cast<std::int32_t>((magnitude ^ sign) - sign);
    const bool is_wide = magnitude > 127;
    has_wide_ |= is_wide;
    integers_[end_] = integer;
    bytes_[end_] = static_cast<std::int8_t>(is_wide ? 0 : integer);
    ++end_;
    return true;
  }

  BitReader reader_;
  unsigned order_, low_bits_;
  std::uint32_t beyond_;  // smallest magnitude of an escape
  std::int32_t limit_;
  std::size_t next_ = 0;
  std::size_t end_ = 0;
  bool is_exhausted_ = false;
  bool has_wide_ = false;
  std::array<std::int32_t, kRoom> integers_;
  std::array<std::int8_t, kRoom + 64> bytes_;
};

// AVX2: where the escapes of up to kEscapeRows rows are, noted without a branch while the rows are decoded and then filled in, in order.
// REQUIRES: the decoder put a 0 in their places.
class EscapeRows {
 public:
  HWY_INLINE void note(std::size_t row, std::uint64_t lanes) {
    rows_[count_] = row;
    lanes_[count_] = lanes;
    count_ += lanes != 0 ? 1U : 0U;
    escapes_ += static_cast<std::size_t>(std::popcount(lanes));
  }
  // deliver(value index, integer) for each. False when there are fewer; REQUIRES: EscapeQueue::kBlock of them were prepared.
  template <typename Deliver>
  HWY_INLINE bool fill(EscapeQueue& queue, Deliver&& deliver) {
    if (escapes_ > queue.available()) return false;
    const std::int32_t* integers = queue.integers();
    queue.skip(escapes_);
    lanes_[count_] = 0;
    std::size_t row = 0;
    std::uint64_t lanes = lanes_[0];
    for (; escapes_ > 0; --escapes_) {
      deliver(rows_[row] * 64 + static_cast<std::size_t>(std::countr_zero(lanes)), *integers++);
      lanes &= lanes - 1;
      row += lanes == 0 ? 1U : 0U;
      lanes = lanes == 0 ? lanes_[row] : lanes;
    }
    count_ = 0;
    return true;
  }

 private:
  std::size_t rows_[kEscapeRows + 1];
  std::uint64_t lanes_[kEscapeRows + 1];
  std::size_t count_ = 0;
  std::size_t escapes_ = 0;
};

}  // namespace sluice::compression
