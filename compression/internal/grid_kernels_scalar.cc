// Portable kernels: the reference that every other instruction set must match byte for byte. Written for speed within plain C++:
// renormalisation without branches, one 32-bit table entry per symbol or slot.
#include <algorithm>
#include <cstring>

#include "compression/internal/grid_kernels.h"
#include "compression/internal/grid_value.h"

namespace sluice::compression {
namespace {

using Row = std::array<std::int32_t, kRowValues>;

// Each source quantises one row and updates its residual; false, with nothing changed, when a value is not finite.
bool quantise_float_row(const GridSource& source, std::size_t row, Row& integers, std::array<float, 16>& squares) {
  const float* delta = source.delta + row * kRowValues;
  float* residual = source.residual + row * kRowValues;
  std::array<float, kRowValues> input;
  std::uint32_t bad = 0;
  for (std::size_t j = 0; j < kRowValues; ++j) {
    input[j] = add(multiply(source.weight, delta[j]), residual[j]);
    bad |= is_non_finite(input[j]) ? 1U : 0U;
  }
  if (bad != 0) return false;
  for (std::size_t j = 0; j < kRowValues; ++j) {
    const Quantised value = quantise_value(input[j], source.step, source.inverse_step);
    integers[j] = value.integer;
    residual[j] = value.residual;
    squares[j & 15U] = add(squares[j & 15U], multiply(value.residual, value.residual));
  }
  return true;
}

bool quantise_short_row(const GridSource& source, std::size_t row, Row& integers, std::array<float, 16>& squares) {
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

bool load_row(const GridSource& source, std::size_t row, Row& integers, std::array<float, 16>& squares) {
  switch (source.kind) {
    case SourceKind::kFloatResidual: return quantise_float_row(source, row, integers, squares);
    case SourceKind::kShortResidual: return quantise_short_row(source, row, integers, squares);
    case SourceKind::kIntegers16: std::copy_n(source.integers16 + row * kRowValues, kRowValues, integers.begin()); return true;
    case SourceKind::kIntegers32: std::copy_n(source.integers32 + row * kRowValues, kRowValues, integers.begin()); return true;
  }
  return false;
}

void split_low_bits(Row& integers, std::uint32_t low_bits, std::uint8_t* planes) {
  for (std::uint32_t bit = 0; bit < low_bits; ++bit) {
    std::uint64_t plane = 0;
    for (std::size_t j = 0; j < kRowValues; ++j) plane |= static_cast<std::uint64_t>((integers[j] >> bit) & 1) << j;
    store_le(planes + std::size_t{8} * bit, plane);
  }
  for (auto& integer : integers) integer >>= low_bits;
}

// frequency | start << 8 | reciprocal << 16 of each symbol.
std::array<std::uint32_t, kModelSymbolsMax> encode_entries(const GridModel& model) {
  std::array<std::uint32_t, kModelSymbolsMax> entries{};
  for (std::size_t symbol = 0; symbol < model.symbol_count(); ++symbol) {
    entries[symbol] = model.frequency[symbol] | static_cast<std::uint32_t>(model.start[symbol]) << 8 |
                      static_cast<std::uint32_t>(model.reciprocal[symbol]) << 16;
  }
  return entries;
}

// frequency | rank << 8 | symbol << 16 of each slot.
std::array<std::uint32_t, kModelSlots> decode_entries(const GridModel& model) {
  std::array<std::uint32_t, kModelSlots> entries{};
  for (std::size_t slot = 0; slot < kModelSlots; ++slot) {
    const std::uint32_t symbol = model.symbol_of[slot];
    entries[slot] = model.frequency[symbol] | static_cast<std::uint32_t>(model.rank_of[slot]) << 8 | symbol << 16;
  }
  return entries;
}

std::size_t encode_rows(const GridModel& model, const GridSource& source, std::size_t rows, EncodeState& state) {
  const auto entries = encode_entries(model);
  const auto half_width = static_cast<std::uint32_t>(model.half_width());
  const std::uint32_t escape = model.escape_symbol();
  std::array<std::uint32_t, kRowValues> lanes;
  for (std::size_t j = 0; j < kRowValues; ++j) lanes[j] = static_cast<std::uint32_t>(state.high[j]) << 8 | state.low[j];
  std::uint8_t* out = state.out;
  Row integers;
  std::size_t failed_row = 0;
  for (std::size_t row = rows; row-- > 0;) {
    if (!load_row(source, row, integers, state.squares)) {
      failed_row = row + 1;
      break;
    }
    for (const std::int32_t integer : integers) state.nonzeros += integer != 0 ? 1U : 0U;
    if (state.low_bits != 0) split_low_bits(integers, state.low_bits, state.planes + std::size_t{8} * state.low_bits * row);
    for (std::size_t j = kRowValues; j-- > 0;) {
      const std::uint32_t symbol = std::min(static_cast<std::uint32_t>(integers[j]) + half_width, escape);
      if (symbol == escape) [[unlikely]] *--state.escapes = integers[j];
      const std::uint32_t entry = entries[symbol];
      const std::uint32_t frequency = entry & 255U;
      std::uint32_t x = lanes[j];
      const std::uint32_t emits = ((frequency << 8) - 1 - x) >> 31;
      out[-1] = static_cast<std::uint8_t>(x);
      out -= emits;
      x >>= 8 * emits;
      std::uint32_t quotient = (x * (entry >> 16)) >> 16;
      std::uint32_t rest = x - quotient * frequency;
      const std::uint32_t short_by_one = (frequency - 1 - rest) >> 31;
      quotient += short_by_one;
      rest -= frequency & (0U - short_by_one);
      lanes[j] = quotient << 8 | model.slot_of[((entry >> 8) & 255U) + rest];
    }
  }
  for (std::size_t j = 0; j < kRowValues; ++j) {
    state.high[j] = static_cast<std::uint8_t>(lanes[j] >> 8);
    state.low[j] = static_cast<std::uint8_t>(lanes[j]);
  }
  state.out = out;
  return failed_row;
}

void join_low_bits(Row& integers, std::uint32_t low_bits, const std::uint8_t* planes) {
  for (auto& integer : integers) integer = static_cast<std::int32_t>(static_cast<std::uint32_t>(integer) << low_bits);
  for (std::uint32_t bit = 0; bit < low_bits; ++bit) {
    const auto plane = load_le<std::uint64_t>(planes + std::size_t{8} * bit);
    for (std::size_t j = 0; j < kRowValues; ++j) integers[j] |= static_cast<std::int32_t>((plane >> j) & 1U) << bit;
  }
}

void store_row(const GridSink& sink, std::size_t row, const Row& integers) {
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
    case SinkKind::kInteger32Set: std::copy(integers.begin(), integers.end(), sink.integers32 + at); break;
    case SinkKind::kInteger32Add:
      for (std::size_t j = 0; j < kRowValues; ++j) sink.integers32[at + j] += integers[j];
      break;
  }
}

// One row of symbols. REQUIRES: 64 readable bytes at `in`.
const std::uint8_t* decode_row(const std::array<std::uint32_t, kModelSlots>& entries, std::array<std::uint32_t, kRowValues>& lanes,
                               const std::uint8_t* in, Row& symbols) {
  for (std::size_t j = 0; j < kRowValues; ++j) {
    const std::uint32_t entry = entries[lanes[j] & 255U];
    std::uint32_t x = (entry & 255U) * (lanes[j] >> 8) + ((entry >> 8) & 255U);
    const std::uint32_t reads = (x - 256U) >> 31;
    x = x << (8 * reads) | (*in & (0U - reads));
    in += reads;
    lanes[j] = x;
    symbols[j] = static_cast<std::int32_t>(entry >> 16);
  }
  return in;
}

bool is_row_within(const Row& integers, std::int32_t limit) {
  return std::all_of(integers.begin(), integers.end(), [limit](std::int32_t integer) { return integer <= limit && integer >= -limit; });
}

bool decode_rows(const GridModel& model, const GridSink& sink, std::size_t rows, DecodeState& state) {
  const auto entries = decode_entries(model);
  std::array<std::uint32_t, kRowValues> lanes;
  for (std::size_t j = 0; j < kRowValues; ++j) lanes[j] = static_cast<std::uint32_t>(state.high[j]) << 8 | state.low[j];
  const auto escape = static_cast<std::int32_t>(model.escape_symbol());
  Row integers;
  std::array<std::uint8_t, kRowValues> tail{};
  for (std::size_t row = 0; row < rows; ++row) {
    const auto left = static_cast<std::size_t>(state.in_end - state.in);
    if (left >= kRowValues) {
      state.in = decode_row(entries, lanes, state.in, integers);
    } else {
      tail.fill(0);
      std::copy_n(state.in, left, tail.begin());
      const auto used = static_cast<std::size_t>(decode_row(entries, lanes, tail.data(), integers) - tail.data());
      if (used > left) return false;
      state.in += used;
    }
    bool escaped = false;
    for (auto& integer : integers) {
      if (integer != escape) {
        integer -= model.half_width();
        continue;
      }
      escaped = true;
      if (!read_escape(state, model.half_width(), integer)) return false;
    }
    if (state.low_bits != 0) join_low_bits(integers, state.low_bits, state.planes + std::size_t{8} * state.low_bits * row);
    if (escaped && !is_row_within(integers, state.integer_limit)) return false;
    store_row(sink, row, integers);
  }
  for (std::size_t j = 0; j < kRowValues; ++j) {
    state.high[j] = static_cast<std::uint8_t>(lanes[j] >> 8);
    state.low[j] = static_cast<std::uint8_t>(lanes[j]);
  }
  return true;
}

std::size_t select_rows(const GridSource& source, std::size_t rows, std::uint32_t base, std::array<float, 16>& squares,
                        SparseList& list) {
  Row integers;
  for (std::size_t row = 0; row < rows; ++row) {
    if (!load_row(source, row, integers, squares)) return row + 1;
    for (std::size_t j = 0; j < kRowValues; ++j) {
      list.positions[list.count] = base + static_cast<std::uint32_t>(row * kRowValues + j);
      list.integers[list.count] = integers[j];
      list.count += integers[j] != 0 ? 1U : 0U;
    }
  }
  return 0;
}

void peek(const GridSource& source, std::size_t from, std::size_t count, std::int32_t* integers) {
  for (std::size_t index = 0; index < count; ++index) {
    const std::size_t at = from + index;
    switch (source.kind) {
      case SourceKind::kFloatResidual:
        integers[index] =
            grid_sample_integer(multiply(add(multiply(source.weight, source.delta[at]), source.residual[at]), source.inverse_step));
        break;
      case SourceKind::kShortResidual:
        integers[index] = grid_sample_integer(
            add(multiply(source.weight, source.delta[at]), multiply(source.short_scale, static_cast<float>(source.short_residual[at]))));
        break;
      case SourceKind::kIntegers16: integers[index] = source.integers16[at]; break;
      case SourceKind::kIntegers32: integers[index] = source.integers32[at]; break;
    }
  }
}

std::uint64_t total_magnitude(const std::int32_t* integers, std::size_t count) {
  std::uint64_t total = 0;
  for (std::size_t at = 0; at < count; ++at) total += static_cast<std::uint64_t>(integers[at] < 0 ? -std::int64_t{integers[at]} : integers[at]);
  return total;
}

void count_values(const std::int32_t* integers, std::size_t count, std::uint32_t low_bits, std::uint32_t, ValueCounts& counts) {
  // Four tables, so that a run of equal values does not wait for its own counter. The last entry takes what is beyond.
  std::array<std::array<std::uint32_t, 2 * kGridHalfWidthMax + 2>, 4> tables{};
  for (std::size_t at = 0; at < count; ++at) {
    const auto index = static_cast<std::uint32_t>((integers[at] >> low_bits) + kGridHalfWidthMax);
    ++tables[at & 3U][std::min<std::uint32_t>(index, 2 * kGridHalfWidthMax + 1)];
  }
  for (std::size_t value = 0; value < counts.size(); ++value) {
    counts[value] = tables[0][value] + tables[1][value] + tables[2][value] + tables[3][value];
  }
}

}  // namespace

bool read_escape(DecodeState& state, std::int32_t half_width, std::int32_t& integer) {
  const std::uint64_t negative = state.escapes->read(1);
  const std::uint32_t beyond = state.escapes->read_exp_golomb(state.escape_order);
  const std::int64_t magnitude = static_cast<std::int64_t>(beyond) + half_width + 1;
  const std::int64_t signed_value = negative != 0 ? -magnitude : magnitude;
  const std::int64_t limit = state.integer_limit;
  const std::int64_t whole = signed_value * (std::int64_t{1} << state.low_bits);
  if (state.escapes->failed() || whole > limit || whole < -limit - (std::int64_t{1} << state.low_bits)) return false;
  integer = static_cast<std::int32_t>(signed_value);
  return true;
}

const GridKernels& scalar_kernels() {
  static constexpr GridKernels kTable{"scalar", encode_rows, decode_rows, select_rows, peek, total_magnitude, count_values};
  return kTable;
}

}  // namespace sluice::compression
