#pragma once

// Launchers of the device kernels, in types that a host compiler understands. Streams are the default stream; each call returns the CUDA
// status as an int (0: launched). All pointers are to device memory unless they say host.

#include <cstdint>

namespace sluice::compression::cuda {

// Model and result of one chunk, as the kernels read and write them.
struct DeviceModel {
  std::uint8_t frequency[64];
  std::uint8_t start[64];
  std::uint8_t slot_of[256];
  std::uint8_t symbol_of[256];
  std::uint8_t rank_of[256];
  std::uint32_t half_width;
  std::uint32_t low_bits;
};

struct DeviceChunk {
  std::uint8_t high[64];
  std::uint8_t low[64];
  float squares[16];
  std::uint32_t value_count;
  std::uint32_t coder_bytes;  // made (encode) or given (decode)
  std::uint32_t escapes;      // made or given
  std::uint32_t nonzeros;
  std::uint32_t is_skipped;    // coded on the host
  std::int32_t integer_limit;  // decode: largest |q|
  std::uint32_t is_bad;        // decode: the bytes do not end where they must
};

struct Feedback {
  const float* delta;
  float* residual;
  float weight;
  float decay;
  float step;
  float inverse_step;
  std::uint64_t count;
};

// Sets *bad to the smallest index whose input is not finite (UINT64_MAX: none).
int launch_find_non_finite(const Feedback& feedback, unsigned long long* bad);
// sample[chunk * 4096 ..]: integers of the 16 runs of 256 values of each whole-sized chunk.
int launch_sample(const Feedback& feedback, std::uint32_t chunks, std::int32_t* sample);
// One block of 64 threads per chunk. Per chunk: coder bytes end at bytes + (chunk + 1) * stride, escapes at escapes + (chunk + 1) *
// kChunkValues, planes begin at planes + chunk * plane_stride.
int launch_encode(const Feedback& feedback, std::uint32_t chunks, const DeviceModel* models, DeviceChunk* results, std::uint8_t* bytes,
                  std::uint64_t stride, std::int32_t* escapes, std::uint8_t* planes, std::uint64_t plane_stride);
// offsets[3 * chunk ..]: where in `bytes` its coder bytes begin (its planes follow them), in `escapes` its escapes (high parts), and in
// `out` its values.
int launch_decode_add(std::uint32_t chunks, const DeviceModel* models, DeviceChunk* given, const std::uint8_t* bytes,
                      const std::int32_t* escapes, const std::uint64_t* offsets, float* out, float scaled_step);

}  // namespace sluice::compression::cuda
