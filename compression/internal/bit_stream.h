#pragma once

// Bits least significant first, for escapes and sparse frames. The writer appends to a buffer it does not own; the reader never
// reads past its span: a short read sets failed() and yields zeros.

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/bytes.h"

namespace sluice::compression {

class BitWriter {
 public:
  // `to` must have room for everything written plus 8 bytes.
  explicit BitWriter(std::uint8_t* to) : begin_(to), to_(to) {}

  // REQUIRES: count <= 56, bits < 2^count.
  void write(std::uint64_t bits, unsigned count) {
    window_ |= bits << used_;
    used_ += count;
    std::memcpy(to_, &window_, sizeof window_);
    const unsigned whole = used_ >> 3;
    to_ += whole;
    window_ = whole == 8 ? 0 : window_ >> (8 * whole);
    used_ &= 7;
  }

  // `zeros` zero bits and a one.
  void write_unary(std::uint32_t zeros) {
    while (zeros >= 48) {
      write(0, 48);
      zeros -= 48;
    }
    write(std::uint64_t{1} << zeros, zeros + 1);
  }

  // z in Elias-gamma of (z >> order) + 1, then the `order` low bits. REQUIRES: z < 2^31, order <= 24.
  void write_exp_golomb(std::uint32_t z, unsigned order) {
    const std::uint32_t high = (z >> order) + 1;
    const auto length = static_cast<unsigned>(std::bit_width(high)) - 1;
    write_unary(length);
    write(high - (std::uint32_t{1} << length), length);
    write(z & ((std::uint32_t{1} << order) - 1), order);
  }

  // A sign bit, then `z` as write_exp_golomb would: the escapes of a dense chunk.
  void write_signed_exp_golomb(bool negative, std::uint32_t z, unsigned order) {
    const std::uint32_t high = (z >> order) + 1;
    const auto length = static_cast<unsigned>(std::bit_width(high)) - 1;
    if (2 * length + 2 + order > 56) [[unlikely]] {
      write(negative ? 1 : 0, 1);
      write_exp_golomb(z, order);
      return;
    }
    // Zeros, a one, the lower bits of `high`, the lower bits of z, in one piece.
    const std::uint64_t low = z & ((std::uint32_t{1} << order) - 1);
    const std::uint64_t rest = (high - (std::uint32_t{1} << length)) | low << length;
    const std::uint64_t code = (std::uint64_t{1} << length) | rest << (length + 1);
    write((negative ? 1U : 0U) | code << 1, 2 * length + 2 + order);
  }

  [[nodiscard]] std::size_t bit_count() const { return 8 * static_cast<std::size_t>(to_ - begin_) + used_; }
  // Bytes used, the last one padded with zero bits.
  [[nodiscard]] std::size_t byte_count() const { return (bit_count() + 7) / 8; }

 private:
  std::uint8_t* begin_;
  std::uint8_t* to_;
  std::uint64_t window_ = 0;
  unsigned used_ = 0;
};

class BitReader {
 public:
  explicit BitReader(ByteSpan bytes) : bytes_(bytes), bits_(8 * bytes.size()) {}

  // REQUIRES: count <= 56.
  std::uint64_t read(unsigned count) {
    if (at_ + count > bits_) {
      fail_reading();
      return 0;
    }
    const std::uint64_t value = window() & ((std::uint64_t{1} << count) - 1);
    at_ += count;
    return value;
  }

  // Zero bits before the next one, at most `limit`; more, or no one at all, is a failure.
  std::uint32_t read_unary(std::uint32_t limit) {
    std::uint32_t zeros = 0;
    while (at_ < bits_) {
      const std::uint64_t bits = window();
      const auto run = static_cast<std::uint32_t>(bits == 0 ? 56 : std::countr_zero(bits));
      if (run < 56) {
        zeros += run;
        at_ += run + 1;
        if (zeros > limit || at_ > bits_) break;
        return zeros;
      }
      zeros += 56;
      at_ += 56;
      if (zeros > limit) break;
    }
    fail_reading();
    return 0;
  }

