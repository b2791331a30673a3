#include "compression/grid_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "compression/frame_decoder.h"
#include "compression/internal/chunk_sample.h"
#include "compression/internal/dense_coder.h"
#include "compression/internal/frame_writer.h"
#include "compression/internal/grid_value.h"
#include "compression/internal/sparse_coder.h"

namespace sluice::compression {
namespace {

constexpr const char* kOperation = "encode frame";
// Up to this many values a chunk is turned into integers first and coded in every way; beyond it a sample decides.
constexpr std::size_t kSmallChunkValues = 4096;

tl::unexpected<Error> non_finite(ChunkId chunk, std::size_t index) {
  return fail(ErrorCode::kNonFinite, kOperation, fmt::format("chunk {}, value {} is not finite", chunk, index));
}

Status check_arguments(std::span<const float> delta, float weight, std::size_t residual_size) {
  SLUICE_ASSERT(delta.size() == residual_size && delta.size() <= kChunkValues, "{} values, {} residuals", delta.size(), residual_size);
  if (is_non_finite(weight)) return fail(ErrorCode::kNonFinite, kOperation, "the weight is not finite");
  return {};
}

Status check_step(float step) {
  if (step >= kGridStepMin && step <= kGridStepMax) return {};
  return fail(ErrorCode::kInvalidArgument, kOperation, fmt::format("step {} is outside {} .. {}", step, kGridStepMin, kGridStepMax));
}

FrameHeader grid_header(std::size_t count, float step, ChunkId chunk, ElementType element_type) {
  FrameHeader header;
  header.element_type = element_type;
  header.chunk = chunk;
  header.value_count = static_cast<std::uint32_t>(count);
  header.step = step;
  return header;
}

Status check_decay(float decay) {
  if (decay >= 0.0625F && decay <= 1.0F) return {};
  return fail(ErrorCode::kInvalidArgument, kOperation, fmt::format("residual decay {} is outside 1/16 .. 1", decay));
}

GridSource short_source(std::span<const float> delta, float weight, std::span<std::int16_t> residual, float previous_step, float step,
                        float decay) {
  GridSource source;
  source.kind = SourceKind::kShortResidual;
  source.delta = delta.data();
  source.weight = weight / step;
  source.short_residual = residual.data();
  source.short_scale = multiply(decay, previous_step / step / kShortResidualUnits);
  source.step = step;
  return source;
}

float weighted_input(float weight, float delta, float residual) { return add(multiply(weight, delta), residual); }

// Squares of int16 residuals are in units of the step.
double error_unit(const GridSource& source) {
  return source.kind == SourceKind::kShortResidual ? static_cast<double>(source.step) * static_cast<double>(source.step) : 1.0;
}

}  // namespace

struct FrameEncoder::Impl {
  explicit Impl(const GridKernels& table) : kernels(table) {}

  const GridKernels& kernels;
  EncodeWorkspace workspace;
  std::vector<std::uint8_t> plain;   // frame with a payload of fixed size
  std::vector<std::uint8_t> second;  // the other candidate for a small chunk

  static EncodedFrame encoded(ByteSpan bytes, const FrameHeader& header) {
    return EncodedFrame{bytes, EncodeStats{8 * bytes.size(), header.squared_error, header.nonzeros}};
  }

  std::uint8_t* plain_payload(std::size_t payload_bytes) {
    plain.resize(std::max(plain.size(), kFrameHeaderBytes + payload_bytes + kFrameTrailerBytes));
    return plain.data() + kFrameHeaderBytes;
  }

  EncodedFrame finish_fixed(FrameHeader header, std::size_t payload_bytes) {
    header.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
    header.coded_bits = header.payload_bytes * 8;
    return encoded(write_frame(header, plain.data() + kFrameHeaderBytes), header);
  }

  EncodedFrame finish_plain_integers(const FrameHeader& header, std::span<const std::int32_t> integers) {
    return encoded(write_plain_integers(header, integers, plain), header);
  }

  EncodedFrame finish_coded(FrameHeader header, Codec codec, const CodedPayload& coded) {
    header = coded_header(header, codec, coded);
    return encoded(write_frame(header, coded.begin), header);
  }

