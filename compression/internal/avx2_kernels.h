#pragma once

// AVX2 + BMI2 kernels. Included by grid_kernels_simd.cc for that target only.
//
// Lanes are 32-bit here, eight to a vector; tables are gathered; bytes are packed and spread by pext and pdep. Within a row all gathers
// come first and the byte output after them: data-dependent stores between gathers would make each wait for the other. Rows with values
// beyond the grid, escapes or low bits fall back on the portable row functions, which are rare enough not to matter.

#include <immintrin.h>

#include <cstring>

#include "compression/internal/grid_kernels.h"
#include "compression/internal/row_functions.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::compression::HWY_NAMESPACE {

inline constexpr std::size_t kGroups = kRowValues / 8;
inline constexpr std::ptrdiff_t kPrefetchBytes = 4096;

// Prefetches at a distance that may lie outside the array: a prefetch never faults.
template <int Lines>
HWY_INLINE void prefetch_lines(const void* from, std::ptrdiff_t distance) {
  const auto address = reinterpret_cast<std::uintptr_t>(from) + static_cast<std::uintptr_t>(distance);
  for (std::uintptr_t line = 0; line < Lines; ++line) _mm_prefetch(reinterpret_cast<const char*>(address + 64 * line), _MM_HINT_T0);
}

struct RowVectors {
  __m256i q[kGroups];
};

