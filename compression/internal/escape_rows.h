#pragma once

// Escapes on the decoding side: read ahead from their bits, put to their places in the rows. Pure; inlined into the kernels, so that the
// bit tricks use the instructions of each. One thread at a time; the bytes of the section stay the caller's.

#include <hwy/base.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

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
  // REQUIRES: count <= kBlock.
  HWY_INLINE bool prepare(std::size_t count) {
    if (next_ <= kBlock && (available() >= count || is_exhausted_)) return true;
    move_to_front();
    return is_exhausted_ || refill();
  }
  [[nodiscard]] std::size_t available() const { return end_ - next_; }
  [[nodiscard]] const std::int32_t* integers() const { return integers_.data() + next_; }
  // REQUIRES: count <= available().
  void skip(std::size_t count) { next_ += count; }
  HWY_INLINE bool take(std::int32_t& integer) {
    if (next_ == end_) return false;
    integer = integers_[next_++];
    return true;
  }
  // Reads a few more if that is easy. Among the rows of a chunk, one call every few rows: their waits then pay for it.
  HWY_INLINE void read_ahead() { read_short(1); }
  // True when every escape was taken and nothing but padding is left.
  [[nodiscard]] bool is_finished() const { return next_ == end_ && reader_.is_finished(); }

 private:
  static constexpr std::size_t kRoom = 2 * kBlock;
  static constexpr unsigned kShortBits = 14;  // four codes of this length lie in one load at any bit

  void move_to_front() {
    std::copy(integers_.begin() + static_cast<std::ptrdiff_t>(next_), integers_.begin() + static_cast<std::ptrdiff_t>(end_),
              integers_.begin());
    end_ -= next_;
    next_ = 0;
  }

  HWY_INLINE bool refill() {
    while (true) {
      read_short(kRoom);
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

  // Reads codes of at most kShortBits bits, four at a time, as long as they come and are within the limit.
  HWY_INLINE void read_short(std::size_t groups_max) {
    if (order_ + 2 > kShortBits) return;
    const unsigned longest = (kShortBits - 2 - order_) / 2;
    const auto largest = static_cast<std::uint32_t>(limit_) >> low_bits_;
    const unsigned order = order_;
    const std::uint32_t low_mask = (1U << order) - 1U;
    const std::uint32_t beyond = beyond_;
    BitReader reader = reader_;  // in registers
    std::size_t to = end_;
    for (std::size_t group = 0; group < groups_max && to + 4 <= kRoom && reader.has_word(); ++group) {
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
    integers_[end_++] = static_cast<std::int32_t>((magnitude ^ sign) - sign);
    return true;
  }

  BitReader reader_;
  unsigned order_, low_bits_;
  std::uint32_t beyond_;  // smallest magnitude of an escape
  std::int32_t limit_;
  std::size_t next_ = 0;
  std::size_t end_ = 0;
  bool is_exhausted_ = false;
  std::array<std::int32_t, kRoom> integers_;
};

// Puts the next escapes to their places: deliver(value index, integer) for each of `escapes` lanes set in `lanes`, which belong to the
// rows `rows`. False when there are fewer, or a broken one. REQUIRES: no mask is 0; the decoder put a 0 in their places.
template <typename Deliver>
HWY_INLINE bool fill_escapes(EscapeQueue& queue, std::span<const std::uint64_t> rows, const std::uint64_t* lanes, std::size_t escapes,
                             Deliver&& deliver) {
  if (escapes > queue.available() && (!queue.prepare(escapes) || escapes > queue.available())) return false;
  const std::int32_t* integers = queue.integers();
  queue.skip(escapes);
  for (const std::uint64_t row : rows) {
    // Most rows have one: only a second costs a branch that is not foreseen.
    std::uint64_t left = *lanes++;
    do {
      deliver(row * 64 + static_cast<std::size_t>(std::countr_zero(left)), *integers++);
      left &= left - 1;
    } while (left != 0);
  }
  return true;
}

// AVX2: where the escapes of up to kEscapeRows rows are, noted without a branch while the rows are decoded and then filled in, in order.
class EscapeRows {
 public:
  HWY_INLINE void note(std::size_t row, std::uint64_t lanes) {
    rows_[count_] = row;
    lanes_[count_] = lanes;
    count_ += lanes != 0 ? 1U : 0U;
    escapes_ += static_cast<std::size_t>(std::popcount(lanes));
  }
  // As fill_escapes.
  template <typename Deliver>
  HWY_INLINE bool fill(EscapeQueue& queue, Deliver&& deliver) {
    const bool filled = fill_escapes(queue, {rows_, count_}, lanes_, escapes_, deliver);
    count_ = 0;
    escapes_ = 0;
    return filled;
  }

 private:
  std::uint64_t rows_[kEscapeRows + 1];
  std::uint64_t lanes_[kEscapeRows + 1];
  std::size_t count_ = 0;
  std::size_t escapes_ = 0;
};

}  // namespace sluice::compression
