#include "compression/cuda/grid_cuda.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "compression/cuda/internal/grid_kernels_cuda.h"
#include "compression/elements.h"
#include "compression/frame_decoder.h"
#include "compression/grid_codec.h"
#include "compression/internal/chunk_sample.h"
#include "compression/internal/dense_coder.h"
#include "compression/internal/escape_rows.h"
#include "compression/internal/frame_writer.h"
#include "compression/internal/grid_value.h"

namespace sluice::compression {
namespace {

constexpr std::uint64_t kCoderStride = kChunkValues + 256;  // coder bytes of a chunk: at most one per value
constexpr std::uint64_t kPlaneStride = std::uint64_t{kChunkValues} / 8 * kGridLowBitsMax;

Status check_cuda(cudaError_t status, const char* operation) {
  if (status == cudaSuccess) return {};
  return fail(ErrorCode::kUnavailable, operation, cudaGetErrorString(status));
}

Status check_launch(int status, const char* operation) { return check_cuda(static_cast<cudaError_t>(status), operation); }

// Device memory that grows and stays.
template <typename Element>
class DeviceArray {
 public:
  DeviceArray() = default;
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() {
    if (data_ != nullptr) cudaFree(data_);
  }
  Status reserve(std::size_t count) {
    if (count <= count_) return {};
    if (data_ != nullptr) cudaFree(data_);
    data_ = nullptr;
    count_ = 0;
    SLUICE_CHECK_OK(check_cuda(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(Element)), "allocate on GPU"));
    count_ = count;
    return {};
  }
  Status upload(const Element* from, std::size_t count, std::size_t at = 0) {
    return check_cuda(cudaMemcpy(data_ + at, from, count * sizeof(Element), cudaMemcpyHostToDevice), "copy to GPU");
  }
  Status download(Element* to, std::size_t count, std::size_t at = 0) const {
    return check_cuda(cudaMemcpy(to, data_ + at, count * sizeof(Element), cudaMemcpyDeviceToHost), "copy from GPU");
  }
  [[nodiscard]] Element* data() const { return data_; }

 private:
  Element* data_ = nullptr;
  std::size_t count_ = 0;
};

cuda::DeviceModel device_model(const GridModel& model, std::uint32_t low_bits) {
  cuda::DeviceModel result{};
  std::copy(model.frequency.begin(), model.frequency.end(), result.frequency);
  std::copy(model.start.begin(), model.start.end(), result.start);
  std::copy(model.slot_of.begin(), model.slot_of.end(), result.slot_of);
  std::copy(model.symbol_of.begin(), model.symbol_of.end(), result.symbol_of);
  std::copy(model.rank_of.begin(), model.rank_of.end(), result.rank_of);
  result.half_width = static_cast<std::uint32_t>(model.half_width());
  result.low_bits = low_bits;
  return result;
}

}  // namespace

struct GridCuda::Impl {
  int device = 0;
  FrameEncoder host_encoder;
  EncodeWorkspace workspace;
  std::vector<std::uint8_t> plain;
  DeviceArray<unsigned long long> bad;
  DeviceArray<std::int32_t> samples, escapes;
  DeviceArray<cuda::DeviceModel> models;
  DeviceArray<cuda::DeviceChunk> chunks;
  DeviceArray<std::uint8_t> bytes, planes;
  DeviceArray<std::uint64_t> offsets;

  Status check_finite(const cuda::Feedback& feedback, ChunkId first_chunk) {
    SLUICE_CHECK_OK(bad.reserve(1));
    unsigned long long index = ~0ULL;
    SLUICE_CHECK_OK(bad.upload(&index, 1));
    SLUICE_CHECK_OK(check_launch(cuda::launch_find_non_finite(feedback, bad.data()), "check deltas on GPU"));
    SLUICE_CHECK_OK(bad.download(&index, 1));
    if (index == ~0ULL) return {};
    return fail(ErrorCode::kNonFinite, "encode on GPU",
                fmt::format("chunk {}, value {} is not finite", first_chunk.value + index / kChunkValues, index % kChunkValues));
  }