HWY_INLINE __m256i load_vector(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
HWY_INLINE void store_vector(void* to, __m256i value) { _mm256_storeu_si256(static_cast<__m256i*>(to), value); }

// 0xff in byte j where bit j of the mask is set.
HWY_INLINE std::uint64_t spread_mask(std::uint32_t mask) { return _pdep_u64(mask, 0x0101010101010101ULL) * 0xffU; }

template <SourceKind Kind>
class RowSource {
 public:
  explicit RowSource(const GridSource& source)
      : source_(source),
        weight_(_mm256_set1_ps(source.weight)),
        step_(_mm256_set1_ps(source.step)),
        inverse_(_mm256_set1_ps(source.inverse_step)),
        short_scale_(_mm256_set1_ps(source.short_scale)),
        decay_(_mm256_set1_ps(source.decay)) {}

  template <bool kBackward>
  HWY_INLINE void prefetch(std::size_t at) const {
    constexpr std::ptrdiff_t kDistance = kBackward ? -kPrefetchBytes : kPrefetchBytes;
    if constexpr (Kind == SourceKind::kFloatResidual) {
      prefetch_lines<4>(source_.delta + at, kDistance);
      prefetch_lines<4>(source_.residual + at, kDistance);
    } else if constexpr (Kind == SourceKind::kShortResidual) {
      prefetch_lines<4>(source_.delta + at, kDistance);
      prefetch_lines<2>(source_.short_residual + at, kDistance / 2);
    }
  }

  // Integers of 8 values; `input` keeps what the residual is taken from.
  HWY_INLINE __m256i load_group(std::size_t i, __m256& input) const {
    if constexpr (Kind == SourceKind::kFloatResidual) {
      const __m256 residual = _mm256_mul_ps(decay_, _mm256_loadu_ps(source_.residual + i));
      input = _mm256_add_ps(_mm256_mul_ps(weight_, _mm256_loadu_ps(source_.delta + i)), residual);
      return _mm256_cvtps_epi32(_mm256_mul_ps(input, inverse_));
    } else if constexpr (Kind == SourceKind::kShortResidual) {
      const __m128i units = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source_.short_residual + i));
      const __m256 residual = _mm256_mul_ps(short_scale_, _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(units)));
      input = _mm256_add_ps(_mm256_mul_ps(weight_, _mm256_loadu_ps(source_.delta + i)), residual);
      return _mm256_cvtps_epi32(input);
    } else if constexpr (Kind == SourceKind::kIntegers16) {
      return _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source_.integers16 + i)));
    } else {
      return load_vector(source_.integers32 + i);
    }
  }

  HWY_INLINE void store_group(std::size_t i, __m256 input, __m256i q, __m256& squares) const {
    if constexpr (Kind == SourceKind::kFloatResidual) {
      const __m256 rest = _mm256_sub_ps(input, _mm256_mul_ps(step_, _mm256_cvtepi32_ps(q)));
      _mm256_storeu_ps(source_.residual + i, rest);
      squares = _mm256_add_ps(squares, _mm256_mul_ps(rest, rest));
    } else if constexpr (Kind == SourceKind::kShortResidual) {
      const __m256 rest = _mm256_sub_ps(input, _mm256_cvtepi32_ps(q));
      const __m256i units = _mm256_cvtps_epi32(_mm256_mul_ps(rest, _mm256_set1_ps(kShortResidualUnits)));
      const __m128i packed = _mm_packs_epi32(_mm256_castsi256_si128(units), _mm256_extracti128_si256(units, 1));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(source_.short_residual + i), packed);
      squares = _mm256_add_ps(squares, _mm256_mul_ps(rest, rest));
    }
  }

  // Loads a row, updates its residual; false when a value is not finite.
  HWY_INLINE bool load(std::size_t row_index, RowVectors& row, __m256 (&squares)[2]) const {
    const std::size_t at = row_index * kRowValues;
    if constexpr (Kind == SourceKind::kIntegers16 || Kind == SourceKind::kIntegers32) {
      __m256 none = _mm256_setzero_ps();
      for (std::size_t g = 0; g < kGroups; ++g) row.q[g] = load_group(at + 8 * g, none);
      return true;
    } else {
      __m256 input[kGroups];
      __m256i large = _mm256_setzero_si256();
      for (std::size_t g = 0; g < kGroups; ++g) {
        row.q[g] = load_group(at + 8 * g, input[g]);
        large = _mm256_or_si256(large, _mm256_abs_epi32(row.q[g]));
      }
      // The smallest int32 stands for all that does not fit; its absolute value keeps the top bit.
      if (!_mm256_testz_si256(large, _mm256_set1_epi32(static_cast<std::int32_t>(0xff800000U)))) [[unlikely]] {
        return load_large(row_index, row, squares);
      }
      for (std::size_t g = 0; g < kGroups; ++g) store_group(at + 8 * g, input[g], row.q[g], squares[g & 1U]);
      return true;
    }
  }

 private:
  HWY_NOINLINE bool load_large(std::size_t row_index, RowVectors& row, __m256 (&squares)[2]) const {
    Row integers;
    std::array<float, 16> sums;
    _mm256_storeu_ps(sums.data(), squares[0]);
    _mm256_storeu_ps(sums.data() + 8, squares[1]);
    if (!load_row(source_, row_index, integers, sums)) return false;
    for (std::size_t g = 0; g < kGroups; ++g) row.q[g] = load_vector(integers.data() + 8 * g);
    squares[0] = _mm256_loadu_ps(sums.data());
    squares[1] = _mm256_loadu_ps(sums.data() + 8);
    return true;
  }

  const GridSource source_;
  __m256 weight_, step_, inverse_, short_scale_, decay_;
};

// Tables of 32-bit entries for gathers.
struct EncodeTables {
  alignas(32) std::int32_t symbol[32] = {};  // frequency | start << 8 | reciprocal << 16
  alignas(32) std::int32_t slot[kModelSlots];
  explicit EncodeTables(const GridModel& model) {
    for (std::size_t s = 0; s < model.symbol_count(); ++s) {
      symbol[s] = static_cast<std::int32_t>(model.frequency[s] | static_cast<std::uint32_t>(model.start[s]) << 8 |
                                            static_cast<std::uint32_t>(model.reciprocal[s]) << 16);
    }
    for (std::size_t index = 0; index < kModelSlots; ++index) slot[index] = model.slot_of[index];
  }
};

