#include "compression/internal/dense_coder.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/assert.h"
#include "compression/internal/grid_value.h"
#include "compression/internal/model_fit.h"

// Frame layout, built from the end backward, because the rANS coder walks backward and its bytes then need no second copy:
//     header 48 | frequencies 2K+2 | escapes | lane states 128 | rANS bytes | planes 8 * low_bits * rows | hash 8

namespace sluice::compression {
namespace {

constexpr std::size_t kStateBytes = 128;
// Integers up to this many times K are worth coding whole; larger ones go out with raw low bits. Tuned on Gaussian chunks.
constexpr double kMeanPerLowBit = 4.5;

std::size_t rows_of(std::size_t count) { return (count + kRowValues - 1) / kRowValues; }

std::uint32_t choose_low_bits(std::uint64_t total_magnitude, std::size_t count) {
  const double mean = static_cast<double>(total_magnitude) / static_cast<double>(count);
  std::uint32_t low_bits = 0;
  for (double rest = mean; rest > kMeanPerLowBit && low_bits < kGridLowBitsMax; rest *= 0.5) ++low_bits;
  return low_bits;
}

// Escape order that needs the fewest bits for these magnitudes.
std::uint8_t choose_escape_order(std::span<const std::int32_t> escapes, std::int32_t half_width) {
  std::uint64_t total = 0;
  for (const std::int32_t integer : escapes) {
    total += static_cast<std::uint64_t>((integer < 0 ? -std::int64_t{integer} : std::int64_t{integer}) - half_width - 1);
  }
  if (escapes.empty()) return 0;
  const std::uint64_t mean = total / escapes.size();
  std::uint8_t order = 0;
  while ((std::uint64_t{2} << order) <= mean && order < 24) ++order;
  return order;
}

std::size_t write_escapes(std::span<const std::int32_t> escapes, std::int32_t half_width, unsigned order, std::vector<std::uint8_t>& bytes,
                          std::size_t& bit_count) {
  bytes.resize(std::max(bytes.size(), escapes.size() * 9 + 16));
  BitWriter writer(bytes.data());
  for (const std::int32_t integer : escapes) {
    const std::uint32_t magnitude = integer < 0 ? 0U - static_cast<std::uint32_t>(integer) : static_cast<std::uint32_t>(integer);
    writer.write_signed_exp_golomb(integer < 0, magnitude - static_cast<std::uint32_t>(half_width) - 1U, order);
  }
  bit_count = writer.bit_count();
  return writer.byte_count();
}

// Decodes again rows first_row .. of what was coded so far, into workspace.integers.
void recover_integers(const GridKernels& kernels, const DensePlan& plan, std::size_t first_row, std::size_t count, const EncodeState& state,
                      std::span<const std::int32_t> escapes, EncodeWorkspace& workspace) {
  const std::size_t rows = rows_of(count) - first_row;
  std::size_t bit_count = 0;
  const std::size_t escape_bytes = write_escapes(escapes, plan.model.half_width(), 0, workspace.bits, bit_count);
  constexpr std::int32_t kLimit = static_cast<std::int32_t>(kContributionsMax) * kGridIntegerMax;
  EscapeQueue queue(ByteSpan(workspace.bits).first(escape_bytes), 0, state.low_bits, plan.model.half_width(), kLimit);
  DecodeState decode;
  decode.high = state.high;
  decode.low = state.low;
  decode.in = state.out;
  decode.in_end = workspace.frame.data() + workspace.frame.size();
  decode.planes = state.planes + std::size_t{8} * state.low_bits * first_row;
  decode.low_bits = state.low_bits;
  decode.escapes = &queue;
  decode.integer_limit = kLimit;
  workspace.integers.resize(std::max(workspace.integers.size(), rows * kRowValues));
  GridSink sink;
  sink.integers32 = workspace.integers.data();
  const bool decoded = kernels.decode_rows(plan.model, sink, rows, decode);
  SLUICE_ASSERT(decoded, "rows coded in this call must decode");
}

}  // namespace

DensePlan plan_dense(const GridKernels& kernels, std::span<const std::int32_t> sample, std::size_t count) {
  SLUICE_ASSERT(!sample.empty());
  DensePlan plan;
  // Whole rows for the kernels; a short rest of a small chunk is added by hand.
  const std::size_t whole = sample.size() / kRowValues * kRowValues;
  std::array<std::int32_t, kRowValues> rest{};
  std::copy(sample.begin() + static_cast<std::ptrdiff_t>(whole), sample.end(), rest.begin());
  const std::uint64_t magnitude = kernels.total_magnitude(sample.data(), whole) + kernels.total_magnitude(rest.data(), kRowValues);
  plan.low_bits = choose_low_bits(magnitude, sample.size());
  // Values so rare that they are no symbols are not counted: kernels may leave out what they like of them.
  const auto negligible = static_cast<std::uint32_t>(sample.size() / (2 * kModelSlots)) + 1;
  ValueCounts counts{};
  kernels.count_values(sample.data(), whole, plan.low_bits, negligible, counts);
  if (whole != sample.size()) {
    for (std::size_t at = whole; at < sample.size(); ++at) {
      const auto index = static_cast<std::uint32_t>((sample[at] >> plan.low_bits) + kGridHalfWidthMax);
      if (index < counts.size()) ++counts[index];
    }
  }
  constexpr std::size_t kZero = kGridHalfWidthMax;
  std::uint32_t inside = counts[kZero];
  for (std::size_t value = 1; value <= kZero; ++value) {
    if (sample.size() - inside < negligible) counts[kZero - value] = counts[kZero + value] = 0;
    inside += counts[kZero - value] + counts[kZero + value];
  }
  plan.model = choose_model(sample.size() == count ? counted_shares(counts, count) : estimate_shares(counts, sample.size()));
  return plan;
}

std::uint8_t* prepare_workspace(std::size_t rows, std::size_t low_bits, EncodeWorkspace& workspace) {
  const std::size_t values = rows * kRowValues;
  // The rANS bytes (at most one per value) and planes, and in front of them as much as a payload may have at all.
  const std::size_t need = kFrameHeaderBytes + 4 * values + values + 8 * low_bits * rows + kFrameTrailerBytes + 3 * kKernelSlack;
  if (workspace.frame.size() < need) workspace.frame.resize(need);
  if (workspace.escapes.size() < values + kKernelSlack) workspace.escapes.resize(values + kKernelSlack);
  return workspace.frame.data() + workspace.frame.size() - kKernelSlack - kFrameTrailerBytes;
}

CodedPayload encode_dense(const GridKernels& kernels, const DensePlan& plan, const GridSource& source, std::size_t count,
                          EncodeWorkspace& workspace) {
  const std::size_t rows = rows_of(count);
  const std::size_t full_rows = count / kRowValues;
  std::uint8_t* const frame_end = prepare_workspace(rows, plan.low_bits, workspace);
  EncodeState state;
  state.low_bits = plan.low_bits;
  state.planes = frame_end - std::size_t{8} * plan.low_bits * rows;
  state.out = state.planes;
  std::int32_t* const escapes_end = workspace.escapes.data() + workspace.escapes.size();
  state.escapes = escapes_end;
  std::size_t failed = 0;
  if (full_rows != rows) {
    TailRow tail(source, full_rows, count % kRowValues);
    EncodeState tail_state = state;
    tail_state.planes += std::size_t{8} * plan.low_bits * full_rows;
    failed = kernels.encode_rows(plan.model, tail.source(), 1, tail_state) == 0 ? 0 : full_rows + 1;
    tail_state.planes = state.planes;
    state = tail_state;
    if (failed == 0) tail.write_residual_back();
  }
  if (failed == 0) failed = kernels.encode_rows(plan.model, source, full_rows, state);
  const std::span<const std::int32_t> escapes(state.escapes, escapes_end);
  if (failed != 0) {
    CodedPayload coded;
    coded.failed_value = (failed - 1) * kRowValues + 1;
    const std::size_t first = failed * kRowValues;
    if (first >= count) return coded;
    recover_integers(kernels, plan, failed, count, state, escapes, workspace);
    undo_source(source, first, std::span<const std::int32_t>(workspace.integers).first(count - first));
    return coded;
  }
  return finish_dense(kernels, plan, count, state, escapes, frame_end, workspace);
}

CodedPayload finish_dense(const GridKernels& kernels, const DensePlan& plan, std::size_t count, const EncodeState& state,
                          std::span<const std::int32_t> escapes, std::uint8_t* frame_end, EncodeWorkspace& workspace) {
  CodedPayload coded;
  coded.squares = sum_squares(state.squares);
  coded.nonzeros = state.nonzeros;
  coded.model_a = static_cast<std::uint8_t>(plan.model.half_width());
  coded.model_b = static_cast<std::uint8_t>(plan.low_bits);
  coded.model_c = choose_escape_order(escapes, plan.model.half_width());
  std::size_t escape_bits = 0;
  const std::size_t escape_bytes = write_escapes(escapes, plan.model.half_width(), coded.model_c, workspace.bits, escape_bits);
  coded.model_bytes = static_cast<std::uint32_t>(escape_bytes);
  const auto inside = static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint32_t>(plan.model.half_width())));
  coded.magnitude_bits = static_cast<std::uint8_t>(std::max<std::uint32_t>(inside, magnitude_bits_of(escapes)) + plan.low_bits);
  std::uint8_t* to = state.out;
  const std::size_t front = plan.model.symbol_count() + escape_bytes + kStateBytes;
  if (front + static_cast<std::size_t>(frame_end - to) > 4 * count) {
    recover_integers(kernels, plan, 0, count, state, escapes, workspace);
    coded.is_too_large = true;
    return coded;
  }
  SLUICE_ASSERT(static_cast<std::size_t>(to - workspace.frame.data()) >= front + kFrameHeaderBytes);
  to -= kStateBytes;
  std::memcpy(to, state.high.data(), 64);
  std::memcpy(to + 64, state.low.data(), 64);
  to -= escape_bytes;
  std::copy_n(workspace.bits.begin(), escape_bytes, to);
  to -= plan.model.symbol_count();
  std::memcpy(to, plan.model.frequency.data(), plan.model.symbol_count());
  coded.begin = to;
  coded.payload = ByteSpan(to, frame_end);
  coded.coded_bits = static_cast<std::uint32_t>(8 * coded.payload.size() - (8 * escape_bytes - escape_bits));
  return coded;
}

