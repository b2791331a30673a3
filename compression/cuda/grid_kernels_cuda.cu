// Device kernels of the dense grid codec. One block of 64 threads codes one chunk, thread j being lane j: rows are walked in order because
// each lane's state depends on its last, and a GPU runs hundreds of chunks at once. The bytes that a row sheds are placed by ballots. The
// arithmetic is grid_value.h and grid_lane.h, compiled with -fmad=false, so residuals and bytes equal the CPU's.
#include "compression/cuda/internal/grid_kernels_cuda.h"

#include "compression/internal/grid_lane.h"
#include "compression/limits.h"

namespace sluice::compression::cuda {
namespace {

constexpr std::uint32_t kLanes = 64;
constexpr std::uint32_t kSampleRun = 256;
constexpr std::uint32_t kRuns = 16;

__device__ float input_at(const Feedback& feedback, std::uint64_t at) {
  return add(multiply(feedback.weight, feedback.delta[at]), multiply(feedback.decay, feedback.residual[at]));
}

__device__ std::uint32_t rows_of(std::uint32_t count) { return (count + kLanes - 1) / kLanes; }

// Rank of this lane among the set lanes of the row, and their number, from the ballots of both warps.
struct RowCount {
  std::uint32_t rank;
  std::uint32_t total;
};

__device__ RowCount count_row(bool set, std::uint32_t* shared) {
  const std::uint32_t lane = threadIdx.x;
  const std::uint32_t ballot = __ballot_sync(0xffffffffU, set);
  if ((lane & 31U) == 0) shared[lane >> 5] = ballot;
  __syncthreads();
  const std::uint32_t first = shared[0];
  const std::uint32_t second = shared[1];
  __syncthreads();
  const std::uint32_t below = ballot & ((1U << (lane & 31U)) - 1U);
  const std::uint32_t before = lane < 32 ? 0U : __popc(first);
  return RowCount{before + __popc(below), static_cast<std::uint32_t>(__popc(first) + __popc(second))};
}

__global__ void find_non_finite(Feedback feedback, unsigned long long* bad) {
  const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
  for (std::uint64_t at = blockIdx.x * static_cast<std::uint64_t>(blockDim.x) + threadIdx.x; at < feedback.count; at += stride) {
    if (is_non_finite(input_at(feedback, at))) atomicMin(bad, static_cast<unsigned long long>(at));
  }
}

__global__ void sample_chunks(Feedback feedback, std::int32_t* sample) {
  const std::uint64_t begin = static_cast<std::uint64_t>(blockIdx.x) * kChunkValues;
  const std::uint64_t left = feedback.count - begin;
  const std::uint32_t count = left < kChunkValues ? static_cast<std::uint32_t>(left) : kChunkValues;
  if (count <= kRuns * kSampleRun) return;
  const std::uint32_t rows = count / kLanes - kSampleRun / kLanes;
  for (std::uint32_t run = 0; run < kRuns; ++run) {
    const std::uint64_t from = begin + static_cast<std::uint64_t>(run * rows / (kRuns - 1)) * kLanes;
    const float scaled = multiply(input_at(feedback, from + threadIdx.x), feedback.inverse_step);
    sample[(static_cast<std::uint64_t>(blockIdx.x) * kRuns + run) * kSampleRun + threadIdx.x] = grid_sample_integer(scaled);
  }
}

// Planes of the row; returns the high part.
__device__ std::int32_t split_planes(std::int32_t integer, std::uint32_t low_bits, std::uint8_t* planes) {
  for (std::uint32_t bit = 0; bit < low_bits; ++bit) {
    const std::uint32_t ballot = __ballot_sync(0xffffffffU, ((integer >> bit) & 1) != 0);
    if ((threadIdx.x & 31U) == 0) *reinterpret_cast<std::uint32_t*>(planes + 8 * bit + (threadIdx.x >> 5) * 4) = ballot;
  }
  return integer >> low_bits;
}

__global__ void encode_chunks(Feedback feedback, const DeviceModel* models, DeviceChunk* results, std::uint8_t* bytes, std::uint64_t stride,
                              std::int32_t* escapes, std::uint8_t* planes, std::uint64_t plane_stride) {
  __shared__ DeviceModel model;
  __shared__ std::uint32_t ballots[2];
  __shared__ float squares[kLanes];
  DeviceChunk& result = results[blockIdx.x];
  if (result.is_skipped != 0) return;
  if (threadIdx.x == 0) model = models[blockIdx.x];
  __syncthreads();
  const std::uint32_t lane = threadIdx.x;
  const std::uint64_t begin = static_cast<std::uint64_t>(blockIdx.x) * kChunkValues;
  const std::uint32_t count = result.value_count;
  std::uint8_t* out = bytes + (blockIdx.x + 1ULL) * stride;
  std::uint8_t* const out_end = out;
  std::int32_t* escape_out = escapes + (blockIdx.x + 1ULL) * kChunkValues;
  std::int32_t* const escape_end = escape_out;
  std::uint8_t* const chunk_planes = planes + blockIdx.x * plane_stride;
  std::uint32_t x = 256;
  std::uint32_t nonzeros = 0;
  float square_sum = 0.0F;
  for (std::uint32_t row = rows_of(count); row-- > 0;) {
    const std::uint32_t index = row * kLanes + lane;
    Quantised value{0, 0.0F};
    if (index < count) {
      value = quantise_value(input_at(feedback, begin + index), feedback.step, feedback.inverse_step);
      feedback.residual[begin + index] = value.residual;
    }
    squares[lane] = multiply(value.residual, value.residual);
    const std::int32_t high = split_planes(value.integer, model.low_bits, chunk_planes + 8ULL * model.low_bits * row);
    const std::uint32_t symbol = lane_symbol(high, model.half_width);
    const bool escaped = symbol == 2 * model.half_width + 1;
    const RowCount escape_count = count_row(escaped, ballots);
    escape_out -= escape_count.total;
    if (escaped) escape_out[escape_count.rank] = high;
    nonzeros += count_row(value.integer != 0, ballots).total;
    if (lane < 16) {
      for (std::uint32_t part = 0; part < kLanes; part += 16) square_sum = add(square_sum, squares[part + lane]);
    }
    const std::uint32_t frequency = model.frequency[symbol];
    const bool sheds = lane_sheds(x, frequency);
    const RowCount shed = count_row(sheds, ballots);
    out -= shed.total;
    if (sheds) {
      out[shed.rank] = static_cast<std::uint8_t>(x);
      x >>= 8;
    }
    x = lane_encode(x, frequency, model.start[symbol], model.slot_of);
    __syncthreads();  // squares are read before the next row writes them
  }
  result.high[lane] = static_cast<std::uint8_t>(x >> 8);
  result.low[lane] = static_cast<std::uint8_t>(x);
  if (lane < 16) result.squares[lane] = square_sum;
  if (lane != 0) return;
  result.coder_bytes = static_cast<std::uint32_t>(out_end - out);
  result.escapes = static_cast<std::uint32_t>(escape_end - escape_out);
  result.nonzeros = nonzeros;
}

__global__ void decode_add_chunks(const DeviceModel* models, DeviceChunk* chunks, const std::uint8_t* bytes, const std::int32_t* escapes,
                                  const std::uint64_t* offsets, float* out, float scaled_step) {
  __shared__ DeviceModel model;
  __shared__ std::uint32_t ballots[2];
  DeviceChunk& chunk = chunks[blockIdx.x];
  if (chunk.is_skipped != 0) return;
  if (threadIdx.x == 0) model = models[blockIdx.x];
  __syncthreads();
  const std::uint32_t lane = threadIdx.x;
  const std::uint8_t* in = bytes + offsets[3 * blockIdx.x];
  const std::uint8_t* const in_end = in + chunk.coder_bytes;
  const std::int32_t* const escape_list = escapes + offsets[3 * blockIdx.x + 1];
  float* const values = out + offsets[3 * blockIdx.x + 2];
  std::uint32_t x = static_cast<std::uint32_t>(chunk.high[lane]) << 8 | chunk.low[lane];
  std::uint32_t escapes_used = 0;
  bool bad = false;
  for (std::uint32_t row = 0; row < rows_of(chunk.value_count) && !bad; ++row) {
    const std::uint32_t slot = x & 255U;
    const std::uint32_t symbol = model.symbol_of[slot];
    x = lane_decode(x, model.frequency[symbol], model.rank_of[slot]);
    const bool takes = x < 256;
    const RowCount taken = count_row(takes, ballots);
    const bool escaped = symbol == 2 * model.half_width + 1;
    const RowCount escape_count = count_row(escaped, ballots);
    // The same for all threads of the block: they leave together.
    bad = taken.total > static_cast<std::uint64_t>(in_end - in) || escapes_used + escape_count.total > chunk.escapes;
    if (bad) break;
    if (takes) x = x << 8 | in[taken.rank];
    in += taken.total;
    std::int32_t integer = static_cast<std::int32_t>(symbol) - static_cast<std::int32_t>(model.half_width);
    if (escaped) integer = escape_list[escapes_used + escape_count.rank];
    escapes_used += escape_count.total;
    integer = static_cast<std::int32_t>(static_cast<std::uint32_t>(integer) << model.low_bits);
    for (std::uint32_t bit = 0; bit < model.low_bits; ++bit) {
      const std::uint8_t plane = in_end[8ULL * (row * static_cast<std::uint64_t>(model.low_bits) + bit) + (lane >> 3)];
      integer |= ((plane >> (lane & 7U)) & 1) << bit;
    }
    const std::uint32_t index = row * kLanes + lane;
    const bool beyond = escaped && (integer > chunk.integer_limit || integer < -chunk.integer_limit);
    if (beyond || (index >= chunk.value_count && integer != 0)) chunk.is_bad = 1;
    if (index < chunk.value_count) values[index] = add(values[index], grid_value(integer, scaled_step));
  }
  if (bad || x != 256 || in != in_end || escapes_used != chunk.escapes) chunk.is_bad = 1;
}

int launched() { return static_cast<int>(cudaGetLastError()); }

}  // namespace

int launch_find_non_finite(const Feedback& feedback, unsigned long long* bad) {
  find_non_finite<<<1024, 256>>>(feedback, bad);
  return launched();
}

int launch_sample(const Feedback& feedback, std::uint32_t chunks, std::int32_t* sample) {
  sample_chunks<<<chunks, kSampleRun>>>(feedback, sample);
  return launched();
}

int launch_encode(const Feedback& feedback, std::uint32_t chunks, const DeviceModel* models, DeviceChunk* results, std::uint8_t* bytes,
                  std::uint64_t stride, std::int32_t* escapes, std::uint8_t* planes, std::uint64_t plane_stride) {
  encode_chunks<<<chunks, kLanes>>>(feedback, models, results, bytes, stride, escapes, planes, plane_stride);
  return launched();
}

int launch_decode_add(std::uint32_t chunks, const DeviceModel* models, DeviceChunk* given, const std::uint8_t* bytes,
                      const std::int32_t* escapes, const std::uint64_t* offsets, float* out, float scaled_step) {
  decode_add_chunks<<<chunks, kLanes>>>(models, given, bytes, escapes, offsets, out, scaled_step);
  return launched();
}

}  // namespace sluice::compression::cuda
