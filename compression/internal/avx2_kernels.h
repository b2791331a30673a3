#pragma once

// AVX2 + BMI2 kernels. Included by grid_kernels_simd.cc for that target only.
//
// Lanes are 16-bit words, 16 to a vector. What a symbol says (frequency, first slot, reciprocal) comes from byte shuffles, what a slot says
// from gathers of 32-bit entries; bytes are packed and spread by shuffles from a table of all masks of 8 lanes. Within a row all gathers
// come before the byte output: data-dependent stores between gathers would make each wait for the other. Rows with values beyond the grid
// fall back on the portable row functions, which are rare enough not to matter.

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "compression/internal/escape_rows.h"
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

// Table entries at eight indices. A gather merges into its destination, and g++ leaves there what the register held before when it sees a
// full constant mask: every gather then waits for the previous group, which made decoding three times slower. A mask it cannot see
// through keeps the zeroed destination.
HWY_INLINE __m256i gather(const std::int32_t* table, __m256i index) {
  __m256i all = _mm256_set1_epi32(-1);
  asm("" : "+x"(all));
  return _mm256_mask_i32gather_epi32(_mm256_setzero_si256(), table, index, all, 4);
}

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

// For each mask of 8 lanes: where the bytes of 8 words go. `pack` puts the low bytes of the set lanes at the top of the lower 8 bytes,
// `spread` puts the next bytes into the low bytes of the set lanes and 0 elsewhere.
struct MaskShuffles {
  alignas(64) std::array<std::array<std::uint8_t, 16>, 256> pack{};
  alignas(64) std::array<std::array<std::uint8_t, 16>, 256> spread{};
};
constexpr MaskShuffles make_mask_shuffles() {
  MaskShuffles shuffles;
  for (std::uint32_t mask = 0; mask < 256; ++mask) {
    std::uint8_t count = 0;
    shuffles.pack[mask].fill(0x80);
    shuffles.spread[mask].fill(0x80);
    for (std::uint32_t lane = 0; lane < 8; ++lane) {
      if ((mask >> lane & 1U) != 0) shuffles.spread[mask][2 * lane] = count++;
    }
    std::uint32_t to = 8U - count;
    for (std::uint32_t lane = 0; lane < 8; ++lane) {
      if ((mask >> lane & 1U) != 0) shuffles.pack[mask][to++] = static_cast<std::uint8_t>(2 * lane);
    }
  }
  return shuffles;
}
inline constexpr MaskShuffles kMaskShuffles = make_mask_shuffles();

HWY_INLINE __m128i shuffle_of(const std::array<std::array<std::uint8_t, 16>, 256>& shuffles, std::uint32_t mask) {
  return _mm_load_si128(reinterpret_cast<const __m128i*>(shuffles[mask & 255U].data()));
}

// Table of 32 bytes for look-ups by symbol.
struct SymbolTable {
  __m256i part[2];
  explicit SymbolTable(const std::uint8_t* bytes) {
    for (int i = 0; i < 2; ++i) part[i] = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 16 * i)));
  }
  // `upper` has the top bit set where the symbol is 16 or more.
  HWY_INLINE __m256i look_up(__m256i symbols, __m256i upper, bool is_wide) const {
    const __m256i low = _mm256_shuffle_epi8(part[0], symbols);
    return is_wide ? _mm256_blendv_epi8(low, _mm256_shuffle_epi8(part[1], symbols), upper) : low;
  }
};

inline constexpr std::size_t kLaneVectors = kRowValues / 16;

// Codes rows. Lanes in the order of byte unpacking: vector 0 holds lanes 0-7 and 16-23, vector 1 lanes 8-15 and 24-31, ...
class RowEncoder {
 public:
  RowEncoder(const GridModel& model, const EncodeState& state)
      : frequency_(model.frequency.data()),
        start_(model.start.data()),
        reciprocal_low_(reciprocal_bytes(model, 0).data()),
        reciprocal_high_(reciprocal_bytes(model, 8).data()),
        is_wide_(model.symbol_count() > 16),
        out_(state.out) {
    for (std::size_t index = 0; index < kModelSlots; ++index) slot_[index] = model.slot_of[index];
    for (std::size_t lane = 0; lane < kRowValues; ++lane) {
      lanes_[place(lane)] = static_cast<std::uint16_t>(static_cast<std::uint32_t>(state.high[lane]) << 8 | state.low[lane]);
    }
  }