bool decode_dense(const GridKernels& kernels, const FrameView& frame, const GridSink& sink) {
  const FrameHeader& header = frame.header;
  const std::size_t rows = rows_of(header.value_count);
  const std::size_t full_rows = header.value_count / kRowValues;
  ByteReader reader(frame.payload);
  const int half_width = header.model_a;
  const ByteSpan frequencies = reader.read_span(static_cast<std::size_t>(2 * half_width) + 2);
  const ByteSpan escape_bytes = reader.read_span(header.model_bytes);
  const ByteSpan states = reader.read_span(kStateBytes);
  const std::size_t plane_bytes = std::size_t{8} * header.model_b * rows;
  GridModel model;
  if (reader.failed() || reader.remaining() < plane_bytes || !model.set_frequencies(frequencies, half_width)) return false;
  EscapeQueue escapes(escape_bytes, header.model_c, header.model_b, half_width, integer_limit_of(header));
  DecodeState state;
  std::memcpy(state.high.data(), states.data(), 64);
  std::memcpy(state.low.data(), states.data() + 64, 64);
  // A lane below 256 would never be made by an encoder and could underflow the decoder's arithmetic.
  if (std::find(state.high.begin(), state.high.end(), std::uint8_t{0}) != state.high.end()) return false;
  state.in = frame.payload.data() + reader.position();
  state.in_end = frame.payload.data() + frame.payload.size() - plane_bytes;
  state.planes = state.in_end;
  state.low_bits = header.model_b;
  state.escapes = &escapes;
  state.integer_limit = integer_limit_of(header);
  if (!kernels.decode_rows(model, sink, full_rows, state)) return false;
  if (full_rows != rows) {
    std::array<std::int32_t, kRowValues> tail{};
    GridSink tail_sink;
    tail_sink.integers32 = tail.data();
    state.planes += std::size_t{8} * state.low_bits * full_rows;
    if (!kernels.decode_rows(model, tail_sink, 1, state)) return false;
    const std::size_t count = header.value_count % kRowValues;
    if (std::any_of(tail.begin() + static_cast<std::ptrdiff_t>(count), tail.end(), [](std::int32_t pad) { return pad != 0; })) return false;
    store_integers(sink, full_rows * kRowValues, std::span<const std::int32_t>(tail).first(count));
  }
  for (std::size_t lane = 0; lane < kRowValues; ++lane) {
    if (state.high[lane] != 1 || state.low[lane] != 0) return false;
  }
  return state.in == state.in_end && escapes.is_finished();
}

