// Portable kernels: the reference that every other instruction set must match byte for byte. Written for speed within plain C++:
// renormalisation without branches, one 32-bit table entry per symbol or slot.
#include <algorithm>
#include <cstring>

#include "compression/internal/escape_rows.h"
#include "compression/internal/grid_kernels.h"
#include "compression/internal/grid_value.h"
#include "compression/internal/row_functions.h"

namespace sluice::compression {
namespace {

// `yes` when the condition is 1, `no` when it is 0, without the branch that compilers make of ?: where a coin toss decides.
std::uint32_t select(std::uint32_t condition, std::uint32_t yes, std::uint32_t no) { return no ^ ((yes ^ no) & (0U - condition)); }

// What coding a symbol takes. The reciprocal is floor(2^24 / frequency) + 1: with it the quotient of a state below 2^16 is exact, its
// error of less than frequency / 2^24 of the state being below 1 / frequency.
struct SymbolEntry {
  std::uint32_t reciprocal;
  std::uint16_t frequency;
  std::uint16_t start;
};

std::array<SymbolEntry, kModelSymbolsMax> encode_entries(const GridModel& model) {
  std::array<SymbolEntry, kModelSymbolsMax> entries{};
  for (std::size_t symbol = 0; symbol < model.symbol_count(); ++symbol) {
    entries[symbol] = SymbolEntry{(1U << 24) / model.frequency[symbol] + 1U, model.frequency[symbol], model.start[symbol]};
  }
  return entries;
}

// What a slot says: the integer, K + 1 for an escape.
std::array<std::int32_t, kModelSlots> slot_integers(const GridModel& model) {
  std::array<std::int32_t, kModelSlots> integers{};
  for (std::size_t slot = 0; slot < kModelSlots; ++slot) integers[slot] = model.symbol_of[slot] - model.half_width();
  return integers;
}

std::size_t encode_rows(const GridModel& model, const GridSource& source, std::size_t rows, EncodeState& state) {
  const auto entries = encode_entries(model);
  const auto half_width = static_cast<std::uint32_t>(model.half_width());
  const std::uint32_t escape = model.escape_symbol();
  const SymbolEntry* const entry_of = entries.data();
  const std::uint8_t* const slot_of = model.slot_of.data();
  std::uint32_t lanes[kRowValues];
  for (std::size_t j = 0; j < kRowValues; ++j) lanes[j] = static_cast<std::uint32_t>(state.high[j]) << 8 | state.low[j];
  std::uint8_t* out = state.out;
  std::int32_t* escapes = state.escapes;
  Row integers;
  const std::int32_t* const row_integers = integers.data();
  std::size_t failed_row = 0;
  for (std::size_t row = rows; row-- > 0;) {
    if (!load_row(source, row, integers, state.squares)) {
      failed_row = row + 1;
      break;
    }
    for (const std::int32_t integer : integers) state.nonzeros += integer != 0 ? 1U : 0U;
    if (state.low_bits != 0) split_low_bits(integers, state.low_bits, state.planes + std::size_t{8} * state.low_bits * row);
    for (std::size_t j = kRowValues; j-- > 0;) {
      const std::uint32_t symbol = std::min(static_cast<std::uint32_t>(row_integers[j]) + half_width, escape);
      if (symbol == escape) [[unlikely]]
        *--escapes = row_integers[j];
      const SymbolEntry& entry = entry_of[symbol];
      const std::uint32_t frequency = entry.frequency;
      const std::uint32_t before = lanes[j];
      const std::uint32_t high = before >> 8;
      const std::uint32_t sheds = (frequency - 1 - high) >> 31;
      out[-1] = static_cast<std::uint8_t>(before);
      out -= sheds;
      const std::uint32_t x = select(sheds, high, before);
      const auto quotient = static_cast<std::uint32_t>((std::uint64_t{x} * entry.reciprocal) >> 24);
      lanes[j] = quotient << 8 | slot_of[entry.start + x - quotient * frequency];
    }
  }
  for (std::size_t j = 0; j < kRowValues; ++j) {
    state.high[j] = static_cast<std::uint8_t>(lanes[j] >> 8);
    state.low[j] = static_cast<std::uint8_t>(lanes[j]);
  }
  state.out = out;
  state.escapes = escapes;
  return failed_row;
}

// One row of integers. REQUIRES: 64 readable bytes at `in`.
const std::uint8_t* decode_row(const GridModel& model, const std::int32_t* integer_of, std::uint32_t* lanes, const std::uint8_t* in,
                               std::int32_t* integers) {
  const std::uint8_t* const frequency_of = model.frequency_of.data();
  const std::uint8_t* const rank_of = model.rank_of.data();
  for (std::size_t j = 0; j < kRowValues; ++j) {
    const std::uint32_t slot = lanes[j] & 255U;
    const std::uint32_t x = frequency_of[slot] * (lanes[j] >> 8) + rank_of[slot];
    const std::uint32_t refilled = x << 8 | *in;
    const std::uint32_t takes = (x - 256U) >> 31;
    in += takes;
    lanes[j] = select(takes, refilled, x);
    integers[j] = integer_of[slot];
  }
  return in;
}

bool decode_rows(const GridModel& model, const GridSink& sink, std::size_t rows, DecodeState& state) {
  const auto integer_of = slot_integers(model);
  std::uint32_t lanes[kRowValues];
  for (std::size_t j = 0; j < kRowValues; ++j) lanes[j] = static_cast<std::uint32_t>(state.high[j]) << 8 | state.low[j];
  const std::int32_t escape = model.half_width() + 1;
  Row integers;
  std::array<std::uint8_t, kRowValues> tail{};
  for (std::size_t row = 0; row < rows; ++row) {
    const auto left = static_cast<std::size_t>(state.in_end - state.in);
    if (left >= kRowValues) {
      state.in = decode_row(model, integer_of.data(), lanes, state.in, integers.data());
    } else {
      tail.fill(0);
      std::copy_n(state.in, left, tail.begin());
      const auto used = static_cast<std::size_t>(decode_row(model, integer_of.data(), lanes, tail.data(), integers.data()) - tail.data());
      if (used > left) return false;
      state.in += used;
    }
    std::uint32_t escaped = 0;
    for (const std::int32_t integer : integers) escaped |= integer == escape ? 1U : 0U;
    if (escaped != 0) [[unlikely]] {
      if (!state.escapes->prepare(kRowValues)) return false;
      for (auto& integer : integers) {
        if (integer == escape && !state.escapes->take(integer)) return false;
      }
    }
    if (state.low_bits != 0) join_low_bits(integers, state.low_bits, state.planes + std::size_t{8} * state.low_bits * row);
    if (escaped != 0 && !is_row_within(integers, state.integer_limit)) return false;
    store_row(sink, row, integers);
  }
  for (std::size_t j = 0; j < kRowValues; ++j) {
    state.high[j] = static_cast<std::uint8_t>(lanes[j] >> 8);
    state.low[j] = static_cast<std::uint8_t>(lanes[j]);
  }
  return true;
}

std::size_t select_rows(const GridSource& source, std::size_t rows, std::uint32_t base, std::array<float, 16>& squares, SparseList& list) {
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
        integers[index] = grid_sample_integer(
            multiply(add(multiply(source.weight, source.delta[at]), multiply(source.decay, source.residual[at])), source.inverse_step));
        break;
      case SourceKind::kShortResidual:
        integers[index] = grid_sample_integer(
            add(multiply(source.weight, source.delta[at]), multiply(source.short_scale, static_cast<float>(source.short_residual[at]))));
        break;
      case SourceKind::kIntegers16:
        integers[index] = source.integers16[at];
        break;
      case SourceKind::kIntegers32:
        integers[index] = source.integers32[at];
        break;
    }
  }
}

std::uint64_t total_magnitude(const std::int32_t* integers, std::size_t count) {
  std::uint64_t total = 0;
  for (std::size_t at = 0; at < count; ++at)
    total += static_cast<std::uint64_t>(integers[at] < 0 ? -std::int64_t{integers[at]} : integers[at]);
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

const GridKernels& scalar_kernels() {
  static constexpr GridKernels kTable{"scalar", encode_rows, decode_rows, select_rows, peek, total_magnitude, count_values};
  return kTable;
}

}  // namespace sluice::compression