// Codes one row; lanes are 16-bit states in 32 bits.
HWY_INLINE void encode_row(const EncodeTables& tables, const __m256i (&symbols)[kGroups], std::uint32_t* lanes, std::uint8_t*& out) {
  const __m256i low_byte = _mm256_set1_epi32(0xff);
  // The low bytes of 8 lanes, gathered into the first 8 bytes.
  const __m256i pick = _mm256_setr_epi32(0x0c080400, -1, -1, -1, 0x0c080400, -1, -1, -1);
  const __m256i join = _mm256_setr_epi32(0, 4, 1, 1, 1, 1, 1, 1);
  std::uint64_t bytes[kGroups];
  std::uint32_t masks[kGroups];
  for (std::size_t g = 0; g < kGroups; ++g) {
    const __m256i entry = _mm256_i32gather_epi32(tables.symbol, symbols[g], 4);
    const __m256i frequency = _mm256_and_si256(entry, low_byte);
    const __m256i reciprocal = _mm256_srli_epi32(entry, 16);
    __m256i x = load_vector(lanes + 8 * g);
    const __m256i high = _mm256_srli_epi32(x, 8);
    const __m256i keeps = _mm256_cmpgt_epi32(frequency, high);
    masks[g] = static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(keeps))) ^ 0xffU;
    const __m256i packed = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(x, pick), join);
    bytes[g] = static_cast<std::uint64_t>(_mm_cvtsi128_si64(_mm256_castsi256_si128(packed)));
    x = _mm256_blendv_epi8(high, x, keeps);
    __m256i quotient = _mm256_mulhi_epu16(x, reciprocal);
    __m256i rest = _mm256_sub_epi32(x, _mm256_mullo_epi16(quotient, frequency));
    const __m256i fits = _mm256_cmpgt_epi32(frequency, rest);
    rest = _mm256_sub_epi32(rest, _mm256_andnot_si256(fits, frequency));
    quotient = _mm256_add_epi32(quotient, _mm256_add_epi32(fits, _mm256_set1_epi32(1)));
    const __m256i index = _mm256_add_epi32(rest, _mm256_and_si256(_mm256_srli_epi32(entry, 8), low_byte));
    const __m256i slot = _mm256_i32gather_epi32(tables.slot, index, 4);
    store_vector(lanes + 8 * g, _mm256_or_si256(_mm256_slli_epi32(quotient, 8), slot));
  }
  for (std::size_t g = kGroups; g-- > 0;) {
    // The bytes go to the top of the word, so that what else is written lies below and is overwritten next.
    const std::uint64_t shed = _pext_u64(bytes[g], spread_mask(masks[g]));
    const auto count = static_cast<unsigned>(_mm_popcnt_u32(masks[g]));
    const std::uint64_t word = shed << ((64U - 8U * count) & 63U);
    std::memcpy(out - 8, &word, 8);
    out -= count;
  }
}

HWY_INLINE void load_lanes(const std::uint8_t* high, const std::uint8_t* low, std::uint32_t* lanes) {
  for (std::size_t j = 0; j < kRowValues; ++j) lanes[j] = static_cast<std::uint32_t>(high[j]) << 8 | low[j];
}

HWY_INLINE void save_lanes(const std::uint32_t* lanes, std::uint8_t* high, std::uint8_t* low) {
  for (std::size_t j = 0; j < kRowValues; ++j) {
    high[j] = static_cast<std::uint8_t>(lanes[j] >> 8);
    low[j] = static_cast<std::uint8_t>(lanes[j]);
  }
}

HWY_NOINLINE void push_escapes(const RowVectors& row, const __m256i (&symbols)[kGroups], std::uint32_t escape, std::int32_t*& escapes) {
  alignas(32) std::int32_t integers[kRowValues];
  alignas(32) std::uint32_t coded[kRowValues];
  for (std::size_t g = 0; g < kGroups; ++g) {
    store_vector(integers + 8 * g, row.q[g]);
    store_vector(coded + 8 * g, symbols[g]);
  }
  for (std::size_t j = kRowValues; j-- > 0;) {
    if (coded[j] == escape) *--escapes = integers[j];
  }
}

