#pragma once

// Little-endian reading and writing of fixed-size numbers at the edge of the process. Pure, any thread.
// ByteReader never reads past its span: a short read sets failed() and yields zero, so a parser checks once at the end.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace sluice {

static_assert(std::endian::native == std::endian::little, "Sluice stores numbers little-endian and runs on little-endian machines");

using ByteSpan = std::span<const std::uint8_t>;
using ByteVector = std::vector<std::uint8_t>;

template <typename Number>
requires std::is_trivially_copyable_v<Number> Number load_le(const std::uint8_t* from) {
  Number number;
  std::memcpy(&number, from, sizeof(Number));
  return number;
}

template <typename Number>
requires std::is_trivially_copyable_v<Number>
void store_le(std::uint8_t* to, Number number) { std::memcpy(to, &number, sizeof(Number)); }

class ByteReader {
 public:
  explicit ByteReader(ByteSpan bytes) : bytes_(bytes) {}

  template <typename Number>
  Number read() {
    if (remaining() < sizeof(Number)) {
      failed_ = true;
      position_ = bytes_.size();
      return Number{};
    }
    Number number = load_le<Number>(bytes_.data() + position_);
    position_ += sizeof(Number);
    return number;
  }

  // The next `count` bytes, or an empty span and failed() when fewer remain.
  ByteSpan read_span(std::size_t count) {
    if (remaining() < count) {
      failed_ = true;
      position_ = bytes_.size();
      return {};
    }
    ByteSpan result = bytes_.subspan(position_, count);
    position_ += count;
    return result;
  }

  [[nodiscard]] std::size_t position() const { return position_; }
  [[nodiscard]] std::size_t remaining() const { return bytes_.size() - position_; }
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  ByteSpan bytes_;
  std::size_t position_ = 0;
  bool failed_ = false;
};

// Appends little-endian numbers to a vector it does not own.
class ByteWriter {
 public:
  explicit ByteWriter(ByteVector& out) : out_(out) {}

  template <typename Number>
  void write(Number number) {
    const std::size_t at = out_.size();
    out_.resize(at + sizeof(Number));
    store_le(out_.data() + at, number);
  }
  void write_span(ByteSpan bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }

 private:
  ByteVector& out_;
};

}  // namespace sluice