  // Small and sparse chunks: values come to the host, the residual goes back.
  Result<ByteVector> encode_on_host(const cuda::Feedback& feedback, ChunkRange range, ChunkId chunk) {
    std::vector<float> delta(range.size);
    std::vector<float> residual(range.size);
    const std::size_t size = range.size * sizeof(float);
    SLUICE_CHECK_OK(check_cuda(cudaMemcpy(delta.data(), feedback.delta + range.begin, size, cudaMemcpyDeviceToHost), "copy from GPU"));
    SLUICE_CHECK_OK(
        check_cuda(cudaMemcpy(residual.data(), feedback.residual + range.begin, size, cudaMemcpyDeviceToHost), "copy from GPU"));
    SLUICE_TRY(const EncodedFrame frame,
               host_encoder.encode_grid(delta, feedback.weight, residual, feedback.step, chunk, ElementType::kFloat32, feedback.decay));
    SLUICE_CHECK_OK(check_cuda(cudaMemcpy(feedback.residual + range.begin, residual.data(), size, cudaMemcpyHostToDevice), "copy to GPU"));
    return ByteVector(frame.bytes.begin(), frame.bytes.end());
  }

  Status plan_chunks(const cuda::Feedback& feedback, std::uint32_t count, std::vector<DensePlan>& plans,
                     std::vector<cuda::DeviceChunk>& results) {
    SLUICE_CHECK_OK(samples.reserve(std::size_t{count} * kSampleValues));
    SLUICE_CHECK_OK(check_launch(cuda::launch_sample(feedback, count, samples.data()), "sample on GPU"));
    std::vector<std::int32_t> sample(std::size_t{count} * kSampleValues);
    SLUICE_CHECK_OK(samples.download(sample.data(), sample.size()));
    std::vector<cuda::DeviceModel> device_models(count);
    for (std::uint32_t chunk = 0; chunk < count; ++chunk) {
      results[chunk].value_count = chunk_range(ChunkId(chunk), feedback.count).size;
      const std::span<const std::int32_t> of_chunk(sample.data() + std::size_t{chunk} * kSampleValues, kSampleValues);
      results[chunk].is_skipped = results[chunk].value_count <= kSampleValues || is_sparse_sample(of_chunk) ? 1U : 0U;
      if (results[chunk].is_skipped != 0) continue;
      plans[chunk] = plan_dense(best_kernels(), of_chunk, results[chunk].value_count);
      device_models[chunk] = device_model(plans[chunk].model, plans[chunk].low_bits);
    }
    SLUICE_CHECK_OK(models.reserve(count));
    SLUICE_CHECK_OK(models.upload(device_models.data(), count));
    SLUICE_CHECK_OK(chunks.reserve(count));
    return chunks.upload(results.data(), count);
  }

  // The frame of a chunk that the device has coded.
  Result<ByteVector> assemble(const DensePlan& plan, const cuda::DeviceChunk& result, std::uint32_t chunk, FrameHeader header) {
    const std::size_t rows = (result.value_count + kRowValues - 1) / kRowValues;
    std::uint8_t* const frame_end = prepare_workspace(rows, plan.low_bits, workspace);
    EncodeState state;
    std::copy_n(result.high, 64, state.high.begin());
    std::copy_n(result.low, 64, state.low.begin());
    std::copy_n(result.squares, 16, state.squares.begin());
    state.low_bits = plan.low_bits;
    state.nonzeros = result.nonzeros;
    const std::size_t plane_bytes = std::size_t{8} * plan.low_bits * rows;
    state.planes = frame_end - plane_bytes;
    state.out = state.planes - result.coder_bytes;
    SLUICE_CHECK_OK(bytes.download(state.out, result.coder_bytes, (chunk + std::uint64_t{1}) * kCoderStride - result.coder_bytes));
    if (plane_bytes != 0) SLUICE_CHECK_OK(planes.download(state.planes, plane_bytes, chunk * kPlaneStride));
    std::vector<std::int32_t> escaped(result.escapes);
    SLUICE_CHECK_OK(escapes.download(escaped.data(), escaped.size(), (chunk + std::size_t{1}) * kChunkValues - escaped.size()));
    const CodedPayload coded = finish_dense(best_kernels(), plan, result.value_count, state, escaped, frame_end, workspace);
    header.squared_error = coded.squares;
    header.nonzeros = coded.nonzeros;
    ByteSpan frame;
    if (coded.is_too_large) {
      frame = write_plain_integers(header, std::span<const std::int32_t>(workspace.integers).first(result.value_count), plain);
    } else {
      frame = write_frame(coded_header(header, Codec::kGridDense, coded), coded.begin);
    }
    return ByteVector(frame.begin(), frame.end());
  }

  Status encode_on_device(const cuda::Feedback& feedback, std::uint32_t count, std::vector<cuda::DeviceChunk>& results) {
    SLUICE_CHECK_OK(bytes.reserve(count * kCoderStride));
    SLUICE_CHECK_OK(planes.reserve(count * kPlaneStride));
    SLUICE_CHECK_OK(escapes.reserve(std::size_t{count} * kChunkValues));
    SLUICE_CHECK_OK(check_launch(cuda::launch_encode(feedback, count, models.data(), chunks.data(), bytes.data(), kCoderStride,
                                                     escapes.data(), planes.data(), kPlaneStride),
                                 "encode on GPU"));
    return chunks.download(results.data(), count);
  }
};