  // Every representation of the integers of a small chunk, the smallest taken.
  EncodedFrame encode_small(FrameHeader header, std::span<const std::int32_t> integers) {
    GridSource source;
    source.integers32 = integers.data();
    header.nonzeros = static_cast<std::uint32_t>(std::count_if(integers.begin(), integers.end(), [](std::int32_t q) { return q != 0; }));
    CodedPayload dense;
    dense.is_too_large = true;
    const std::size_t count = integers.size();
    if (count != 0) dense = encode_dense(kernels, plan_dense(kernels, integers, count), source, count, workspace);
    second.assign(dense.payload.begin(), dense.payload.end());
    const CodedPayload sparse = encode_sparse(kernels, source, count, workspace);
    const std::size_t plain_bytes = integers.size_bytes();
    const std::size_t dense_bytes = dense.is_too_large ? plain_bytes + 1 : second.size();
    if (sparse.payload.size() <= std::min(dense_bytes, plain_bytes)) return finish_coded(header, Codec::kGridSparse, sparse);
    if (plain_bytes <= dense_bytes) return finish_plain_integers(header, integers);
    dense.begin = plain_payload(second.size());
    std::copy(second.begin(), second.end(), dense.begin);
    return finish_coded(header, Codec::kGridDense, dense);
  }

  // Error feedback and coding of a chunk of any size.
  Result<EncodedFrame> encode_feedback(FrameHeader header, const GridSource& source) {
    const std::size_t count = header.value_count;
    if (count > kSmallChunkValues) return encode_source(header, source);
    std::vector<std::int32_t>& integers = workspace.integers;
    integers.resize(std::max(integers.size(), count + kRowValues));  // room for the padded last row: never moves below
    if (const std::size_t bad = first_non_finite(source, 0, count); bad < count) return non_finite(header.chunk, bad);
    std::array<float, 16> squares{};
    quantise_source(source, count, integers.data(), squares);
    header.squared_error = sum_squares(squares) * error_unit(source);
    return encode_small(header, std::span<const std::int32_t>(integers).first(count));
  }

  // A whole chunk from its source, dense or sparse as a sample says.
  Result<EncodedFrame> encode_source(FrameHeader header, const GridSource& source) {
    const std::size_t count = header.value_count;
    std::array<std::int32_t, kSampleValues> sample;
    sample_integers(kernels, source, count, sample);
    const bool sparse = is_sparse_sample(sample);
    CodedPayload coded = sparse ? encode_sparse(kernels, source, count, workspace)
                                : encode_dense(kernels, plan_dense(kernels, sample, count), source, count, workspace);
    if (coded.failed_value != 0) return non_finite(header.chunk, first_non_finite(source, coded.failed_value - 1, count));
    header.squared_error += coded.squares * error_unit(source);
    header.nonzeros = coded.nonzeros;
    if (!sparse && coded.is_too_large) {
      return finish_plain_integers(header, std::span<const std::int32_t>(workspace.integers).first(count));
    }
    if (sparse && coded.payload.size() > 4 * count) return plain_from_list(header, count);
    return finish_coded(header, sparse ? Codec::kGridSparse : Codec::kGridDense, coded);
  }