void store_integers(const GridSink& sink, std::size_t first, std::span<const std::int32_t> integers) {
  for (std::size_t index = 0; index < integers.size(); ++index) {
    const std::int32_t integer = integers[index];
    const std::size_t at = first + index;
    switch (sink.kind) {
      case SinkKind::kFloatSet:
        sink.values[at] = grid_value(integer, sink.scaled_step);
        break;
      case SinkKind::kFloatAdd:
        sink.values[at] = add(sink.values[at], grid_value(integer, sink.scaled_step));
        break;
      case SinkKind::kInteger16Add:
        sink.integers16[at] = static_cast<std::int16_t>(sink.integers16[at] + integer);
        break;
      case SinkKind::kInteger32Set:
        sink.integers32[at] = integer;
        break;
      case SinkKind::kInteger32Add:
        sink.integers32[at] += integer;
        break;
    }
  }
}

TailRow::TailRow(const GridSource& source, std::size_t row, std::size_t count)
    : original_(source), padded_(source), at_(row * kRowValues), count_(count) {
  if (source.delta != nullptr) std::copy_n(source.delta + at_, count, delta_.begin());
  if (source.residual != nullptr) std::copy_n(source.residual + at_, count, residual_.begin());
  if (source.short_residual != nullptr) std::copy_n(source.short_residual + at_, count, short_residual_.begin());
  if (source.integers16 != nullptr) std::copy_n(source.integers16 + at_, count, integers16_.begin());
  if (source.integers32 != nullptr) std::copy_n(source.integers32 + at_, count, integers32_.begin());
  padded_.delta = delta_.data();
  padded_.residual = residual_.data();
  padded_.short_residual = short_residual_.data();
  padded_.integers16 = integers16_.data();
  padded_.integers32 = integers32_.data();
}