  // The symbols of 64 lanes as bytes.
  HWY_INLINE void encode(const __m256i (&symbols)[2]) {
    __m256i before[kLaneVectors];
    std::uint32_t sheds[2];
    for (std::size_t half = 0; half < 2; ++half) sheds[half] = encode_half(symbols[half], lanes_ + 32 * half, before + 2 * half);
    for (std::size_t half = 2; half-- > 0;) {
      emit(_mm256_extracti128_si256(before[2 * half + 1], 1), sheds[half] >> 24);
      emit(_mm256_extracti128_si256(before[2 * half], 1), sheds[half] >> 16);
      emit(_mm256_castsi256_si128(before[2 * half + 1]), sheds[half] >> 8);
      emit(_mm256_castsi256_si128(before[2 * half]), sheds[half]);
    }
  }

  void save(EncodeState& state) const {
    for (std::size_t lane = 0; lane < kRowValues; ++lane) {
      state.high[lane] = static_cast<std::uint8_t>(lanes_[place(lane)] >> 8);
      state.low[lane] = static_cast<std::uint8_t>(lanes_[place(lane)]);
    }
    state.out = out_;
  }

 private:
  static std::size_t place(std::size_t lane) { return (lane & 39U) | (lane & 8U) << 1 | (lane & 16U) >> 1; }
  static std::array<std::uint8_t, 32> reciprocal_bytes(const GridModel& model, int shift) {
    std::array<std::uint8_t, 32> bytes{};
    for (std::size_t symbol = 0; symbol < bytes.size(); ++symbol)
      bytes[symbol] = static_cast<std::uint8_t>(model.reciprocal[symbol] >> shift);
    return bytes;
  }

  // Codes 32 lanes; returns the mask of those that shed a byte, their states from before in `before`.
  HWY_INLINE std::uint32_t encode_half(__m256i symbols, std::uint16_t* lanes, __m256i* before) const {
    const __m256i zero = _mm256_setzero_si256();
    const __m256i upper = _mm256_slli_epi16(symbols, 3);
    const __m256i frequency = frequency_.look_up(symbols, upper, is_wide_);
    const __m256i start = start_.look_up(symbols, upper, is_wide_);
    const __m256i low = reciprocal_low_.look_up(symbols, upper, is_wide_);
    const __m256i high = reciprocal_high_.look_up(symbols, upper, is_wide_);
    const __m256i keeps0 = encode_lanes(_mm256_unpacklo_epi8(frequency, zero), _mm256_unpacklo_epi8(start, zero),
                                        _mm256_unpacklo_epi8(low, high), lanes, before[0]);
    const __m256i keeps1 = encode_lanes(_mm256_unpackhi_epi8(frequency, zero), _mm256_unpackhi_epi8(start, zero),
                                        _mm256_unpackhi_epi8(low, high), lanes + 16, before[1]);
    return ~static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_packs_epi16(keeps0, keeps1)));
  }

  // Codes 16 lanes; returns all ones where no byte is shed.
  HWY_INLINE __m256i encode_lanes(__m256i frequency, __m256i start, __m256i reciprocal, std::uint16_t* lanes, __m256i& before) const {
    before = _mm256_load_si256(reinterpret_cast<const __m256i*>(lanes));
    const __m256i high = _mm256_srli_epi16(before, 8);
    const __m256i keeps = _mm256_cmpgt_epi16(frequency, high);
    const __m256i x = _mm256_blendv_epi8(high, before, keeps);
    const __m256i estimate = _mm256_mulhi_epu16(x, reciprocal);
    __m256i rest = _mm256_sub_epi16(x, _mm256_mullo_epi16(estimate, frequency));
    const __m256i fits = _mm256_cmpgt_epi16(frequency, rest);
    rest = _mm256_sub_epi16(rest, _mm256_andnot_si256(fits, frequency));
    const __m256i quotient = _mm256_add_epi16(_mm256_add_epi16(estimate, fits), _mm256_set1_epi16(1));
    const __m256i index = _mm256_add_epi16(rest, start);
    const __m256i even = gather(slot_, _mm256_and_si256(index, _mm256_set1_epi32(0xffff)));
    const __m256i odd = gather(slot_, _mm256_srli_epi32(index, 16));
    const __m256i slots = _mm256_or_si256(even, _mm256_slli_epi32(odd, 16));
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), _mm256_or_si256(_mm256_slli_epi16(quotient, 8), slots));
    return keeps;
  }

  // Writes the low bytes of those of 8 lanes that shed. What else is written lies below and is overwritten next.
  HWY_INLINE void emit(__m128i lanes, std::uint32_t sheds) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out_ - 8), _mm_shuffle_epi8(lanes, shuffle_of(kMaskShuffles.pack, sheds)));
    out_ -= _mm_popcnt_u32(sheds & 255U);
  }

  SymbolTable frequency_, start_, reciprocal_low_, reciprocal_high_;
  bool is_wide_;
  std::uint8_t* out_;
  alignas(32) std::int32_t slot_[kModelSlots];
  alignas(32) std::uint16_t lanes_[kRowValues];
};