GridCuda::GridCuda(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GridCuda::~GridCuda() = default;
GridCuda::GridCuda(GridCuda&&) noexcept = default;
GridCuda& GridCuda::operator=(GridCuda&&) noexcept = default;

Result<GridCuda> GridCuda::create(int device) {
  int devices = 0;
  SLUICE_CHECK_OK(check_cuda(cudaGetDeviceCount(&devices), "open GPU codec"));
  if (device < 0 || device >= devices) {
    return fail(ErrorCode::kUnavailable, "open GPU codec", fmt::format("device {} of {}", device, devices));
  }
  SLUICE_CHECK_OK(check_cuda(cudaSetDevice(device), "open GPU codec"));
  auto impl = std::make_unique<Impl>();
  impl->device = device;
  return GridCuda(std::move(impl));
}

Result<std::vector<ByteVector>> GridCuda::encode(const float* delta, float weight, float* residual, std::uint64_t count, float step,
                                                 ChunkId first_chunk, float decay) {
  // Weight, step and decay are checked by the same code as on the host, with an empty chunk.
  SLUICE_CHECK_OK(impl_->host_encoder.encode_grid({}, weight, {}, step, first_chunk, ElementType::kFloat32, decay));
  SLUICE_CHECK_OK(check_cuda(cudaSetDevice(impl_->device), "encode on GPU"));
  const cuda::Feedback feedback{delta, residual, weight, decay, step, 1.0F / step, count};
  SLUICE_CHECK_OK(impl_->check_finite(feedback, first_chunk));
  const auto chunks = static_cast<std::uint32_t>(chunk_count(count));
  std::vector<DensePlan> plans(chunks);
  std::vector<cuda::DeviceChunk> results(chunks);
  if (chunks == 0) return std::vector<ByteVector>{};
  SLUICE_CHECK_OK(impl_->plan_chunks(feedback, chunks, plans, results));
  SLUICE_CHECK_OK(impl_->encode_on_device(feedback, chunks, results));
  std::vector<ByteVector> frames(chunks);
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
    const ChunkId id(first_chunk.value + chunk);
    FrameHeader header;
    header.chunk = id;
    header.value_count = results[chunk].value_count;
    header.step = step;
    if (results[chunk].is_skipped != 0) {
      SLUICE_TRY(frames[chunk], impl_->encode_on_host(feedback, chunk_range(ChunkId(chunk), count), id));
    } else {
      SLUICE_TRY(frames[chunk], impl_->assemble(plans[chunk], results[chunk], chunk, header));
    }
  }
  return frames;
}

namespace {

// What the device needs of the dense frames of a call; frames of other codecs are skipped there.
struct DecodeBatch {
  std::vector<cuda::DeviceModel> models;
  std::vector<cuda::DeviceChunk> chunks;
  std::vector<std::uint8_t> bytes;
  std::vector<std::int32_t> escapes;
  std::vector<std::uint64_t> offsets;  // coder bytes, escapes, values of each chunk: three tables
};

// Escapes are read on the host: they are few, and their lengths make them a sequence.
bool add_dense(const FrameView& frame, std::size_t index, DecodeBatch& batch) {
  const FrameHeader& header = frame.header;
  ByteReader reader(frame.payload);
  const ByteSpan frequencies = reader.read_span(std::size_t{2} * header.model_a + 2);
  const ByteSpan escape_bytes = reader.read_span(header.model_bytes);
  const ByteSpan states = reader.read_span(128);
  const std::size_t rows = (header.value_count + kRowValues - 1) / kRowValues;
  const std::size_t plane_bytes = std::size_t{8} * header.model_b * rows;
  GridModel model;
  if (reader.failed() || reader.remaining() < plane_bytes || !model.set_frequencies(frequencies, header.model_a)) return false;
  cuda::DeviceChunk& chunk = batch.chunks[index];
  std::copy_n(states.begin(), 64, chunk.high);
  std::copy_n(states.begin() + 64, 64, chunk.low);
  if (std::find(chunk.high, chunk.high + 64, std::uint8_t{0}) != chunk.high + 64) return false;
  EscapeQueue escapes(escape_bytes, header.model_c, header.model_b, header.model_a, integer_limit_of(header));
  const std::size_t first_escape = batch.escapes.size();
  while (!escapes.is_finished()) {
    if (!escapes.prepare(EscapeQueue::kBlock)) return false;
    if (batch.escapes.size() - first_escape + escapes.available() > header.value_count) return false;
    batch.escapes.insert(batch.escapes.end(), escapes.integers(), escapes.integers() + escapes.available());
    escapes.skip(escapes.available());
  }
  chunk.coder_bytes = static_cast<std::uint32_t>(reader.remaining() - plane_bytes);
  chunk.escapes = static_cast<std::uint32_t>(batch.escapes.size() - first_escape);
  chunk.value_count = header.value_count;
  chunk.integer_limit = integer_limit_of(header);
  chunk.is_skipped = 0;
  batch.models[index] = device_model(model, header.model_b);
  batch.offsets[3 * index] = batch.bytes.size();
  batch.offsets[3 * index + 1] = first_escape;
  const ByteSpan rest = frame.payload.subspan(reader.position());
  batch.bytes.insert(batch.bytes.end(), rest.begin(), rest.end());
  return true;
}

tl::unexpected<Error> bad_payload(const FrameView& frame) {
  return fail(ErrorCode::kFrameBadPayload, "decode on GPU",
              fmt::format("chunk {}, {}", frame.header.chunk, codec_name(frame.header.codec)));
}

// Sparse, plain and fixed frames: decoded on the host and added by a round trip of the values.
Status add_on_host(const FrameView& frame, float* out, float scale) {
  std::vector<float> values(frame.header.value_count);
  const std::size_t size = values.size() * sizeof(float);
  SLUICE_CHECK_OK(check_cuda(cudaMemcpy(values.data(), out, size, cudaMemcpyDeviceToHost), "copy from GPU"));
  SLUICE_CHECK_OK(decode_frame_add(frame, values, scale));
  return check_cuda(cudaMemcpy(out, values.data(), size, cudaMemcpyHostToDevice), "copy to GPU");
}

}  // namespace

