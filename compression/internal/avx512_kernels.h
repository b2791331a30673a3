#pragma once

// AVX-512 (VBMI, VBMI2) kernels. Included by grid_kernels_simd.cc for that target only.
//
// 64 lanes are two byte vectors, high and low. Coding a row: the lanes that must shed a byte are found by one byte compare, the bytes are
// packed by vpcompressb and stored below the previous ones. The division by the frequency is done on even and odd lanes as 16-bit
// words with a reciprocal; its remainder is corrected in byte arithmetic, which GridModel's choice of frequencies makes exact. Look-ups
// among 256 entries are two vpermi2b and a blend. Decoding is the mirror image with vpexpandb; what a sink gets for a symbol is looked up
// in registers, and escapes, 0 at first, are put to their places a block of rows later. The error feedback of a row feeds the coder in
// registers; prefetches 1024 values ahead let memory and arithmetic overlap.

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "compression/internal/escape_rows.h"
#include "compression/internal/grid_kernels.h"
#include "compression/internal/grid_value.h"
#include "compression/internal/row_functions.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::compression::HWY_NAMESPACE {

inline constexpr std::ptrdiff_t kPrefetchBytes = 4096;

HWY_INLINE __mmask64 first_lanes(std::uint64_t count) { return _bzhi_u64(~std::uint64_t{0}, static_cast<std::uint32_t>(count)); }

// Prefetches `Lines` cache lines at a distance that may lie outside the array: a prefetch never faults. kLocality as for
// __builtin_prefetch: 3 into the first-level cache, 2 into the second.
template <int Lines, int kLocality = 3>
HWY_INLINE void prefetch_lines(const void* from, std::ptrdiff_t distance) {
  const auto address = reinterpret_cast<std::uintptr_t>(from) + static_cast<std::uintptr_t>(distance);
  for (std::uintptr_t line = 0; line < Lines; ++line) __builtin_prefetch(reinterpret_cast<const char*>(address + 64 * line), 0, kLocality);
}

struct RowVectors {
  __m512i q[4];
};

// Saturates 64 integers to bytes, in order.
HWY_INLINE __m512i pack_bytes(const RowVectors& row) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i low = _mm512_packs_epi32(row.q[0], row.q[1]);
  const __m512i high = _mm512_packs_epi32(row.q[2], row.q[3]);
  return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(low, high));
}

// Bytes of integers that are known to lie in 0 .. 255, in order.
HWY_INLINE __m512i pack_unsigned_bytes(const RowVectors& row) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i low = _mm512_packus_epi32(row.q[0], row.q[1]);
  const __m512i high = _mm512_packus_epi32(row.q[2], row.q[3]);
  return _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high));
}

// Table of 256 bytes. Four members and no array: g++ keeps objects with arrays in memory, and with them the states of the lanes, whose
// way through memory would be half the time of a row.
struct ByteTable {
  __m512i part0, part1, part2, part3;
  explicit ByteTable(const std::uint8_t* bytes)
      : part0(_mm512_load_si512(bytes)),
        part1(_mm512_load_si512(bytes + 64)),
        part2(_mm512_load_si512(bytes + 128)),
        part3(_mm512_load_si512(bytes + 192)) {}
  HWY_INLINE __m512i look_up(__m512i index, __mmask64 upper) const {
    const __m512i low = _mm512_permutex2var_epi8(part0, index, part1);
    return _mm512_mask_mov_epi8(low, upper, _mm512_permutex2var_epi8(part2, index, part3));
  }
};

class RowEncoder {
 public:
  RowEncoder(const GridModel& model, const EncodeState& state)
      : frequency_(_mm512_load_si512(model.frequency.data())),
        start_(_mm512_load_si512(model.start.data())),
        reciprocal_(_mm512_load_si512(model.reciprocal.data())),
        slot_(model.slot_of.data()),
        high_(_mm512_load_si512(state.high.data())),
        low_(_mm512_load_si512(state.low.data())),
        out_(state.out) {}

  HWY_INLINE void encode(__m512i symbols) {
    const __m512i even = _mm512_set1_epi16(0xff);
    const __m512i frequency = _mm512_permutexvar_epi8(symbols, frequency_);
    const __mmask64 sheds = _mm512_cmpge_epu8_mask(high_, frequency);
    const __m512i bytes = _mm512_maskz_compress_epi8(sheds, low_);
    const auto count = static_cast<std::uint64_t>(_mm_popcnt_u64(sheds));
    out_ -= count;
    _mm512_mask_storeu_epi8(out_, first_lanes(count), bytes);
    const __m512i low = _mm512_mask_mov_epi8(low_, sheds, high_);
    const __m512i high = _mm512_maskz_mov_epi8(_knot_mask64(sheds), high_);
    // 16-bit states of even lanes (high << 8 | low) and odd lanes.
    const __m512i x_even = _mm512_ternarylogic_epi32(_mm512_slli_epi16(high, 8), even, low, 0xf8);
    const __m512i x_odd = _mm512_ternarylogic_epi32(_mm512_srli_epi16(low, 8), even, high, 0xf2);
    const __m512i q_even = _mm512_mulhi_epu16(x_even, _mm512_permutexvar_epi16(symbols, reciprocal_));
    const __m512i q_odd = _mm512_mulhi_epu16(x_odd, _mm512_permutexvar_epi16(_mm512_srli_epi16(symbols, 8), reciprocal_));
    const __m512i p_even = _mm512_mullo_epi16(q_even, frequency);
    const __m512i p_odd = _mm512_mullo_epi16(q_odd, _mm512_andnot_si512(even, frequency));  // product lands in the odd byte
    const __m512i product = _mm512_ternarylogic_epi32(p_odd, even, p_even, 0xf8);
    const __m512i quotient = _mm512_or_si512(q_even, _mm512_slli_epi16(q_odd, 8));
    __m512i rest = _mm512_sub_epi8(low, product);
    const __mmask64 short_by_one = _mm512_cmpge_epu8_mask(rest, frequency);
    rest = _mm512_mask_sub_epi8(rest, short_by_one, rest, frequency);
    high_ = _mm512_mask_sub_epi8(quotient, short_by_one, quotient, _mm512_set1_epi8(-1));
    const __m512i index = _mm512_add_epi8(rest, _mm512_permutexvar_epi8(symbols, start_));
    low_ = slot_.look_up(index, _mm512_movepi8_mask(index));
  }