// Saturates 32 integers to bytes, in order.
HWY_INLINE __m256i pack_bytes(const __m256i* q) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3])), order);
}

HWY_INLINE std::uint64_t byte_mask(__m256i low, __m256i high) {
  return static_cast<std::uint32_t>(_mm256_movemask_epi8(low)) |
         static_cast<std::uint64_t>(static_cast<std::uint32_t>(_mm256_movemask_epi8(high))) << 32;
}

// The escapes of up to kEscapeRows rows as bytes, noted without a branch and then appended to the list, which fills from its end.
class EscapeBytes {
 public:
  HWY_INLINE void push(std::uint64_t escaped, const __m256i (&bytes)[2]) {
    store_vector(bytes_[count_], bytes[0]);
    store_vector(bytes_[count_] + 32, bytes[1]);
    lanes_[count_] = escaped;
    count_ += escaped != 0 ? 1U : 0U;
  }
  HWY_INLINE void drain(std::int32_t*& escapes) {
    for (std::size_t row = 0; row < count_; ++row) {
      for (std::uint64_t left = lanes_[row]; left != 0;) {
        const auto lane = static_cast<unsigned>(std::bit_width(left)) - 1U;
        *--escapes = bytes_[row][lane];
        left = _bzhi_u64(left, lane);
      }
    }
    count_ = 0;
  }

 private:
  alignas(32) std::int8_t bytes_[kEscapeRows + 1][kRowValues];
  std::uint64_t lanes_[kEscapeRows + 1];
  std::size_t count_ = 0;
};

HWY_NOINLINE void push_escapes(const RowVectors& row, std::uint64_t escaped, std::int32_t*& escapes) {
  alignas(32) std::int32_t integers[kRowValues];
  for (std::size_t g = 0; g < kGroups; ++g) store_vector(integers + 8 * g, row.q[g]);
  for (std::size_t j = kRowValues; j-- > 0;) {
    if ((escaped >> j & 1U) != 0) *--escapes = integers[j];
  }
}

// Stores the low-bit planes of a row and shifts them out of it; returns the lanes whose low bits are not 0.
HWY_INLINE std::uint64_t split_row(RowVectors& row, std::uint32_t low_bits, std::uint8_t* planes) {
  std::uint64_t set = 0;
  for (std::uint32_t bit = 0; bit < low_bits; ++bit) {
    std::uint64_t plane = 0;
    const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(31 - bit));
    for (std::size_t g = 0; g < kGroups; ++g) {
      const auto mask = static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_sll_epi32(row.q[g], shift))));
      plane |= static_cast<std::uint64_t>(mask) << (8 * g);
    }
    std::memcpy(planes + std::size_t{8} * bit, &plane, 8);
    set |= plane;
  }
  const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(low_bits));
  for (std::size_t g = 0; g < kGroups; ++g) row.q[g] = _mm256_sra_epi32(row.q[g], shift);
  return set;
}

