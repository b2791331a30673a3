#pragma once

// The inner loops of the grid codecs, one table of functions per instruction set. All tables produce the same bytes, residuals and
// values; tests compare them. Callers hand over whole rows of 64 values (a short last row is padded with zeros by the caller).
//
// Coder state: 64 lanes of byte-wise rANS, value j of a row on lane j. A lane holds x in [256, 65536), kept as a high and
// a low byte. To code a symbol with f slots: while x >= 256 f (that is, high byte >= f) one byte leaves; then x = (x / f) * 256 + slot. The
// encoder walks the chunk backward and writes toward lower addresses, so the decoder walks and reads forward.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "compression/internal/escape_rows.h"
#include "compression/internal/grid_model.h"

namespace sluice::compression {

inline constexpr std::size_t kRowValues = 64;
// Bytes that a kernel may write beyond what it needs, before or after its output.
inline constexpr std::size_t kKernelSlack = 128;

enum class SourceKind : std::uint8_t { kFloatResidual, kShortResidual, kIntegers16, kIntegers32 };

// Where the integers of a chunk come from. Pointers address value 0.
struct GridSource {
  SourceKind kind = SourceKind::kIntegers32;
  const float* delta = nullptr;
  float weight = 1.0F;                     // kShortResidual: weight / step
  float* residual = nullptr;               // kFloatResidual
  float decay = 1.0F;                      // kFloatResidual: what of the old residual counts
  std::int16_t* short_residual = nullptr;  // kShortResidual, in units of the previous step / 32768
  float short_scale = 0.0F;                // kShortResidual: decay * (previous step / step / 32768)
  float step = 1.0F;
  float inverse_step = 1.0F;
  const std::int16_t* integers16 = nullptr;
  const std::int32_t* integers32 = nullptr;
};

// What an encoding carries from row to row.
struct EncodeState {
  alignas(64) std::array<std::uint8_t, 64> high;
  alignas(64) std::array<std::uint8_t, 64> low;
  // fp32 sums of squared residuals of values i with i mod 16 == l, rows in coding order, l ascending within a row.
  alignas(64) std::array<float, 16> squares{};
  std::uint8_t* out = nullptr;      // next byte goes to out[-1]; kKernelSlack bytes before it may be touched
  std::int32_t* escapes = nullptr;  // next escape goes to escapes[-1], so that they end up in ascending order
  std::uint8_t* planes = nullptr;   // low_bits planes of 8 bytes for row r at planes + 8 * low_bits * r
  std::uint32_t low_bits = 0;
  std::uint32_t nonzeros = 0;
  EncodeState() {
    high.fill(1);
    low.fill(0);
  }
};

enum class SinkKind : std::uint8_t { kFloatSet, kFloatAdd, kInteger16Add, kInteger32Set, kInteger32Add };

struct GridSink {
  SinkKind kind = SinkKind::kInteger32Set;
  float* values = nullptr;
  float scaled_step = 1.0F;
  std::int16_t* integers16 = nullptr;  // REQUIRES: the caller knows that no sum leaves int16
  std::int32_t* integers32 = nullptr;
};

struct DecodeState {
  alignas(64) std::array<std::uint8_t, 64> high{};
  alignas(64) std::array<std::uint8_t, 64> low{};
  const std::uint8_t* in = nullptr;
  const std::uint8_t* in_end = nullptr;
  const std::uint8_t* planes = nullptr;  // as in EncodeState
  std::uint32_t low_bits = 0;
  EscapeQueue* escapes = nullptr;
  std::int32_t integer_limit = 0;  // largest |q| that the frame may hold
};

// Positions and integers of the values that are not 0, ascending.
struct SparseList {
  std::uint32_t* positions = nullptr;
  std::int32_t* integers = nullptr;
  std::size_t count = 0;
};

using ValueCounts = std::array<std::uint32_t, 2 * kGridHalfWidthMax + 1>;

struct GridKernels {
  const char* name = "";
  // Rows rows-1 .. 0. Returns 0 when all are done; otherwise 1 + the row that holds a value that is not finite: the rows above it
  // are done, it and the rows below are untouched.
  std::size_t (*encode_rows)(const GridModel& model, const GridSource& source, std::size_t rows, EncodeState& state) = nullptr;
  // Rows 0 .. rows-1. False when the bytes end early or an escape is out of bounds.
  bool (*decode_rows)(const GridModel& model, const GridSink& sink, std::size_t rows, DecodeState& state) = nullptr;
  // Error feedback and quantisation of rows 0 .. rows-1, the integers that are not 0 appended to the list with positions from
  // `base` on. Same result for values that are not finite: 0, or 1 + the row, the rows below it being done.
  std::size_t (*select_rows)(const GridSource& source, std::size_t rows, std::uint32_t base, std::array<float, 16>& squares,
                             SparseList& list) = nullptr;
  // Integers of `count` values from `from` on (both multiples of kRowValues), nothing changed: grid_sample_integer of each.
  void (*peek)(const GridSource& source, std::size_t from, std::size_t count, std::int32_t* integers) = nullptr;
  // Sum of |integers|. REQUIRES: count a multiple of kRowValues, |integers| <= 2^29.
  std::uint64_t (*total_magnitude)(const std::int32_t* integers, std::size_t count) = nullptr;
  // Counts of integers >> low_bits: value v at counts[v + kGridHalfWidthMax]. Same requirements. May leave out values +-v and beyond
  // when fewer than `negligible` integers are that large.
  void (*count_values)(const std::int32_t* integers, std::size_t count, std::uint32_t low_bits, std::uint32_t negligible,
                       ValueCounts& counts) = nullptr;
};

// Portable C++, the reference for the others.
const GridKernels& scalar_kernels();
// The fastest table for this machine.
const GridKernels& best_kernels();
// True when this machine runs the AVX-512 table.
bool has_avx512();
// All tables that run on this machine, scalar first.
std::vector<const GridKernels*> available_kernels();

}  // namespace sluice::compression