  // A Rice code of `parameter` low bits and then a sign bit, which goes to `sign`. More than `limit` unary zeros is a failure.
  std::uint32_t read_gap(unsigned parameter, std::uint32_t limit, std::uint64_t& sign) {
    if (at_ + 64 <= bits_) [[likely]] {
      const std::uint64_t bits = window();
      const auto zeros = static_cast<unsigned>(std::countr_zero(bits | std::uint64_t{1} << 56));
      if (zeros + parameter + 2 <= 56 && zeros <= limit) [[likely]] {
        const std::uint64_t rest = bits >> (zeros + 1);
        at_ += zeros + parameter + 2;
        sign = (rest >> parameter) & 1U;
        return (zeros << parameter) | static_cast<std::uint32_t>(rest & ((std::uint64_t{1} << parameter) - 1));
      }
    }
    const std::uint32_t high = read_unary(limit);
    const std::uint64_t rest = read(parameter + 1);
    sign = rest >> parameter;
    return high << parameter | static_cast<std::uint32_t>(rest & ((std::uint64_t{1} << parameter) - 1));
  }

  // What write_signed_exp_golomb wrote.
  std::uint32_t read_signed_exp_golomb(unsigned order, bool& negative) {
    if (at_ + 64 <= bits_) [[likely]] {
      const std::uint64_t bits = window();
      const auto length = static_cast<unsigned>(std::countr_zero((bits >> 1) | std::uint64_t{1} << 55));
      if (2 * length + 2 + order <= 56 && length <= 30) [[likely]] {
        at_ += 2 * length + 2 + order;
        negative = (bits & 1U) != 0;
        const std::uint64_t rest = bits >> (length + 2);
        const std::uint64_t high = (std::uint64_t{1} << length | (rest & ((std::uint64_t{1} << length) - 1))) - 1;
        const std::uint64_t value = high << order | ((rest >> length) & ((std::uint64_t{1} << order) - 1));
        if (value < (std::uint64_t{1} << 31)) [[likely]]
          return static_cast<std::uint32_t>(value);
        fail_reading();
        return 0;
      }
    }
    negative = read(1) != 0;
    return read_exp_golomb(order);
  }

  std::uint32_t read_exp_golomb(unsigned order) {
    const std::uint32_t length = read_unary(30);
    const std::uint64_t high = (std::uint64_t{1} << length) + read(length) - 1;
    const std::uint64_t value = (high << order) | read(order);
    if (value >= (std::uint64_t{1} << 31)) fail_reading();
    return failed_ ? 0 : static_cast<std::uint32_t>(value);
  }

  // For readers that take several codes from one load: 57 or more bits from the position on, while 64 are left.
  [[nodiscard]] bool has_word() const { return at_ + 64 <= bits_; }
  [[nodiscard]] std::uint64_t word() const { return load_le<std::uint64_t>(bytes_.data() + (at_ >> 3)) >> (at_ & 7); }
  // REQUIRES: no more bits than has_word() and word() gave.
  void skip(unsigned count) { at_ += count; }

  // True when everything but zero padding of the last byte has been read and nothing failed.
  [[nodiscard]] bool is_finished() const {
    if (failed_ || at_ > bits_ || (at_ + 7) / 8 != bytes_.size()) return false;
    return (at_ & 7) == 0 || (bytes_.back() >> (at_ & 7)) == 0;
  }
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] std::size_t position() const { return at_; }

 private:
  // At least 56 valid bits from the position on, zeros past the end.
  [[nodiscard]] std::uint64_t window() const {
    const std::size_t byte = at_ >> 3;
    std::uint64_t word = 0;
    if (byte + 8 <= bytes_.size()) {
      std::memcpy(&word, bytes_.data() + byte, 8);
    } else {
      std::memcpy(&word, bytes_.data() + byte, bytes_.size() - byte);
    }
    word >>= at_ & 7;
    return word & ((std::uint64_t{1} << 56) - 1);
  }
  void fail_reading() {
    failed_ = true;
    at_ = bits_;
  }

  ByteSpan bytes_;
  std::size_t bits_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

}  // namespace sluice::compression
