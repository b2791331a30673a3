#pragma once

// Payload of GRID dense frames: model, escapes, lane states, rANS bytes, raw low-bit planes. Pure.

#include <cstdint>
#include <span>
#include <vector>

#include "compression/frame.h"
#include "compression/internal/grid_kernels.h"
#include "compression/internal/grid_model.h"

namespace sluice::compression {

// How a chunk will be coded, decided from a sample of its integers.
struct DensePlan {
  GridModel model;
  std::uint32_t low_bits = 0;
};

// Memory of an encoder, kept from frame to frame.
struct EncodeWorkspace {
  std::vector<std::uint8_t> frame;       // built backward from its end
  std::vector<std::int32_t> escapes;     // filled from its end; also the integers of a sparse chunk
  std::vector<std::uint32_t> positions;  // of a sparse chunk
  std::vector<std::uint8_t> bits;        // escape or magnitude section
  std::vector<std::int32_t> integers;    // a chunk as integers, where it has to be coded again
};

// Result of coding a chunk: a whole frame except hash, inside workspace.frame.
struct CodedPayload {
  ByteSpan payload;               // kFrameHeaderBytes before and kFrameTrailerBytes after it are free for the frame
  std::uint8_t* begin = nullptr;  // == payload.data()
  std::uint32_t coded_bits = 0;
  std::uint32_t nonzeros = 0;
  std::uint8_t model_a = 0;
  std::uint8_t model_b = 0;
  std::uint8_t model_c = 0;
  std::uint8_t magnitude_bits = 0;
  std::uint32_t model_bytes = 0;
  bool is_too_large = false;     // nothing is gained over plain integers: they are in workspace.integers, the payload is empty
  double squares = 0.0;          // sum of squared residuals, in the source's unit
  std::size_t failed_value = 0;  // 0, or 1 + index of the first value of the row that is not finite; nothing else is valid then
};

// Model and low bits for `count` integers of which the sample is a part. REQUIRES: sample not empty.
DensePlan plan_dense(const GridKernels& kernels, std::span<const std::int32_t> sample, std::size_t count);

// Codes `count` values of `source`. When a value is not finite, the rows already done are undone (undo_source).
CodedPayload encode_dense(const GridKernels& kernels, const DensePlan& plan, const GridSource& source, std::size_t count,
                          EncodeWorkspace& workspace);

// The parts of encode_dense around the rows, for coders that run them elsewhere. prepare_workspace makes room and returns the end
// of the payload: planes end there, coder bytes before them. finish_dense puts model, escapes and states in front of the coder bytes at
// state.out.
std::uint8_t* prepare_workspace(std::size_t rows, std::size_t low_bits, EncodeWorkspace& workspace);
CodedPayload finish_dense(const GridKernels& kernels, const DensePlan& plan, std::size_t count, const EncodeState& state,
                          std::span<const std::int32_t> escapes, std::uint8_t* frame_end, EncodeWorkspace& workspace);

// False when the payload does not decode to exactly what the header says.
bool decode_dense(const GridKernels& kernels, const FrameView& frame, const GridSink& sink);

// Delivers integers to values first, first + 1, ... of a sink.
void store_integers(const GridSink& sink, std::size_t first, std::span<const std::int32_t> integers);

// The last, short row of a source as a whole row, padded with zeros, and its residual written back.
class TailRow {
 public:
  // Copies values [row * kRowValues, row * kRowValues + count) of `source`.
  TailRow(const GridSource& source, std::size_t row, std::size_t count);
  [[nodiscard]] const GridSource& source() const { return padded_; }
  void write_residual_back();

 private:
  GridSource original_;
  GridSource padded_;
  std::size_t at_;
  std::size_t count_;
  std::array<float, kRowValues> delta_{};
  std::array<float, kRowValues> residual_{};
  std::array<std::int16_t, kRowValues> short_residual_{};
  std::array<std::int16_t, kRowValues> integers16_{};
  std::array<std::int32_t, kRowValues> integers32_{};
};

// residual = (residual + decoded) - input, for `integers` that begin at value `first` of the source. Integer sources: nothing.
void undo_source(const GridSource& source, std::size_t first, std::span<const std::int32_t> integers);

// Smallest b with every |integer| < 2^b.
std::uint8_t magnitude_bits_of(std::span<const std::int32_t> integers);

// Largest |q| that a frame may hold by its header.
std::int32_t integer_limit_of(const FrameHeader& header);

double sum_squares(const std::array<float, 16>& squares);

}  // namespace sluice::compression