template <SourceKind Kind>
HWY_NOINLINE std::size_t encode_rows_of(const GridModel& model, const GridSource& source, std::size_t rows, EncodeState& state) {
  RowEncoder encoder(model, state);
  const RowSource<Kind> rows_source(source);
  const __m256i half_width = _mm256_set1_epi8(static_cast<char>(model.half_width()));
  const __m256i escape = _mm256_set1_epi8(static_cast<char>(model.escape_symbol()));
  const __m256i zero = _mm256_setzero_si256();
  __m256 squares[2] = {_mm256_loadu_ps(state.squares.data()), _mm256_loadu_ps(state.squares.data() + 8)};
  EscapeBytes queue;
  const std::uint32_t low_bits = state.low_bits;
  std::uint8_t* const planes = state.planes;
  std::uint64_t nonzeros = 0;
  std::size_t failed = 0;
  for (std::size_t row_index = rows; row_index-- > 0;) {
    RowVectors row;
    rows_source.template prefetch<true>(row_index * kRowValues);
    if (!rows_source.load(row_index, row, squares)) {
      failed = row_index + 1;
      break;
    }
    std::uint64_t set = 0;
    if (low_bits != 0) set = split_row(row, low_bits, planes + std::size_t{8} * low_bits * row_index);
    const __m256i bytes[2] = {pack_bytes(row.q), pack_bytes(row.q + 4)};
    __m256i symbols[2];
    __m256i large[2];
    for (std::size_t half = 0; half < 2; ++half) {
      symbols[half] = _mm256_min_epu8(_mm256_add_epi8(bytes[half], half_width), escape);
      // -128, -127 and 127 may be values beyond a byte.
      const __m256i distance = _mm256_sub_epi8(bytes[half], _mm256_set1_epi8(127));
      large[half] = _mm256_cmpeq_epi8(_mm256_min_epu8(distance, _mm256_set1_epi8(2)), distance);
    }
    const std::uint64_t escaped = byte_mask(_mm256_cmpeq_epi8(symbols[0], escape), _mm256_cmpeq_epi8(symbols[1], escape));
    const __m256i any_large = _mm256_or_si256(large[0], large[1]);
    if (!_mm256_testz_si256(any_large, any_large)) [[unlikely]] {
      queue.drain(state.escapes);
      push_escapes(row, escaped, state.escapes);
    } else {
      queue.push(escaped, bytes);
    }
    if (row_index % kEscapeRows == 0) queue.drain(state.escapes);
    set |= ~byte_mask(_mm256_cmpeq_epi8(bytes[0], zero), _mm256_cmpeq_epi8(bytes[1], zero));
    nonzeros += static_cast<std::uint64_t>(_mm_popcnt_u64(set));
    encoder.encode(symbols);
  }
  queue.drain(state.escapes);
  state.nonzeros += static_cast<std::uint32_t>(nonzeros);
  _mm256_storeu_ps(state.squares.data(), squares[0]);
  _mm256_storeu_ps(state.squares.data() + 8, squares[1]);
  encoder.save(state);
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

// The symbols of a row as words, 16 lanes to a vector.
struct RowWords {
  __m256i lanes[kLaneVectors];
};

class RowDecoder {
 public:
  RowDecoder(const GridModel& model, const DecodeState& state) {
    for (std::size_t slot = 0; slot < kModelSlots; ++slot) {
      entries_[slot] = static_cast<std::int32_t>(model.frequency_of[slot] | static_cast<std::uint32_t>(model.rank_of[slot]) << 8 |
                                                 static_cast<std::uint32_t>(model.symbol_of[slot]) << 16);
    }
    for (std::size_t j = 0; j < kRowValues; ++j) {
      lanes_[j] = static_cast<std::uint16_t>(static_cast<std::uint32_t>(state.high[j]) << 8 | state.low[j]);
    }
  }

  // Decodes one row; `in` moves by the bytes taken. REQUIRES: kReadable readable bytes at `in`.
  static constexpr std::size_t kReadable = kRowValues + 16;
  HWY_INLINE void decode(const std::uint8_t*& in, RowWords& symbols) {
    for (std::size_t pair = 0; pair < kLaneVectors; pair += 2) {
      const __m256i x0 = decode_lanes(pair, symbols);
      const __m256i x1 = decode_lanes(pair + 1, symbols);
      const __m256i takes0 = _mm256_cmpeq_epi16(_mm256_srli_epi16(x0, 8), _mm256_setzero_si256());
      const __m256i takes1 = _mm256_cmpeq_epi16(_mm256_srli_epi16(x1, 8), _mm256_setzero_si256());
      // Groups of 8 lanes in the order 0, 2, 1, 3.
      const auto takes = static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_packs_epi16(takes0, takes1)));
      refill(pair, x0, takes0, takes, takes >> 16, in);
      refill(pair + 1, x1, takes1, takes >> 8, takes >> 24, in);
    }
  }

  void save(DecodeState& state) const {
    for (std::size_t j = 0; j < kRowValues; ++j) {
      state.high[j] = static_cast<std::uint8_t>(lanes_[j] >> 8);
      state.low[j] = static_cast<std::uint8_t>(lanes_[j]);
    }
  }

 private:
  // 16 lanes, still without the bytes that they take.
  HWY_INLINE __m256i decode_lanes(std::size_t vector, RowWords& symbols) const {
    const __m256i low_byte = _mm256_set1_epi16(0xff);
    const __m256i x = _mm256_load_si256(reinterpret_cast<const __m256i*>(lanes_ + 16 * vector));
    const __m256i index = _mm256_and_si256(x, low_byte);
    const __m256i even = gather(entries_, _mm256_and_si256(index, _mm256_set1_epi32(0xffff)));
    const __m256i odd = gather(entries_, _mm256_srli_epi32(index, 16));
    const __m256i slots = _mm256_blend_epi16(even, _mm256_slli_epi32(odd, 16), 0xaa);
    symbols.lanes[vector] = _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa);
    const __m256i product = _mm256_mullo_epi16(_mm256_and_si256(slots, low_byte), _mm256_srli_epi16(x, 8));
    return _mm256_add_epi16(product, _mm256_srli_epi16(slots, 8));
  }

  HWY_INLINE void refill(std::size_t vector, __m256i x, __m256i takes, std::uint32_t low, std::uint32_t high, const std::uint8_t*& in) {
    const __m128i first = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)), shuffle_of(kMaskShuffles.spread, low));
    in += _mm_popcnt_u32(low & 255U);
    const __m128i second = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)), shuffle_of(kMaskShuffles.spread, high));
    in += _mm_popcnt_u32(high & 255U);
    const __m256i bytes = _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
    const __m256i shifted = _mm256_blendv_epi8(x, _mm256_slli_epi16(x, 8), takes);
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes_ + 16 * vector), _mm256_or_si256(shifted, bytes));
  }

  alignas(32) std::int32_t entries_[kModelSlots];
  alignas(32) std::uint16_t lanes_[kRowValues];
};