HWY_INLINE void split_row(RowVectors& row, std::uint32_t low_bits, std::uint8_t* planes) {
  for (std::uint32_t bit = 0; bit < low_bits; ++bit) {
    std::uint64_t plane = 0;
    const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(31 - bit));
    for (std::size_t g = 0; g < kGroups; ++g) {
      const auto mask = static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_sll_epi32(row.q[g], shift))));
      plane |= static_cast<std::uint64_t>(mask) << (8 * g);
    }
    std::memcpy(planes + std::size_t{8} * bit, &plane, 8);
  }
  const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(low_bits));
  for (std::size_t g = 0; g < kGroups; ++g) row.q[g] = _mm256_sra_epi32(row.q[g], shift);
}

template <SourceKind Kind>
HWY_NOINLINE std::size_t encode_rows_of(const GridModel& model, const GridSource& source, std::size_t rows, EncodeState& state) {
  const EncodeTables tables(model);
  const RowSource<Kind> rows_source(source);
  alignas(32) std::uint32_t lanes[kRowValues];
  load_lanes(state.high.data(), state.low.data(), lanes);
  const __m256i half_width = _mm256_set1_epi32(model.half_width());
  const __m256i escape = _mm256_set1_epi32(static_cast<std::int32_t>(model.escape_symbol()));
  __m256 squares[2] = {_mm256_loadu_ps(state.squares.data()), _mm256_loadu_ps(state.squares.data() + 8)};
  __m256i zeros = _mm256_setzero_si256();  // counts down
  std::uint8_t* out = state.out;
  std::int32_t* escapes = state.escapes;
  const std::uint32_t low_bits = state.low_bits;
  std::uint8_t* const planes = state.planes;
  std::size_t failed = 0;
  std::size_t row_index = rows;
  while (row_index-- > 0) {
    RowVectors row;
    rows_source.template prefetch<true>(row_index * kRowValues);
    if (!rows_source.load(row_index, row, squares)) {
      failed = row_index + 1;
      break;
    }
    for (std::size_t g = 0; g < kGroups; ++g) zeros = _mm256_add_epi32(zeros, _mm256_cmpeq_epi32(row.q[g], _mm256_setzero_si256()));
    if (low_bits != 0) split_row(row, low_bits, planes + std::size_t{8} * low_bits * row_index);
    __m256i symbols[kGroups];
    __m256i escaped = _mm256_setzero_si256();
    for (std::size_t g = 0; g < kGroups; ++g) {
      symbols[g] = _mm256_min_epu32(_mm256_add_epi32(row.q[g], half_width), escape);
      escaped = _mm256_or_si256(escaped, _mm256_cmpeq_epi32(symbols[g], escape));
    }
    if (!_mm256_testz_si256(escaped, escaped)) [[unlikely]]
      push_escapes(row, symbols, model.escape_symbol(), escapes);
    encode_row(tables, symbols, lanes, out);
  }
  alignas(32) std::int32_t counts[8];
  store_vector(counts, zeros);
  std::size_t nonzeros = (rows - failed) * kRowValues;
  for (const std::int32_t count : counts) nonzeros -= static_cast<std::size_t>(-count);
  state.nonzeros += static_cast<std::uint32_t>(nonzeros);
  _mm256_storeu_ps(state.squares.data(), squares[0]);
  _mm256_storeu_ps(state.squares.data() + 8, squares[1]);
  state.out = out;
  state.escapes = escapes;
  save_lanes(lanes, state.high.data(), state.low.data());
  return failed;
}