Status GridCuda::decode_add(std::span<const FrameView> frames, float* out, float scale) {
  SLUICE_CHECK_OK(check_cuda(cudaSetDevice(impl_->device), "decode on GPU"));
  DecodeBatch batch;
  batch.models.resize(frames.size());
  batch.chunks.resize(frames.size());
  batch.offsets.resize(3 * frames.size());
  std::uint64_t value = 0;
  float step = 0.0F;
  for (std::size_t index = 0; index < frames.size(); ++index) {
    batch.chunks[index].is_skipped = 1;
    batch.offsets[3 * index + 2] = value;
    // One launch has one step; a frame of another step goes by the host.
    const bool on_device = frames[index].header.codec == Codec::kGridDense && (step == 0.0F || step == frames[index].header.step);
    if (on_device) {
      step = frames[index].header.step;
      if (!add_dense(frames[index], index, batch)) return bad_payload(frames[index]);
    } else {
      SLUICE_CHECK_OK(add_on_host(frames[index], out + value, scale));
    }
    value += frames[index].header.value_count;
  }
  if (step == 0.0F) return {};
  SLUICE_CHECK_OK(impl_->models.reserve(batch.models.size()));
  SLUICE_CHECK_OK(impl_->models.upload(batch.models.data(), batch.models.size()));
  SLUICE_CHECK_OK(impl_->chunks.reserve(batch.chunks.size()));
  SLUICE_CHECK_OK(impl_->chunks.upload(batch.chunks.data(), batch.chunks.size()));
  SLUICE_CHECK_OK(impl_->bytes.reserve(std::max<std::size_t>(batch.bytes.size(), 1)));
  SLUICE_CHECK_OK(impl_->bytes.upload(batch.bytes.data(), batch.bytes.size()));
  SLUICE_CHECK_OK(impl_->escapes.reserve(std::max<std::size_t>(batch.escapes.size(), 1)));
  SLUICE_CHECK_OK(impl_->escapes.upload(batch.escapes.data(), batch.escapes.size()));
  SLUICE_CHECK_OK(impl_->offsets.reserve(batch.offsets.size()));
  SLUICE_CHECK_OK(impl_->offsets.upload(batch.offsets.data(), batch.offsets.size()));
  SLUICE_CHECK_OK(
      check_launch(cuda::launch_decode_add(static_cast<std::uint32_t>(frames.size()), impl_->models.data(), impl_->chunks.data(),
                                           impl_->bytes.data(), impl_->escapes.data(), impl_->offsets.data(), out, multiply(scale, step)),
                   "decode on GPU"));
  SLUICE_CHECK_OK(impl_->chunks.download(batch.chunks.data(), batch.chunks.size()));
  for (std::size_t index = 0; index < frames.size(); ++index) {
    if (batch.chunks[index].is_bad != 0) return bad_payload(frames[index]);
  }
  return {};
}

}  // namespace sluice::compression