  void save(EncodeState& state) const {
    _mm512_store_si512(state.high.data(), high_);
    _mm512_store_si512(state.low.data(), low_);
    state.out = out_;
  }

 private:
  __m512i frequency_, start_, reciprocal_;
  ByteTable slot_;
  __m512i high_, low_;
  std::uint8_t* out_;
};

// Sources: integers of a row, its inputs kept so that the residual is stored only once the row is known to be finite.
template <SourceKind Kind>
class RowSource {
 public:
  explicit RowSource(const GridSource& source)
      : source_(source),
        weight_(_mm512_set1_ps(source.weight)),
        step_(_mm512_set1_ps(source.step)),
        inverse_(_mm512_set1_ps(source.inverse_step)),
        short_scale_(_mm512_set1_ps(source.short_scale)),
        decay_(_mm512_set1_ps(source.decay)) {}

  template <bool kBackward>
  HWY_INLINE void prefetch(std::size_t at) const {
    constexpr std::ptrdiff_t kDistance = kBackward ? -kPrefetchBytes : kPrefetchBytes;
    if constexpr (Kind == SourceKind::kFloatResidual) {
      prefetch_lines<4>(source_.delta + at, kDistance);
      prefetch_lines<4>(source_.residual + at, kDistance);
    } else if constexpr (Kind == SourceKind::kShortResidual) {
      prefetch_lines<4>(source_.delta + at, kDistance);
      prefetch_lines<2>(source_.short_residual + at, kDistance / 2);
    } else if constexpr (Kind == SourceKind::kIntegers16) {
      prefetch_lines<2>(source_.integers16 + at, kDistance);
    } else {
      prefetch_lines<4>(source_.integers32 + at, kDistance);
    }
  }

  HWY_INLINE void load(std::size_t at, RowVectors& row) {
    for (int v = 0; v < 4; ++v) {
      const std::size_t i = at + 16 * static_cast<std::size_t>(v);
      if constexpr (Kind == SourceKind::kFloatResidual) {
        const __m512 residual = _mm512_mul_ps(decay_, _mm512_loadu_ps(source_.residual + i));
        input_[v] = _mm512_add_ps(_mm512_mul_ps(weight_, _mm512_loadu_ps(source_.delta + i)), residual);
        row.q[v] = _mm512_cvtps_epi32(_mm512_mul_ps(input_[v], inverse_));
      } else if constexpr (Kind == SourceKind::kShortResidual) {
        const __m256i units = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source_.short_residual + i));
        const __m512 residual = _mm512_mul_ps(short_scale_, _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(units)));
        input_[v] = _mm512_add_ps(_mm512_mul_ps(weight_, _mm512_loadu_ps(source_.delta + i)), residual);
        row.q[v] = _mm512_cvtps_epi32(input_[v]);
      } else if constexpr (Kind == SourceKind::kIntegers16) {
        row.q[v] = _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(source_.integers16 + i)));
      } else {
        row.q[v] = _mm512_loadu_si512(source_.integers32 + i);
      }
    }
  }

  // Writes the residuals of the row and adds their squares.
  HWY_INLINE void store_residual(std::size_t at, const RowVectors& row, __m512& squares) const {
    for (int v = 0; v < 4; ++v) {
      const std::size_t i = at + 16 * static_cast<std::size_t>(v);
      if constexpr (Kind == SourceKind::kFloatResidual) {
        const __m512 rest = _mm512_sub_ps(input_[v], _mm512_mul_ps(step_, _mm512_cvtepi32_ps(row.q[v])));
        _mm512_storeu_ps(source_.residual + i, rest);
        squares = _mm512_add_ps(squares, _mm512_mul_ps(rest, rest));
      } else if constexpr (Kind == SourceKind::kShortResidual) {
        const __m512 rest = _mm512_sub_ps(input_[v], _mm512_cvtepi32_ps(row.q[v]));
        const __m512i units = _mm512_cvtps_epi32(_mm512_mul_ps(rest, _mm512_set1_ps(kShortResidualUnits)));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(source_.short_residual + i), _mm512_cvtepi32_epi16(units));
        squares = _mm512_add_ps(squares, _mm512_mul_ps(rest, rest));
      }
    }
  }

  // The rare row with integers beyond a byte: clamps what is beyond the grid. False when a value is not finite.
  HWY_NOINLINE bool settle(RowVectors& row) {
    if constexpr (Kind == SourceKind::kIntegers16 || Kind == SourceKind::kIntegers32) return true;
    constexpr auto kLargest = static_cast<float>(kGridIntegerMax);
    for (int v = 0; v < 4; ++v) {
      if (_mm512_fpclass_ps_mask(input_[v], 0x99) != 0) return false;  // NaN or infinity
      const __m512 scaled = Kind == SourceKind::kFloatResidual ? _mm512_mul_ps(input_[v], inverse_) : input_[v];
      const __m512 clamped = _mm512_max_ps(_mm512_min_ps(scaled, _mm512_set1_ps(kLargest)), _mm512_set1_ps(-kLargest));
      row.q[v] = _mm512_cvtps_epi32(clamped);
      if constexpr (Kind == SourceKind::kShortResidual) input_[v] = clamped;
    }
    return true;
  }

 private:
  const GridSource source_;  // by value: nothing that is written can alias it
  __m512 weight_, step_, inverse_, short_scale_, decay_;
  __m512 input_[4];
};