std::size_t encode_rows(const GridModel& model, const GridSource& source, std::size_t rows, EncodeState& state) {
  switch (source.kind) {
    case SourceKind::kFloatResidual:
      return encode_rows_of<SourceKind::kFloatResidual>(model, source, rows, state);
    case SourceKind::kShortResidual:
      return encode_rows_of<SourceKind::kShortResidual>(model, source, rows, state);
    case SourceKind::kIntegers16:
      return encode_rows_of<SourceKind::kIntegers16>(model, source, rows, state);
    case SourceKind::kIntegers32:
      return encode_rows_of<SourceKind::kIntegers32>(model, source, rows, state);
  }
  return 0;
}

// One row of symbols from 32-bit entries frequency | rank << 8 | symbol << 16. REQUIRES: 64 readable bytes at `in`.
HWY_INLINE const std::uint8_t* decode_row(const std::int32_t* entries, std::uint32_t* lanes, const std::uint8_t* in, RowVectors& symbols) {
  const __m256i low_byte = _mm256_set1_epi32(0xff);
  const __m256i least = _mm256_set1_epi32(256);
  for (std::size_t g = 0; g < kGroups; ++g) {
    __m256i x = load_vector(lanes + 8 * g);
    const __m256i entry = _mm256_i32gather_epi32(entries, _mm256_and_si256(x, low_byte), 4);
    symbols.q[g] = _mm256_srli_epi32(entry, 16);
    const __m256i rank = _mm256_and_si256(_mm256_srli_epi32(entry, 8), low_byte);
    x = _mm256_add_epi32(_mm256_mullo_epi16(_mm256_srli_epi32(x, 8), _mm256_and_si256(entry, low_byte)), rank);
    const __m256i takes = _mm256_cmpgt_epi32(least, x);
    const auto mask = static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(takes)));
    std::uint64_t word = 0;
    std::memcpy(&word, in, 8);
    const std::uint64_t spread = _pdep_u64(word, spread_mask(mask));
    in += _mm_popcnt_u32(mask);
    const __m256i bytes = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(spread)));
    x = _mm256_blendv_epi8(x, _mm256_or_si256(_mm256_slli_epi32(x, 8), bytes), takes);
    store_vector(lanes + 8 * g, x);
  }
  return in;
}

template <SinkKind Kind>
HWY_INLINE void store_symbols(const GridSink& sink, std::size_t at, const RowVectors& symbols, __m256i half_width, __m256 step) {
  for (std::size_t g = 0; g < kGroups; ++g) {
    const std::size_t i = at + 8 * g;
    const __m256i q = _mm256_sub_epi32(symbols.q[g], half_width);
    if constexpr (Kind == SinkKind::kFloatSet) {
      _mm256_storeu_ps(sink.values + i, _mm256_mul_ps(step, _mm256_cvtepi32_ps(q)));
    } else if constexpr (Kind == SinkKind::kFloatAdd) {
      const __m256 value = _mm256_mul_ps(step, _mm256_cvtepi32_ps(q));
      _mm256_storeu_ps(sink.values + i, _mm256_add_ps(_mm256_loadu_ps(sink.values + i), value));
    } else if constexpr (Kind == SinkKind::kInteger16Add) {
      auto* const to = reinterpret_cast<__m128i*>(sink.integers16 + i);
      const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
      _mm_storeu_si128(to, _mm_add_epi16(_mm_loadu_si128(to), words));
    } else if constexpr (Kind == SinkKind::kInteger32Set) {
      store_vector(sink.integers32 + i, q);
    } else {
      store_vector(sink.integers32 + i, _mm256_add_epi32(load_vector(sink.integers32 + i), q));
    }
  }
}

// A row with escapes or low bits. False when an escape is missing or beyond the limit.
HWY_NOINLINE bool store_rare_row(const GridModel& model, const GridSink& sink, std::size_t row_index, const RowVectors& symbols,
                                 DecodeState& state) {
  Row integers;
  for (std::size_t g = 0; g < kGroups; ++g) store_vector(integers.data() + 8 * g, symbols.q[g]);
  const auto escape = static_cast<std::int32_t>(model.escape_symbol());
  bool escaped = false;
  for (auto& integer : integers) {
    const bool is_escape = integer == escape;
    integer -= model.half_width();
    if (is_escape && !read_escape(state, model.half_width(), integer)) return false;
    escaped = escaped || is_escape;
  }
  if (state.low_bits != 0) join_low_bits(integers, state.low_bits, state.planes + std::size_t{8} * state.low_bits * row_index);
  if (escaped && !is_row_within(integers, state.integer_limit)) return false;
  store_row(sink, row_index, integers);
  return true;
}