// Symbols of the next row; false when the bytes end too early.
HWY_INLINE bool next_row(RowDecoder& decoder, const std::uint8_t*& in, const std::uint8_t* in_end, RowWords& symbols) {
  const auto left = static_cast<std::size_t>(in_end - in);
  if (left >= RowDecoder::kReadable) [[likely]] {
    decoder.decode(in, symbols);
    return true;
  }
  std::uint8_t tail[2 * RowDecoder::kReadable] = {};
  std::memcpy(tail, in, left);
  const std::uint8_t* tail_in = tail;
  decoder.decode(tail_in, symbols);
  const auto used = static_cast<std::size_t>(tail_in - tail);
  in += std::min(used, left);
  return used <= left;
}

template <SinkKind Kind>
HWY_INLINE void store_group(const GridSink& sink, std::size_t i, __m256i q, __m256 step) {
  if constexpr (Kind == SinkKind::kFloatSet) {
    _mm256_storeu_ps(sink.values + i, _mm256_mul_ps(step, _mm256_cvtepi32_ps(q)));
  } else if constexpr (Kind == SinkKind::kFloatAdd) {
    const __m256 value = _mm256_mul_ps(step, _mm256_cvtepi32_ps(q));
    _mm256_storeu_ps(sink.values + i, _mm256_add_ps(_mm256_loadu_ps(sink.values + i), value));
  } else if constexpr (Kind == SinkKind::kInteger16Add) {
    auto* const to = reinterpret_cast<__m128i*>(sink.integers16 + i);
    const __m256i low = _mm256_and_si256(q, _mm256_set1_epi32(0xffff));
    const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    _mm_storeu_si128(to, _mm_add_epi16(_mm_loadu_si128(to), words));
  } else if constexpr (Kind == SinkKind::kInteger32Set) {
    store_vector(sink.integers32 + i, q);
  } else {
    store_vector(sink.integers32 + i, _mm256_add_epi32(load_vector(sink.integers32 + i), q));
  }
}