// Stores `low_bits` planes of the row and shifts them out of it; returns a mask of the lanes whose low bits are not 0.
HWY_INLINE __mmask64 split_low_bits(RowVectors& row, std::uint32_t low_bits, std::uint8_t* planes) {
  __mmask64 set = 0;
  for (std::uint32_t first = 0; first < low_bits; first += 8) {
    RowVectors part;
    for (int v = 0; v < 4; ++v) {
      part.q[v] = _mm512_and_si512(_mm512_srli_epi32(row.q[v], first), _mm512_set1_epi32(0xff));
    }
    const __m512i bytes = pack_unsigned_bytes(part);
    for (std::uint32_t bit = first; bit < low_bits && bit < first + 8; ++bit) {
      const __mmask64 plane = _mm512_test_epi8_mask(bytes, _mm512_set1_epi8(static_cast<char>(1U << (bit - first))));
      std::memcpy(planes + std::size_t{8} * bit, &plane, 8);
      set |= plane;
    }
  }
  for (int v = 0; v < 4; ++v) row.q[v] = _mm512_srai_epi32(row.q[v], low_bits);
  return set;
}

// The escapes of up to kEscapeRows rows, as bytes: at 3 bits every fourth row has one, so they are packed without a branch.
// Filled from its end, like the list they go to.
class EscapeBytes {
 public:
  HWY_INLINE void push(__mmask64 escaped, __m512i bytes) {
    const auto count = static_cast<std::uint64_t>(_mm_popcnt_u64(escaped));
    first_ -= count;
    _mm512_mask_storeu_epi8(first_, first_lanes(count), _mm512_maskz_compress_epi8(escaped, bytes));
  }

  // Moves all to the list that ends at `escapes`.
  HWY_INLINE void drain(std::int32_t*& escapes) {
    const auto count = static_cast<std::size_t>(bytes_ + sizeof bytes_ - first_);
    escapes -= count;
    for (std::size_t at = 0; at < count; at += 16) {
      const __m512i integers = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(first_ + at)));
      _mm512_mask_storeu_epi32(escapes + at, static_cast<__mmask16>(first_lanes(std::min<std::size_t>(16, count - at))), integers);
    }
    first_ = bytes_ + sizeof bytes_;
  }

 private:
  alignas(64) std::int8_t bytes_[kEscapeRows * kRowValues];
  std::int8_t padding_[64];  // readable behind the end
  std::int8_t* first_ = bytes_ + sizeof bytes_;
};

HWY_NOINLINE void push_escapes(const RowVectors& row, __mmask64 escaped, std::int32_t*& escapes) {
  alignas(64) std::int32_t integers[64];
  for (int v = 0; v < 4; ++v) _mm512_store_si512(integers + 16 * v, row.q[v]);
  while (escaped != 0) {
    const auto lane = static_cast<unsigned>(std::bit_width(escaped)) - 1U;
    *--escapes = integers[lane];
    escaped = _bzhi_u64(escaped, lane);
  }
}

template <SourceKind Kind, bool kHasLowBits>
HWY_NOINLINE std::size_t encode_rows_of(const GridModel& model, const GridSource& source, std::size_t rows, EncodeState& state) {
  RowEncoder encoder(model, state);
  RowSource<Kind> rows_source(source);
  const __m512i half_width = _mm512_set1_epi8(static_cast<char>(model.half_width()));
  const __m512i escape = _mm512_set1_epi8(static_cast<char>(model.escape_symbol()));
  __m512 squares = _mm512_load_ps(state.squares.data());
  EscapeBytes queue;
  std::uint64_t nonzeros = 0;
  std::size_t failed = 0;
  const std::uint32_t low_bits = state.low_bits;
  std::uint8_t* const planes = state.planes;
  for (std::size_t row_index = rows; row_index-- > 0;) {
    const std::size_t at = row_index * kRowValues;
    RowVectors row;
    rows_source.template prefetch<true>(at);
    rows_source.load(at, row);
    RowVectors high = row;
    __mmask64 low_set = 0;
    if constexpr (kHasLowBits) low_set = split_low_bits(high, low_bits, planes + std::size_t{8} * low_bits * row_index);
    const __m512i bytes = pack_bytes(high);
    const __m512i symbols = _mm512_min_epu8(_mm512_add_epi8(bytes, half_width), escape);
    const __mmask64 escaped = _mm512_cmpeq_epi8_mask(symbols, escape);
    // -128, -127 and 127 may be values beyond a byte, or none at all.
    const __mmask64 large = _mm512_cmple_epu8_mask(_mm512_sub_epi8(bytes, _mm512_set1_epi8(127)), _mm512_set1_epi8(2));
    if (large != 0) [[unlikely]] {
      if (!rows_source.settle(row)) {
        failed = row_index + 1;
        break;
      }
      high = row;
      if constexpr (kHasLowBits) low_set = split_low_bits(high, low_bits, planes + std::size_t{8} * low_bits * row_index);
      queue.drain(state.escapes);
      push_escapes(high, escaped, state.escapes);
    } else {
      queue.push(escaped, bytes);
    }
    if (row_index % kEscapeRows == 0) queue.drain(state.escapes);
    rows_source.store_residual(at, row, squares);
    nonzeros += static_cast<std::uint64_t>(_mm_popcnt_u64(_mm512_test_epi8_mask(bytes, bytes) | low_set));
    encoder.encode(symbols);
  }
  queue.drain(state.escapes);
  _mm512_store_ps(state.squares.data(), squares);
  state.nonzeros += static_cast<std::uint32_t>(nonzeros);
  encoder.save(state);
  return failed;
}