template <SinkKind Kind>
HWY_NOINLINE bool decode_rows_to(const GridModel& model, const GridSink& sink_in, std::size_t rows, DecodeState& state) {
  const GridSink sink = sink_in;
  alignas(32) std::int32_t entries[kModelSlots];
  for (std::size_t slot = 0; slot < kModelSlots; ++slot) {
    const std::uint32_t symbol = model.symbol_of[slot];
    entries[slot] =
        static_cast<std::int32_t>(model.frequency[symbol] | static_cast<std::uint32_t>(model.rank_of[slot]) << 8 | symbol << 16);
  }
  alignas(32) std::uint32_t lanes[kRowValues];
  load_lanes(state.high.data(), state.low.data(), lanes);
  const __m256i half_width = _mm256_set1_epi32(model.half_width());
  const __m256i escape = _mm256_set1_epi32(static_cast<std::int32_t>(model.escape_symbol()));
  const __m256 step = _mm256_set1_ps(sink.scaled_step);
  const std::uint8_t* in = state.in;
  const std::uint8_t* const in_end = state.in_end;
  std::uint8_t tail[2 * kRowValues] = {};
  for (std::size_t row_index = 0; row_index < rows; ++row_index) {
    RowVectors symbols;
    if constexpr (Kind == SinkKind::kFloatAdd) prefetch_lines<4>(sink.values + row_index * kRowValues, kPrefetchBytes);
    const auto left = static_cast<std::size_t>(in_end - in);
    if (left >= kRowValues + 8) [[likely]] {
      in = decode_row(entries, lanes, in, symbols);
    } else {
      const std::size_t copied = std::min(left, sizeof tail);
      std::memset(tail, 0, sizeof tail);
      std::memcpy(tail, in, copied);
      const auto used = static_cast<std::size_t>(decode_row(entries, lanes, tail, symbols) - tail);
      if (used > left) return false;
      in += used;
    }
    __m256i escaped = _mm256_setzero_si256();
    for (std::size_t g = 0; g < kGroups; ++g) escaped = _mm256_or_si256(escaped, _mm256_cmpeq_epi32(symbols.q[g], escape));
    if (state.low_bits != 0 || !_mm256_testz_si256(escaped, escaped)) [[unlikely]] {
      if (!store_rare_row(model, sink, row_index, symbols, state)) return false;
    } else {
      store_symbols<Kind>(sink, row_index * kRowValues, symbols, half_width, step);
    }
  }
  state.in = in;
  save_lanes(lanes, state.high.data(), state.low.data());
  return true;
}

bool decode_rows(const GridModel& model, const GridSink& sink, std::size_t rows, DecodeState& state) {
  switch (sink.kind) {
    case SinkKind::kFloatSet:
      return decode_rows_to<SinkKind::kFloatSet>(model, sink, rows, state);
    case SinkKind::kFloatAdd:
      return decode_rows_to<SinkKind::kFloatAdd>(model, sink, rows, state);
    case SinkKind::kInteger16Add:
      return decode_rows_to<SinkKind::kInteger16Add>(model, sink, rows, state);
    case SinkKind::kInteger32Set:
      return decode_rows_to<SinkKind::kInteger32Set>(model, sink, rows, state);
    case SinkKind::kInteger32Add:
      return decode_rows_to<SinkKind::kInteger32Add>(model, sink, rows, state);
  }
  return false;
}