// 16 integers as words.
template <SinkKind Kind>
HWY_INLINE void store_words(const GridSink& sink, std::size_t i, __m256i words, __m256 step) {
  if constexpr (Kind == SinkKind::kInteger16Add) {
    store_vector(sink.integers16 + i, _mm256_add_epi16(load_vector(sink.integers16 + i), words));
  } else {
    store_group<Kind>(sink, i, _mm256_cvtepi16_epi32(_mm256_castsi256_si128(words)), step);
    store_group<Kind>(sink, i + 8, _mm256_cvtepi16_epi32(_mm256_extracti128_si256(words, 1)), step);
  }
}

template <SinkKind Kind>
HWY_INLINE void prefetch_sink(const GridSink& sink, std::size_t at) {
  if constexpr (Kind == SinkKind::kFloatAdd) prefetch_lines<4>(sink.values + at, kPrefetchBytes);
  if constexpr (Kind == SinkKind::kInteger16Add) prefetch_lines<2>(sink.integers16 + at, kPrefetchBytes);
  if constexpr (Kind == SinkKind::kInteger32Add) prefetch_lines<4>(sink.integers32 + at, kPrefetchBytes);
}

HWY_NOINLINE bool prepare_escapes(EscapeQueue& queue, std::size_t count) { return queue.prepare(count); }

template <SinkKind Kind>
HWY_NOINLINE bool decode_rows_to(const GridModel& model, const GridSink& sink_in, std::size_t rows, DecodeState& state) {
  const GridSink sink = sink_in;
  RowDecoder decoder(model, state);
  const __m256i half_width = _mm256_set1_epi16(static_cast<std::int16_t>(model.half_width()));
  const __m256i escape = _mm256_set1_epi16(static_cast<std::int16_t>(model.escape_symbol()));
  const __m256 step = _mm256_set1_ps(sink.scaled_step);
  EscapeRows escapes;
  const std::uint8_t* in = state.in;
  const std::uint8_t* const in_end = state.in_end;
  for (std::size_t first = 0; first < rows; first += kEscapeRows) {
    const std::size_t last = std::min(first + kEscapeRows, rows);
    if (!prepare_escapes(*state.escapes, EscapeQueue::kBlock)) return false;
    for (std::size_t row_index = first; row_index < last; ++row_index) {
      const std::size_t at = row_index * kRowValues;
      RowWords symbols;
      prefetch_sink<Kind>(sink, at);
      if (!next_row(decoder, in, in_end, symbols)) return false;
      __m256i escaped[kLaneVectors];
      for (std::size_t v = 0; v < kLaneVectors; ++v) {
        escaped[v] = _mm256_cmpeq_epi16(symbols.lanes[v], escape);
        const __m256i words = _mm256_andnot_si256(escaped[v], _mm256_sub_epi16(symbols.lanes[v], half_width));
        store_words<Kind>(sink, at + 16 * v, words, step);
      }
      constexpr int kOrder = 0xd8;
      escapes.note(row_index, byte_mask(_mm256_permute4x64_epi64(_mm256_packs_epi16(escaped[0], escaped[1]), kOrder),
                                        _mm256_permute4x64_epi64(_mm256_packs_epi16(escaped[2], escaped[3]), kOrder)));
    }
    const auto deliver = [&](std::size_t at, std::int32_t integer) HWY_ATTR { deliver_integer<Kind>(sink, at, integer); };
    if (!escapes.fill(*state.escapes, deliver)) return false;
  }
  state.in = in;
  decoder.save(state);
  return true;
}