void TailRow::write_residual_back() {
  if (original_.residual != nullptr) std::copy_n(residual_.begin(), count_, original_.residual + at_);
  if (original_.short_residual != nullptr) std::copy_n(short_residual_.begin(), count_, original_.short_residual + at_);
}

void undo_source(const GridSource& source, std::size_t first, std::span<const std::int32_t> integers) {
  for (std::size_t index = 0; index < integers.size(); ++index) {
    const std::size_t at = first + index;
    const std::int32_t integer = integers[index];
    if (source.kind == SourceKind::kFloatResidual) {
      const float before = add(source.residual[at], grid_value(integer, source.step));
      source.residual[at] = subtract(before, multiply(source.weight, source.delta[at])) / source.decay;
    } else if (source.kind == SourceKind::kShortResidual) {
      source.short_residual[at] =
          undo_short_value(source.short_residual[at], integer, multiply(source.weight, source.delta[at]), source.short_scale);
    }
  }
}

std::uint8_t magnitude_bits_of(std::span<const std::int32_t> integers) {
  std::uint32_t all = 0;
  for (const std::int32_t integer : integers)
    all |= integer < 0 ? 0U - static_cast<std::uint32_t>(integer) : static_cast<std::uint32_t>(integer);
  return static_cast<std::uint8_t>(std::bit_width(all));
}

std::int32_t integer_limit_of(const FrameHeader& header) {
  const std::int32_t stated = static_cast<std::int32_t>((std::uint32_t{1} << header.magnitude_bits) - 1U);
  return std::min(stated, static_cast<std::int32_t>(header.contributions) * kGridIntegerMax);
}

double sum_squares(const std::array<float, 16>& squares) {
  double total = 0.0;
  for (const float square : squares) total += static_cast<double>(square);
  // Values far beyond the grid leave residuals whose squares overflow: the sum then only says "huge".
  return std::min(total, 0x1p200);
}

}  // namespace sluice::compression