  // The sample saw zeros only, the chunk is full of large integers: the list of the sparse coder becomes plain integers.
  EncodedFrame plain_from_list(FrameHeader header, std::size_t count) {
    workspace.integers.assign(count, 0);
    for (std::size_t index = 0; index < header.nonzeros; ++index) {
      workspace.integers[workspace.positions[index]] = workspace.escapes[index];
    }
    return finish_plain_integers(header, workspace.integers);
  }
};

FrameEncoder::FrameEncoder() : FrameEncoder(best_kernels()) {}
FrameEncoder::FrameEncoder(const GridKernels& kernels) : impl_(std::make_unique<Impl>(kernels)) {}
FrameEncoder::~FrameEncoder() = default;
FrameEncoder::FrameEncoder(FrameEncoder&&) noexcept = default;
FrameEncoder& FrameEncoder::operator=(FrameEncoder&&) noexcept = default;

Result<EncodedFrame> FrameEncoder::encode_grid(std::span<const float> delta, float weight, std::span<float> residual, float step,
                                               ChunkId chunk, ElementType element_type, float decay) {
  SLUICE_CHECK_OK(check_arguments(delta, weight, residual.size()));
  SLUICE_CHECK_OK(check_step(step));
  SLUICE_CHECK_OK(check_decay(decay));
  GridSource source;
  source.decay = decay;
  source.kind = SourceKind::kFloatResidual;
  source.delta = delta.data();
  source.weight = weight;
  source.residual = residual.data();
  source.step = step;
  source.inverse_step = 1.0F / step;
  return impl_->encode_feedback(grid_header(delta.size(), step, chunk, element_type), source);
}

Result<EncodedFrame> FrameEncoder::encode_grid_short(std::span<const float> delta, float weight, std::span<std::int16_t> residual,
                                                     float previous_step, float step, ChunkId chunk, ElementType element_type,
                                                     float decay) {
  SLUICE_CHECK_OK(check_arguments(delta, weight, residual.size()));
  SLUICE_CHECK_OK(check_decay(decay));
  SLUICE_CHECK_OK(check_step(step));
  SLUICE_CHECK_OK(check_step(previous_step));
  return impl_->encode_feedback(grid_header(delta.size(), step, chunk, element_type),
                                short_source(delta, weight, residual, previous_step, step, decay));
}

Result<EncodedFrame> FrameEncoder::encode_integers(std::span<const std::int32_t> integers, float step, std::uint8_t contributions,
                                                   double squared_error, ChunkId chunk, ElementType element_type) {
  SLUICE_ASSERT(integers.size() <= kChunkValues && contributions >= 1 && contributions <= kContributionsMax);
  SLUICE_CHECK_OK(check_step(step));
  FrameHeader header = grid_header(integers.size(), step, chunk, element_type);
  header.contributions = contributions;
  header.squared_error = squared_error;
  if (integers.size() <= kSmallChunkValues) return impl_->encode_small(header, integers);
  GridSource source;
  source.integers32 = integers.data();
  return impl_->encode_source(header, source);
}

Result<EncodedFrame> FrameEncoder::encode_integers(std::span<const std::int16_t> integers, float step, std::uint8_t contributions,
                                                   double squared_error, ChunkId chunk, ElementType element_type) {
  SLUICE_ASSERT(integers.size() <= kChunkValues && contributions >= 1 && contributions <= kContributionsMax);
  SLUICE_CHECK_OK(check_step(step));
  FrameHeader header = grid_header(integers.size(), step, chunk, element_type);
  header.contributions = contributions;
  header.squared_error = squared_error;
  GridSource source;
  source.kind = SourceKind::kIntegers16;
  source.integers16 = integers.data();
  if (integers.size() > kSmallChunkValues) return impl_->encode_source(header, source);
  const std::vector<std::int32_t> wide(integers.begin(), integers.end());
  return impl_->encode_small(header, wide);
}

Result<EncodedFrame> FrameEncoder::encode_raw(std::span<const float> delta, float weight, std::span<float> residual, ChunkId chunk,
                                              ElementType element_type) {
  SLUICE_CHECK_OK(check_arguments(delta, weight, residual.size()));
  std::uint8_t* to = impl_->plain_payload(delta.size_bytes());
  for (std::size_t index = 0; index < delta.size(); ++index) {
    const float input = weighted_input(weight, delta[index], residual[index]);
    if (is_non_finite(input)) return non_finite(chunk, index);
    store_le(to + 4 * index, input);
  }
  std::fill(residual.begin(), residual.end(), 0.0F);
  FrameHeader header;
  header.codec = Codec::kRaw32;
  header.element_type = element_type;
  header.chunk = chunk;
  header.value_count = static_cast<std::uint32_t>(delta.size());
  header.nonzeros = header.value_count;
  return impl_->finish_fixed(header, delta.size_bytes());
}

Result<EncodedFrame> FrameEncoder::encode_values(std::span<const float> values, std::uint8_t contributions, double squared_error,
                                                 ChunkId chunk, ElementType element_type) {
  SLUICE_ASSERT(values.size() <= kChunkValues && contributions >= 1 && contributions <= kContributionsMax);
  for (std::size_t index = 0; index < values.size(); ++index) {
    if (is_non_finite(values[index])) return non_finite(chunk, index);
  }
  std::uint8_t* to = impl_->plain_payload(values.size_bytes());
  if (!values.empty()) std::memcpy(to, values.data(), values.size_bytes());
  FrameHeader header;
  header.codec = Codec::kRaw32;
  header.element_type = element_type;
  header.contributions = contributions;
  header.chunk = chunk;
  header.value_count = static_cast<std::uint32_t>(values.size());
  header.nonzeros = header.value_count;
  header.squared_error = squared_error;
  return impl_->finish_fixed(header, values.size_bytes());
}

Result<EncodedFrame> FrameEncoder::encode_bf16(std::span<const float> delta, float weight, std::span<float> residual, ChunkId chunk,
                                               ElementType element_type) {
  SLUICE_CHECK_OK(check_arguments(delta, weight, residual.size()));
  std::uint8_t* to = impl_->plain_payload(2 * delta.size());
  for (std::size_t index = 0; index < delta.size(); ++index) {
    const float input = weighted_input(weight, delta[index], residual[index]);
    const std::uint16_t half = is_non_finite(input) ? std::uint16_t{0x7f80} : bf16_from_float(input);
    if (is_non_finite(float_from_bf16(half))) return non_finite(chunk, index);
    store_le(to + 2 * index, half);
  }
  FrameHeader header;
  for (std::size_t index = 0; index < delta.size(); ++index) {
    const float input = weighted_input(weight, delta[index], residual[index]);
    residual[index] = subtract(input, float_from_bf16(load_le<std::uint16_t>(to + 2 * index)));
    header.squared_error += static_cast<double>(residual[index]) * static_cast<double>(residual[index]);
  }
  header.codec = Codec::kBf16;
  header.element_type = element_type;
  header.chunk = chunk;
  header.value_count = static_cast<std::uint32_t>(delta.size());
  header.nonzeros = header.value_count;
  return impl_->finish_fixed(header, 2 * delta.size());
}

namespace {

// The encoder behind the free functions: its memory is only scratch, so one per thread serves all callers.
FrameEncoder& thread_encoder() {
  thread_local FrameEncoder encoder;
  return encoder;
}

Result<EncodeStats> copy_frame(Result<EncodedFrame> frame, ByteVector& out) {
  out.clear();
  if (!frame) return fail(std::move(frame).error());
  out.assign(frame->bytes.begin(), frame->bytes.end());
  return frame->stats;
}

}  // namespace

Result<EncodeStats> encode_grid_frame(std::span<const float> delta, float weight, std::span<float> residual, float step, ChunkId chunk,
                                      ByteVector& out, ElementType element_type, float decay) {
  return copy_frame(thread_encoder().encode_grid(delta, weight, residual, step, chunk, element_type, decay), out);
}

Result<EncodeStats> encode_raw_frame(std::span<const float> delta, float weight, std::span<float> residual, ChunkId chunk, ByteVector& out,
                                     ElementType element_type) {
  return copy_frame(thread_encoder().encode_raw(delta, weight, residual, chunk, element_type), out);
}

Result<EncodeStats> encode_bf16_frame(std::span<const float> delta, float weight, std::span<float> residual, ChunkId chunk, ByteVector& out,
                                      ElementType element_type) {
  return copy_frame(thread_encoder().encode_bf16(delta, weight, residual, chunk, element_type), out);
}

Result<EncodeStats> encode_integer_frame(std::span<const std::int32_t> integers, float step, std::uint8_t contributions,
                                         double squared_error, ChunkId chunk, ByteVector& out, ElementType element_type) {
  return copy_frame(thread_encoder().encode_integers(integers, step, contributions, squared_error, chunk, element_type), out);
}

Result<EncodeStats> encode_value_frame(std::span<const float> values, std::uint8_t contributions, double squared_error, ChunkId chunk,
                                       ByteVector& out, ElementType element_type) {
  return copy_frame(thread_encoder().encode_values(values, contributions, squared_error, chunk, element_type), out);
}

Status undo_frame(const FrameView& frame, std::span<const float> delta, float weight, std::span<float> residual, float decay) {
  SLUICE_ASSERT(delta.size() == residual.size());
  SLUICE_CHECK_OK(check_decay(decay));
  if (frame.header.value_count != delta.size()) {
    return fail(ErrorCode::kFrameUnexpected, "undo frame", fmt::format("{} values, {} expected", frame.header.value_count, delta.size()));
  }
  SLUICE_CHECK_OK(decode_frame_add(frame, residual));
  for (std::size_t index = 0; index < delta.size(); ++index) {
    residual[index] = subtract(residual[index], multiply(weight, delta[index])) / decay;
  }
  return {};
}

Status undo_frame_short(const FrameView& frame, std::span<const float> delta, float weight, std::span<std::int16_t> residual,
                        float previous_step, float decay) {
  SLUICE_ASSERT(delta.size() == residual.size());
  SLUICE_CHECK_OK(check_step(previous_step));
  SLUICE_CHECK_OK(check_decay(decay));
  if (frame.header.value_count != delta.size()) {
    return fail(ErrorCode::kFrameUnexpected, "undo frame", fmt::format("{} values, {} expected", frame.header.value_count, delta.size()));
  }
  std::vector<std::int32_t> integers(delta.size());
  SLUICE_CHECK_OK(decode_frame_integers(frame, integers));
  undo_source(short_source(delta, weight, residual, previous_step, frame.header.step, decay), 0, integers);
  return {};
}

}  // namespace sluice::compression