template <SourceKind Kind>
HWY_NOINLINE std::size_t select_rows_of(const GridSource& source, std::size_t rows, std::uint32_t base, std::array<float, 16>& squares_out,
                                        SparseList& list) {
  const RowSource<Kind> rows_source(source);
  __m256 squares[2] = {_mm256_loadu_ps(squares_out.data()), _mm256_loadu_ps(squares_out.data() + 8)};
  std::size_t failed = 0;
  for (std::size_t row_index = 0; row_index < rows; ++row_index) {
    RowVectors row;
    rows_source.template prefetch<false>(row_index * kRowValues);
    if (!rows_source.load(row_index, row, squares)) {
      failed = row_index + 1;
      break;
    }
    std::uint64_t zero = 0;
    for (std::size_t g = 0; g < kGroups; ++g) {
      const __m256i is_zero = _mm256_cmpeq_epi32(row.q[g], _mm256_setzero_si256());
      zero |= static_cast<std::uint64_t>(static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(is_zero)))) << (8 * g);
    }
    if (~zero == 0) continue;
    alignas(32) std::int32_t integers[kRowValues];
    for (std::size_t g = 0; g < kGroups; ++g) store_vector(integers + 8 * g, row.q[g]);
    for (std::uint64_t set = ~zero; set != 0; set &= set - 1) {
      const auto lane = static_cast<std::uint32_t>(__builtin_ctzll(set));
      list.positions[list.count] = base + static_cast<std::uint32_t>(row_index * kRowValues) + lane;
      list.integers[list.count] = integers[lane];
      ++list.count;
    }
  }
  _mm256_storeu_ps(squares_out.data(), squares[0]);
  _mm256_storeu_ps(squares_out.data() + 8, squares[1]);
  return failed;
}

std::size_t select_rows(const GridSource& source, std::size_t rows, std::uint32_t base, std::array<float, 16>& squares, SparseList& list) {
  switch (source.kind) {
    case SourceKind::kFloatResidual:
      return select_rows_of<SourceKind::kFloatResidual>(source, rows, base, squares, list);
    case SourceKind::kShortResidual:
      return select_rows_of<SourceKind::kShortResidual>(source, rows, base, squares, list);
    case SourceKind::kIntegers16:
      return select_rows_of<SourceKind::kIntegers16>(source, rows, base, squares, list);
    case SourceKind::kIntegers32:
      return select_rows_of<SourceKind::kIntegers32>(source, rows, base, squares, list);
  }
  return 0;
}

template <SourceKind Kind>
void peek_of(const GridSource& source, std::size_t from, std::size_t count, std::int32_t* integers) {
  const RowSource<Kind> rows_source(source);
  const __m256i bound = _mm256_set1_epi32(kGridIntegerMax);
  const __m256i lower = _mm256_set1_epi32(-kGridIntegerMax);
  for (std::size_t at = 0; at < count; at += 8) {
    __m256 input = _mm256_setzero_ps();
    const __m256i q = rows_source.load_group(from + at, input);
    store_vector(integers + at, _mm256_max_epi32(_mm256_min_epi32(q, bound), lower));
  }
}

void peek(const GridSource& source, std::size_t from, std::size_t count, std::int32_t* integers) {
  switch (source.kind) {
    case SourceKind::kFloatResidual:
      return peek_of<SourceKind::kFloatResidual>(source, from, count, integers);
    case SourceKind::kShortResidual:
      return peek_of<SourceKind::kShortResidual>(source, from, count, integers);
    case SourceKind::kIntegers16:
      return peek_of<SourceKind::kIntegers16>(source, from, count, integers);
    case SourceKind::kIntegers32:
      return peek_of<SourceKind::kIntegers32>(source, from, count, integers);
  }
}

const GridKernels& kernels() {
  static const GridKernels kTable{
      "avx2", encode_rows, decode_rows, select_rows, peek, scalar_kernels().total_magnitude, scalar_kernels().count_values};
  return kTable;
}

}  // namespace sluice::compression::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