template <SourceKind Kind>
std::size_t encode_rows_with(const GridModel& model, const GridSource& source, std::size_t rows, EncodeState& state) {
  return state.low_bits == 0 ? encode_rows_of<Kind, false>(model, source, rows, state)
                             : encode_rows_of<Kind, true>(model, source, rows, state);
}

std::size_t encode_rows(const GridModel& model, const GridSource& source, std::size_t rows, EncodeState& state) {
  switch (source.kind) {
    case SourceKind::kFloatResidual:
      return encode_rows_with<SourceKind::kFloatResidual>(model, source, rows, state);
    case SourceKind::kShortResidual:
      return encode_rows_with<SourceKind::kShortResidual>(model, source, rows, state);
    case SourceKind::kIntegers16:
      return encode_rows_with<SourceKind::kIntegers16>(model, source, rows, state);
    case SourceKind::kIntegers32:
      return encode_rows_with<SourceKind::kIntegers32>(model, source, rows, state);
  }
  return 0;
}

// The symbols of the slots of a model, the top bit set where a slot means an escape.
struct SlotSymbols {
  alignas(64) std::uint8_t bytes[kModelSlots];
  explicit SlotSymbols(const GridModel& model) {
    const __m512i escape = _mm512_set1_epi8(static_cast<char>(model.escape_symbol()));
    for (std::size_t slot = 0; slot < kModelSlots; slot += 64) {
      const __m512i symbols = _mm512_load_si512(model.symbol_of.data() + slot);
      const __mmask64 escaped = _mm512_cmpeq_epi8_mask(symbols, escape);
      _mm512_store_si512(bytes + slot, _mm512_or_si512(symbols, _mm512_maskz_set1_epi8(escaped, -128)));
    }
  }
};

// Makes what is computed from `used` after this come after `done` in the instruction stream as well.
HWY_INLINE void keep_order(__m512i& done, __m512i& used) { asm("" : "+v"(done), "+v"(used)); }

class RowDecoder {
 public:
  RowDecoder(const GridModel& model, const DecodeState& state)
      : symbol_(SlotSymbols(model).bytes),
        rank_(model.rank_of.data()),
        frequency_(_mm512_load_si512(model.frequency.data())),
        high_(_mm512_load_si512(state.high.data())),
        low_(_mm512_load_si512(state.low.data())) {}

  // The symbols of one row as in SlotSymbols; `in` moves by the bytes taken. REQUIRES: 64 readable bytes at `in`.
  HWY_INLINE __m512i decode(const std::uint8_t*& in) {
    const __m512i even = _mm512_set1_epi16(0xff);
    const __mmask64 upper = _mm512_movepi8_mask(low_);
    // The time of a row is the latency from one low byte to the next, about 36 cycles, of which the look-ups are a third. All of them
    // become ready at once and wait for the one port that permutes, oldest first: the one that the product needs has to be the first.
    const __m512i symbols = symbol_.look_up(low_, upper);
    __m512i frequency = _mm512_permutexvar_epi8(symbols, frequency_);  // a top bit that is set does not matter
    keep_order(frequency, low_);
    const __m512i rank = rank_.look_up(low_, upper);
    const __m512i x_even = _mm512_add_epi16(_mm512_mullo_epi16(_mm512_and_si512(high_, even), _mm512_and_si512(frequency, even)),
                                            _mm512_and_si512(rank, even));
    const __m512i x_odd =
        _mm512_add_epi16(_mm512_mullo_epi16(_mm512_srli_epi16(high_, 8), _mm512_srli_epi16(frequency, 8)), _mm512_srli_epi16(rank, 8));
    const __m512i high = _mm512_ternarylogic_epi32(_mm512_srli_epi16(x_even, 8), even, x_odd, 0xf2);
    const __m512i low = _mm512_ternarylogic_epi32(_mm512_slli_epi16(x_odd, 8), even, x_even, 0xf8);
    const __mmask64 takes = _mm512_testn_epi8_mask(high, high);
    high_ = _mm512_mask_mov_epi8(high, takes, low);
    low_ = _mm512_mask_expand_epi8(low, takes, _mm512_loadu_si512(in));
    in += static_cast<std::uint64_t>(_mm_popcnt_u64(takes));
    return symbols;
  }

  void save(DecodeState& state) const {
    _mm512_store_si512(state.high.data(), high_);
    _mm512_store_si512(state.low.data(), low_);
  }

 private:
  ByteTable symbol_, rank_;

  __m512i frequency_, high_, low_;
};