// Puts the low-bit planes of a row behind its high parts.
HWY_INLINE void join_row(RowVectors& row, std::uint32_t low_bits, const std::uint8_t* planes) {
  const __m256i lane_bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(low_bits));
  for (std::size_t g = 0; g < kGroups; ++g) row.q[g] = _mm256_sll_epi32(row.q[g], shift);
  for (std::uint32_t bit = 0; bit < low_bits; ++bit) {
    const __m256i value = _mm256_set1_epi32(static_cast<std::int32_t>(1U << bit));
    for (std::size_t g = 0; g < kGroups; ++g) {
      const __m256i lanes = _mm256_and_si256(_mm256_set1_epi32(planes[std::size_t{8} * bit + g]), lane_bit);
      row.q[g] = _mm256_or_si256(row.q[g], _mm256_and_si256(_mm256_cmpeq_epi32(lanes, lane_bit), value));
    }
  }
}

// A row with escapes and perhaps low bits. False when an escape is missing or beyond the limit.
HWY_NOINLINE bool store_rare_row(const GridModel& model, const GridSink& sink, std::size_t row_index, const RowVectors& row,
                                 DecodeState& state) {
  if (!prepare_escapes(*state.escapes, kRowValues)) return false;
  Row integers;
  for (std::size_t g = 0; g < kGroups; ++g) store_vector(integers.data() + 8 * g, row.q[g]);
  const auto escape = static_cast<std::int32_t>(model.escape_symbol()) - model.half_width();
  for (auto& integer : integers) {
    if (integer == escape && !state.escapes->take(integer)) return false;
  }
  if (state.low_bits != 0) join_low_bits(integers, state.low_bits, state.planes + std::size_t{8} * state.low_bits * row_index);
  if (!is_row_within(integers, state.integer_limit)) return false;
  store_row(sink, row_index, integers);
  return true;
}

// The same for rows with low bits, and for steps so small that a 0 and then an escape would not add up like the escape alone.
template <SinkKind Kind>
HWY_NOINLINE bool decode_whole_rows_to(const GridModel& model, const GridSink& sink_in, std::size_t rows, DecodeState& state) {
  const GridSink sink = sink_in;
  RowDecoder decoder(model, state);
  const __m256i half_width = _mm256_set1_epi16(static_cast<std::int16_t>(model.half_width()));
  const __m256i escape = _mm256_set1_epi16(static_cast<std::int16_t>(model.escape_symbol()));
  const __m256 step = _mm256_set1_ps(sink.scaled_step);
  const std::uint8_t* in = state.in;
  const std::uint8_t* const in_end = state.in_end;
  for (std::size_t row_index = 0; row_index < rows; ++row_index) {
    RowWords symbols;
    prefetch_sink<Kind>(sink, row_index * kRowValues);
    if (!next_row(decoder, in, in_end, symbols)) return false;
    RowVectors row;
    __m256i escaped = _mm256_setzero_si256();
    for (std::size_t v = 0; v < kLaneVectors; ++v) {
      escaped = _mm256_or_si256(escaped, _mm256_cmpeq_epi16(symbols.lanes[v], escape));
      const __m256i words = _mm256_sub_epi16(symbols.lanes[v], half_width);
      row.q[2 * v] = _mm256_cvtepi16_epi32(_mm256_castsi256_si128(words));
      row.q[2 * v + 1] = _mm256_cvtepi16_epi32(_mm256_extracti128_si256(words, 1));
    }
    if (!_mm256_testz_si256(escaped, escaped)) [[unlikely]] {
      if (!store_rare_row(model, sink, row_index, row, state)) return false;
      continue;
    }
    join_row(row, state.low_bits, state.planes + std::size_t{8} * state.low_bits * row_index);
    for (std::size_t g = 0; g < kGroups; ++g) store_group<Kind>(sink, row_index * kRowValues + 8 * g, row.q[g], step);
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
