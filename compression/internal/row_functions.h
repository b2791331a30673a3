#pragma once

// What kernels of all instruction sets do with a row of 64 integers in plain C++: the portable kernels always, the others where a row is
// rare (values beyond the grid, escapes, low bits).

#include <algorithm>
#include <array>
#include <cstdint>

#include "compression/internal/grid_kernels.h"
#include "compression/internal/grid_value.h"

namespace sluice::compression {

using Row = std::array<std::int32_t, kRowValues>;

// Each source quantises one row and updates its residual; false, with nothing changed, when a value is not finite.
// Rounds where every |scaled| is below 2^22: adding 1.5 * 2^23 leaves the nearest integer, ties to even, in the low bits of the sum.
// Equal to round_half_even there, and compilers turn the loop into vectors.
inline constexpr float kRoundingBias = 0x1.8p+23F;
inline constexpr float kRoundingLimit = 0x1p+22F;

inline bool quantise_float_row(const GridSource& source, std::size_t row, Row& integers, std::array<float, 16>& squares) {
  const float* const delta = source.delta + row * kRowValues;
  float* const residual = source.residual + row * kRowValues;
  float input[kRowValues];
  float scaled[kRowValues];
  std::uint32_t large = 0;
  for (std::size_t j = 0; j < kRowValues; ++j) input[j] = add(multiply(source.weight, delta[j]), multiply(source.decay, residual[j]));
  for (std::size_t j = 0; j < kRowValues; ++j) {
    scaled[j] = multiply(input[j], source.inverse_step);
    large |= (float_bits(scaled[j]) & 0x7fffffffU) >= float_bits(kRoundingLimit) ? 1U : 0U;
  }
  std::int32_t* const to = integers.data();
  if (large == 0) [[likely]] {
    for (std::size_t j = 0; j < kRowValues; ++j) {
      to[j] = static_cast<std::int32_t>(float_bits(add(scaled[j], kRoundingBias)) - float_bits(kRoundingBias));
    }
  } else {
    for (const float value : input) {
      if (is_non_finite(value)) return false;
    }
    for (std::size_t j = 0; j < kRowValues; ++j) to[j] = grid_integer(scaled[j]);
  }
  for (std::size_t j = 0; j < kRowValues; ++j) input[j] = subtract(input[j], multiply(source.step, static_cast<float>(to[j])));
  for (std::size_t j = 0; j < kRowValues; ++j) residual[j] = input[j];
  float* const sums = squares.data();
  for (std::size_t j = 0; j < kRowValues; j += 16) {
    for (std::size_t lane = 0; lane < 16; ++lane) sums[lane] = add(sums[lane], multiply(input[j + lane], input[j + lane]));
  }
  return true;
}

inline bool quantise_short_row(const GridSource& source, std::size_t row, Row& integers, std::array<float, 16>& squares) {
  const float* delta = source.delta + row * kRowValues;
  std::int16_t* residual = source.short_residual + row * kRowValues;
  std::array<float, kRowValues> input;
  std::uint32_t bad = 0;
  for (std::size_t j = 0; j < kRowValues; ++j) {
    input[j] = add(multiply(source.weight, delta[j]), multiply(source.short_scale, static_cast<float>(residual[j])));
    bad |= is_non_finite(input[j]) ? 1U : 0U;
  }
  if (bad != 0) return false;
  for (std::size_t j = 0; j < kRowValues; ++j) {
    const ShortQuantised value = quantise_short_value(input[j]);
    integers[j] = value.integer;
    residual[j] = value.residual;
    squares[j & 15U] = add(squares[j & 15U], multiply(value.rest, value.rest));
  }
  return true;
}

inline bool load_row(const GridSource& source, std::size_t row, Row& integers, std::array<float, 16>& squares) {
  switch (source.kind) {
    case SourceKind::kFloatResidual:
      return quantise_float_row(source, row, integers, squares);
    case SourceKind::kShortResidual:
      return quantise_short_row(source, row, integers, squares);
    case SourceKind::kIntegers16:
      std::copy_n(source.integers16 + row * kRowValues, kRowValues, integers.begin());
      return true;
    case SourceKind::kIntegers32:
      std::copy_n(source.integers32 + row * kRowValues, kRowValues, integers.begin());
      return true;
  }
  return false;
}

inline void split_low_bits(Row& integers, std::uint32_t low_bits, std::uint8_t* planes) {
  for (std::uint32_t bit = 0; bit < low_bits; ++bit) {
    std::uint64_t plane = 0;
    for (std::size_t j = 0; j < kRowValues; ++j) plane |= static_cast<std::uint64_t>((integers[j] >> bit) & 1) << j;
    store_le(planes + std::size_t{8} * bit, plane);
  }
  for (auto& integer : integers) integer >>= low_bits;
}

inline void join_low_bits(Row& integers, std::uint32_t low_bits, const std::uint8_t* planes) {
  for (auto& integer : integers) integer = static_cast<std::int32_t>(static_cast<std::uint32_t>(integer) << low_bits);
  for (std::uint32_t bit = 0; bit < low_bits; ++bit) {
    const auto plane = load_le<std::uint64_t>(planes + std::size_t{8} * bit);
    for (std::size_t j = 0; j < kRowValues; ++j) integers[j] |= static_cast<std::int32_t>((plane >> j) & 1U) << bit;
  }
}

// One integer to its place.
template <SinkKind Kind>
inline void deliver_integer(const GridSink& sink, std::size_t at, std::int32_t integer) {
  if constexpr (Kind == SinkKind::kFloatSet) {
    sink.values[at] = grid_value(integer, sink.scaled_step);
  } else if constexpr (Kind == SinkKind::kFloatAdd) {
    sink.values[at] = add(sink.values[at], grid_value(integer, sink.scaled_step));
  } else if constexpr (Kind == SinkKind::kInteger16Add) {
    sink.integers16[at] = static_cast<std::int16_t>(sink.integers16[at] + integer);
  } else if constexpr (Kind == SinkKind::kInteger32Set) {
    sink.integers32[at] = integer;
  } else {
    sink.integers32[at] += integer;
  }
}

inline void store_row(const GridSink& sink, std::size_t row, const Row& integers) {
  const std::size_t at = row * kRowValues;
  switch (sink.kind) {
    case SinkKind::kFloatSet:
      for (std::size_t j = 0; j < kRowValues; ++j) sink.values[at + j] = grid_value(integers[j], sink.scaled_step);
      break;
    case SinkKind::kFloatAdd:
      for (std::size_t j = 0; j < kRowValues; ++j) {
        sink.values[at + j] = add(sink.values[at + j], grid_value(integers[j], sink.scaled_step));
      }
      break;
    case SinkKind::kInteger16Add:
      for (std::size_t j = 0; j < kRowValues; ++j) {
        sink.integers16[at + j] = static_cast<std::int16_t>(sink.integers16[at + j] + integers[j]);
      }
      break;
    case SinkKind::kInteger32Set:
      std::copy(integers.begin(), integers.end(), sink.integers32 + at);
      break;
    case SinkKind::kInteger32Add:
      for (std::size_t j = 0; j < kRowValues; ++j) sink.integers32[at + j] += integers[j];
      break;
  }
}

inline bool is_row_within(const Row& integers, std::int32_t limit) {
  return std::all_of(integers.begin(), integers.end(), [limit](std::int32_t integer) { return integer <= limit && integer >= -limit; });
}

}  // namespace sluice::compression