// Byte kWidth * j + v is lane 64 / kWidth * v + j: vector v of a row is then what stays of 64 bytes after a shift by v bytes.
template <std::size_t kWidth>
constexpr std::array<std::uint8_t, 64> lane_order() {
  std::array<std::uint8_t, 64> order{};
  for (std::size_t byte = 0; byte < 64; ++byte) order[byte] = static_cast<std::uint8_t>(64 / kWidth * (byte % kWidth) + byte / kWidth);
  return order;
}
alignas(64) inline constexpr std::array<std::uint8_t, 64> kWordOrder = lane_order<2>();
alignas(64) inline constexpr std::array<std::uint8_t, 64> kDoubleWordOrder = lane_order<4>();

// What the sink gets for each symbol, 0 for an escape: a look-up by symbol is cheaper than widening, converting and multiplying.
struct SymbolValues {
  alignas(64) std::int32_t wide[32];
  alignas(64) std::int16_t narrow[32];
  SymbolValues(const GridModel& model, SinkKind kind, float step) {
    for (int symbol = 0; symbol < 32; ++symbol) {
      const int integer = symbol <= 2 * model.half_width() ? symbol - model.half_width() : 0;
      const bool is_float = kind == SinkKind::kFloatSet || kind == SinkKind::kFloatAdd;
      wide[symbol] = is_float ? std::bit_cast<std::int32_t>(grid_value(integer, step)) : integer;
      narrow[symbol] = static_cast<std::int16_t>(integer);
    }
  }
};

template <SinkKind Kind>
class RowSink {
  static constexpr bool kIsWord = Kind == SinkKind::kInteger16Add;

 public:
  RowSink(const GridModel& model, const GridSink& sink) : RowSink(SymbolValues(model, sink.kind, sink.scaled_step), sink) {}

  HWY_INLINE void prefetch(std::size_t at) const {
    // Into the second-level cache: the lines on their way to the first one are so few that waiting for memory would bound the rows.
    if constexpr (Kind == SinkKind::kFloatAdd) prefetch_lines<4, 2>(sink_.values + at, kPrefetchBytes);
    if constexpr (Kind == SinkKind::kInteger16Add) prefetch_lines<2>(sink_.integers16 + at, kPrefetchBytes);
    if constexpr (Kind == SinkKind::kInteger32Add) prefetch_lines<4>(sink_.integers32 + at, kPrefetchBytes);
  }

  // A row of symbols. Look-ups heed the low five bits of an index only.
  HWY_INLINE void store(std::size_t at, __m512i symbols) const {
    const __m512i ordered = _mm512_permutexvar_epi8(order_, symbols);
    if constexpr (kIsWord) {
      store_words(at, _mm512_permutexvar_epi16(ordered, low_));
      store_words(at + 32, _mm512_permutexvar_epi16(_mm512_srli_epi16(ordered, 8), low_));
    } else {
      store_vector(at, _mm512_permutex2var_epi32(low_, ordered, high_));
      store_vector(at + 16, _mm512_permutex2var_epi32(low_, _mm512_srli_epi32(ordered, 8), high_));
      store_vector(at + 32, _mm512_permutex2var_epi32(low_, _mm512_srli_epi32(ordered, 16), high_));
      store_vector(at + 48, _mm512_permutex2var_epi32(low_, _mm512_srli_epi32(ordered, 24), high_));
    }
  }

  // An escape at a place that got a 0 before.
  HWY_INLINE void deliver(std::size_t at, std::int32_t integer) const { deliver_integer<Kind>(sink_, at, integer); }

  HWY_INLINE void store_row(std::size_t at, const RowVectors& row) const {
    const __m512 step = _mm512_set1_ps(sink_.scaled_step);
    for (int v = 0; v < 4; ++v) {
      const std::size_t i = at + 16 * static_cast<std::size_t>(v);
      if constexpr (kIsWord) {
        std::int16_t* to = sink_.integers16 + i;
        const __m256i sum = _mm256_add_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(to)), _mm512_cvtepi32_epi16(row.q[v]));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), sum);
      } else if constexpr (Kind == SinkKind::kFloatSet || Kind == SinkKind::kFloatAdd) {
        store_vector(i, _mm512_castps_si512(_mm512_mul_ps(step, _mm512_cvtepi32_ps(row.q[v]))));
      } else {
        store_vector(i, row.q[v]);
      }
    }
  }

 private:
  RowSink(const SymbolValues& values, const GridSink& sink)
      : sink_(sink),
        order_(_mm512_load_si512(kIsWord ? kWordOrder.data() : kDoubleWordOrder.data())),
        low_(kIsWord ? _mm512_load_si512(values.narrow) : _mm512_load_si512(values.wide)),
        high_(_mm512_load_si512(values.wide + 16)) {}

  HWY_INLINE void store_words(std::size_t i, __m512i words) const {
    std::int16_t* to = sink_.integers16 + i;
    _mm512_storeu_si512(to, _mm512_add_epi16(_mm512_loadu_si512(to), words));
  }
  HWY_INLINE void store_vector(std::size_t i, __m512i values) const {
    if constexpr (Kind == SinkKind::kFloatSet) {
      _mm512_storeu_ps(sink_.values + i, _mm512_castsi512_ps(values));
    } else if constexpr (Kind == SinkKind::kFloatAdd) {
      _mm512_storeu_ps(sink_.values + i, _mm512_add_ps(_mm512_loadu_ps(sink_.values + i), _mm512_castsi512_ps(values)));
    } else if constexpr (Kind == SinkKind::kInteger32Set) {
      _mm512_storeu_si512(sink_.integers32 + i, values);
    } else {
      _mm512_storeu_si512(sink_.integers32 + i, _mm512_add_epi32(_mm512_loadu_si512(sink_.integers32 + i), values));
    }
  }
  const GridSink sink_;
  __m512i order_, low_, high_;
};

HWY_NOINLINE bool prepare_escapes(EscapeQueue& queue, std::size_t count) { return queue.prepare(count); }

// A row with low bits, as whole integers. False when an escape is missing or beyond the limit.
HWY_INLINE bool expand_row(DecodeState& state, __m512i bytes, __mmask64 escaped, std::size_t row_index, RowVectors& row) {
  row.q[0] = _mm512_cvtepi8_epi32(_mm512_castsi512_si128(bytes));
  row.q[1] = _mm512_cvtepi8_epi32(_mm512_extracti32x4_epi32(bytes, 1));
  row.q[2] = _mm512_cvtepi8_epi32(_mm512_extracti32x4_epi32(bytes, 2));
  row.q[3] = _mm512_cvtepi8_epi32(_mm512_extracti32x4_epi32(bytes, 3));
  if (escaped != 0) [[unlikely]] {
    if (!prepare_escapes(*state.escapes, kRowValues)) return false;
    alignas(64) std::int32_t integers[64];
    for (int v = 0; v < 4; ++v) _mm512_store_si512(integers + 16 * v, row.q[v]);
    for (__mmask64 left = escaped; left != 0; left = _blsr_u64(left)) {
      if (!state.escapes->take(integers[_tzcnt_u64(left)])) return false;
    }
    for (int v = 0; v < 4; ++v) row.q[v] = _mm512_load_si512(integers + 16 * v);
  }
  for (int v = 0; v < 4; ++v) row.q[v] = _mm512_slli_epi32(row.q[v], state.low_bits);
  const std::uint8_t* planes = state.planes + std::size_t{8} * state.low_bits * row_index;
  for (std::uint32_t bit = 0; bit < state.low_bits; ++bit) {
    std::uint64_t plane = 0;
    std::memcpy(&plane, planes + std::size_t{8} * bit, 8);
    const __m512i value = _mm512_set1_epi32(static_cast<std::int32_t>(1U << bit));
    for (int v = 0; v < 4; ++v) row.q[v] = _mm512_mask_or_epi32(row.q[v], static_cast<__mmask16>(plane >> (16 * v)), row.q[v], value);
  }
  if (escaped == 0) return true;
  const __m512i limit = _mm512_set1_epi32(state.integer_limit);
  const __m512i lower = _mm512_set1_epi32(-state.integer_limit);
  for (int v = 0; v < 4; ++v) {
    if ((_mm512_cmpgt_epi32_mask(row.q[v], limit) | _mm512_cmplt_epi32_mask(row.q[v], lower)) != 0) return false;
  }
  return true;
}

// Four escapes are read every so many rows, somewhat more than 3-bit chunks have: the rows wait for their own latency anyway.
inline constexpr std::size_t kReadAheadRows = 8;
// The processor fetches frames by itself, but stops at the end of each page.
inline constexpr std::ptrdiff_t kInputPrefetchBytes = 512;

HWY_NOINLINE void read_ahead(EscapeQueue& queue) { queue.read_ahead(); }

// Which lanes of up to kEscapeRows rows hold escapes. Masks go to memory as they are made; which of them are not 0 is looked up later.
class EscapeMasks {
 public:
  HWY_INLINE void set(std::size_t row, __mmask64 lanes) { _store_mask64(&lanes_[row], lanes); }

  // Puts the escapes of rows first .. first + rows - 1 to their places. False when there are fewer, or a broken one.
  template <SinkKind Kind>
  HWY_NOINLINE bool fill(std::size_t first, std::size_t rows, EscapeQueue& queue, const RowSink<Kind>& to) {
    for (std::size_t row = rows; row % 8 != 0; ++row) lanes_[row] = 0;
    std::uint64_t filled_rows[kEscapeRows + 8];
    std::uint64_t filled_lanes[kEscapeRows + 8];
    std::size_t count = 0;
    __m512i escapes = _mm512_setzero_si512();
    __m512i numbers = _mm512_add_epi64(_mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), _mm512_set1_epi64(static_cast<std::int64_t>(first)));
    for (std::size_t row = 0; row < rows; row += 8) {
      const __m512i lanes = _mm512_load_si512(&lanes_[row]);
      const __mmask8 some = _mm512_test_epi64_mask(lanes, lanes);
      _mm512_storeu_si512(filled_rows + count, _mm512_maskz_compress_epi64(some, numbers));
      _mm512_storeu_si512(filled_lanes + count, _mm512_maskz_compress_epi64(some, lanes));
      count += static_cast<std::size_t>(_mm_popcnt_u32(some));
      escapes = _mm512_add_epi64(escapes, _mm512_popcnt_epi64(lanes));
      numbers = _mm512_add_epi64(numbers, _mm512_set1_epi64(8));
    }
    return fill_escapes(queue, {filled_rows, count}, filled_lanes, static_cast<std::size_t>(_mm512_reduce_add_epi64(escapes)),
                        [&to](std::size_t at, std::int32_t integer) HWY_ATTR { to.deliver(at, integer); });
  }

 private:
  alignas(64) __mmask64 lanes_[kEscapeRows];
};

// Symbols of the next row; false when the bytes end too early.
HWY_INLINE bool next_row(RowDecoder& decoder, const std::uint8_t*& in, const std::uint8_t* in_end, std::uint8_t* tail, __m512i& symbols) {
  const auto left = static_cast<std::size_t>(in_end - in);
  if (left >= kRowValues) [[likely]] {
    symbols = decoder.decode(in);
    return true;
  }
  std::memcpy(tail, in, left);
  const std::uint8_t* tail_in = tail;
  symbols = decoder.decode(tail_in);
  const auto used = static_cast<std::size_t>(tail_in - tail);
  in += std::min(used, left);
  return used <= left;
}

template <SinkKind Kind>
HWY_NOINLINE bool decode_rows_to(const GridModel& model, const GridSink& sink, std::size_t rows, DecodeState& state) {
  RowDecoder decoder(model, state);
  const RowSink<Kind> to(model, sink);
  EscapeQueue& queue = *state.escapes;
  EscapeMasks escapes;
  alignas(64) std::uint8_t tail[2 * kRowValues] = {};
  const std::uint8_t* in = state.in;
  const std::uint8_t* const in_end = state.in_end;
  for (std::size_t first = 0; first < rows; first += kEscapeRows) {
    const std::size_t count = std::min(kEscapeRows, rows - first);
    for (std::size_t row = 0; row < count; ++row) {
      const std::size_t at = (first + row) * kRowValues;
      to.prefetch(at);
      if (row % kReadAheadRows == 0) read_ahead(queue);
      __m512i symbols;
      prefetch_lines<1>(in, kInputPrefetchBytes);
      if (!next_row(decoder, in, in_end, tail, symbols)) return false;
      escapes.set(row, _mm512_movepi8_mask(symbols));
      to.store(at, symbols);
    }
    if (!escapes.fill(first, count, queue, to)) return false;
  }
  state.in = in;
  decoder.save(state);
  return true;
}

// The same for rows with low bits, and for steps so small that a 0 and then an escape would not add up like the escape alone.
template <SinkKind Kind>
HWY_NOINLINE bool decode_whole_rows_to(const GridModel& model, const GridSink& sink, std::size_t rows, DecodeState& state) {
  RowDecoder decoder(model, state);
  const RowSink<Kind> to(model, sink);
  const __m512i half_width = _mm512_set1_epi8(static_cast<char>(model.half_width()));
  alignas(64) std::uint8_t tail[2 * kRowValues] = {};
  const std::uint8_t* in = state.in;
  const std::uint8_t* const in_end = state.in_end;
  for (std::size_t row_index = 0; row_index < rows; ++row_index) {
    const std::size_t at = row_index * kRowValues;
    to.prefetch(at);
    __m512i symbols;
    if (!next_row(decoder, in, in_end, tail, symbols)) return false;
    RowVectors row;
    const __m512i integers = _mm512_sub_epi8(symbols, half_width);
    if (!expand_row(state, integers, _mm512_movepi8_mask(symbols), row_index, row)) return false;
    to.store_row(at, row);
  }
  state.in = in;
  decoder.save(state);
  return true;
}

template <SinkKind Kind>
bool decode_rows_with(const GridModel& model, const GridSink& sink, std::size_t rows, DecodeState& state) {
  const bool whole = state.low_bits != 0 || (Kind == SinkKind::kFloatAdd && !is_normal(sink.scaled_step));
  return whole ? decode_whole_rows_to<Kind>(model, sink, rows, state) : decode_rows_to<Kind>(model, sink, rows, state);
}

bool decode_rows(const GridModel& model, const GridSink& sink, std::size_t rows, DecodeState& state) {
  switch (sink.kind) {
    case SinkKind::kFloatSet:
      return decode_rows_with<SinkKind::kFloatSet>(model, sink, rows, state);
    case SinkKind::kFloatAdd:
      return decode_rows_with<SinkKind::kFloatAdd>(model, sink, rows, state);
    case SinkKind::kInteger16Add:
      return decode_rows_with<SinkKind::kInteger16Add>(model, sink, rows, state);
    case SinkKind::kInteger32Set:
      return decode_rows_with<SinkKind::kInteger32Set>(model, sink, rows, state);
    case SinkKind::kInteger32Add:
      return decode_rows_with<SinkKind::kInteger32Add>(model, sink, rows, state);
  }
  return false;
}

constexpr std::array<std::uint8_t, 64> lane_bytes() {
  std::array<std::uint8_t, 64> lanes{};
  for (std::uint8_t lane = 0; lane < 64; ++lane) lanes[lane] = lane;
  return lanes;
}
alignas(64) inline constexpr std::array<std::uint8_t, 64> kLaneBytes = lane_bytes();

// Appends the nonzeros of a row with many or large integers.
HWY_NOINLINE void append_row(const RowVectors& row, std::uint32_t first, SparseList& list) {
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (std::uint32_t v = 0; v < 4; ++v) {
    const __mmask16 set = _mm512_test_epi32_mask(row.q[v], row.q[v]);
    const __m512i positions = _mm512_add_epi32(lanes, _mm512_set1_epi32(static_cast<std::int32_t>(first + 16 * v)));
    _mm512_storeu_si512(list.positions + list.count, _mm512_maskz_compress_epi32(set, positions));
    _mm512_storeu_si512(list.integers + list.count, _mm512_maskz_compress_epi32(set, row.q[v]));
    list.count += static_cast<std::size_t>(_mm_popcnt_u32(set));
  }
}

// Positions and integers of the nonzeros are appended by compressing stores.
template <SourceKind Kind>
HWY_NOINLINE std::size_t select_rows_of(const GridSource& source, std::size_t rows, std::uint32_t base, std::array<float, 16>& squares_out,
                                        SparseList& out) {
  RowSource<Kind> rows_source(source);
  SparseList list = out;
  __m512 squares = _mm512_loadu_ps(squares_out.data());
  std::size_t failed = 0;
  for (std::size_t row_index = 0; row_index < rows; ++row_index) {
    const std::size_t at = row_index * kRowValues;
    RowVectors row;
    rows_source.template prefetch<false>(at);
    rows_source.load(at, row);
    __m512i bytes = pack_bytes(row);
    const __mmask64 set = _mm512_test_epi8_mask(bytes, bytes);
    const auto count = static_cast<std::size_t>(_mm_popcnt_u64(set));
    const __mmask64 large = _mm512_cmpge_epu8_mask(_mm512_abs_epi8(bytes), _mm512_set1_epi8(127));
    if (large != 0 || count > 16) [[unlikely]] {
      if (large != 0 && !rows_source.settle(row)) {
        failed = row_index + 1;
        break;
      }
      append_row(row, base + static_cast<std::uint32_t>(at), list);
    } else {
      // Without a branch on the count, which is a coin toss at the densities that matter: garbage behind the end is overwritten.
      const __m128i lanes = _mm512_castsi512_si128(_mm512_maskz_compress_epi8(set, _mm512_load_si512(kLaneBytes.data())));
      const __m128i values = _mm512_castsi512_si128(_mm512_maskz_compress_epi8(set, bytes));
      const __m512i first = _mm512_set1_epi32(static_cast<std::int32_t>(base + static_cast<std::uint32_t>(at)));
      _mm512_storeu_si512(list.positions + list.count, _mm512_add_epi32(_mm512_cvtepu8_epi32(lanes), first));
      _mm512_storeu_si512(list.integers + list.count, _mm512_cvtepi8_epi32(values));
      list.count += count;
    }
    rows_source.store_residual(at, row, squares);
  }
  _mm512_storeu_ps(squares_out.data(), squares);
  out.count = list.count;
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
  RowSource<Kind> rows_source(source);
  RowVectors row;
  for (std::size_t at = 0; at < count; at += kRowValues) {
    rows_source.load(from + at, row);
    for (int v = 0; v < 4; ++v) {
      const __m512i bound = _mm512_set1_epi32(kGridIntegerMax);
      const __m512i q = _mm512_max_epi32(_mm512_min_epi32(row.q[v], bound), _mm512_set1_epi32(-kGridIntegerMax));
      _mm512_storeu_si512(integers + at + 16 * static_cast<std::size_t>(v), q);
    }
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

std::uint64_t total_magnitude(const std::int32_t* integers, std::size_t count) {
  __m512i total = _mm512_setzero_si512();
  for (std::size_t at = 0; at < count; at += 16) {
    const __m512i magnitude = _mm512_abs_epi32(_mm512_loadu_si512(integers + at));
    total = _mm512_add_epi64(total, _mm512_and_si512(magnitude, _mm512_set1_epi64(0xffffffff)));
    total = _mm512_add_epi64(total, _mm512_srli_epi64(magnitude, 32));
  }
  return static_cast<std::uint64_t>(_mm512_reduce_add_epi64(total));
}

std::uint32_t count_byte(const std::int8_t* bytes, std::size_t count, int value) {
  const __m512i wanted = _mm512_set1_epi8(static_cast<char>(value));
  std::uint64_t total = 0;
  for (std::size_t at = 0; at < count; at += kRowValues) {
    total += static_cast<std::uint64_t>(_mm_popcnt_u64(_mm512_cmpeq_epi8_mask(_mm512_loadu_si512(bytes + at), wanted)));
  }
  return static_cast<std::uint32_t>(total);
}

// One pass per value over the integers as bytes, from 0 outward, ended where too few are left to matter.
void count_values(const std::int32_t* integers, std::size_t count, std::uint32_t low_bits, std::uint32_t negligible, ValueCounts& counts) {
  constexpr std::size_t kBlock = 4096;
  alignas(64) std::int8_t bytes[kBlock];
  counts.fill(0);
  for (std::size_t first = 0; first < count; first += kBlock) {
    const std::size_t size = std::min(kBlock, count - first);
    for (std::size_t at = 0; at < size; at += kRowValues) {
      RowVectors row;
      for (int v = 0; v < 4; ++v) {
        row.q[v] = _mm512_srai_epi32(_mm512_loadu_si512(integers + first + at + 16 * static_cast<std::size_t>(v)), low_bits);
      }
      _mm512_store_si512(bytes + at, pack_bytes(row));
    }
    std::uint32_t left = static_cast<std::uint32_t>(size);
    for (int value = 0; value <= kGridHalfWidthMax && (count > kBlock || left >= negligible); ++value) {
      const std::uint32_t positive = count_byte(bytes, size, value);
      const std::uint32_t negative = value == 0 ? 0 : count_byte(bytes, size, -value);
      counts[static_cast<std::size_t>(kGridHalfWidthMax + value)] += positive;
      if (value != 0) counts[static_cast<std::size_t>(kGridHalfWidthMax - value)] += negative;
      left -= positive + negative;
    }
  }
}

const GridKernels& kernels() {
  static constexpr GridKernels kTable{"avx512", encode_rows, decode_rows, select_rows, peek, total_magnitude, count_values};
  return kTable;
}

}  // namespace sluice::compression::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
