#pragma once

// The dense grid codec on a GPU: the same per-value functions and the same bytes as the CPU. Quantisation, coding, decoding and adding run
// on the device, where deltas and residuals are; models and frames are made on the host from what the device returns. Chunks of up to 4096
// values, and chunks so sparse that a sparse frame is smaller, are coded on the host.
// One object per device and thread. Device memory: about 3 bytes per value of the largest call.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "compression/frame.h"

namespace sluice::compression {

class GridCuda {
 public:
  // Errors: kUnavailable when the build has no CUDA or the machine no usable device; the detail says which.
  static Result<GridCuda> create(int device);
  ~GridCuda();
  GridCuda(GridCuda&&) noexcept;
  GridCuda& operator=(GridCuda&&) noexcept;

  // Encodes `count` values in chunks, the first with id `first_chunk`. Pointers are to device memory; the residual is updated there.
  // A value that is not finite refuses the call with kNonFinite before anything is changed. Other errors as FrameEncoder::encode_grid, and
  // kUnavailable for a failing device.
  Result<std::vector<ByteVector>> encode(const float* delta, float weight, float* residual, std::uint64_t count, float step,
                                         ChunkId first_chunk, float decay = 1.0F);

  // out[i] += (scale * step) * q[i] for frames of consecutive chunks; `out` is device memory. Errors as decode_frame_add.
  Status decode_add(std::span<const FrameView> frames, float* out, float scale);

 private:
  struct Impl;
  explicit GridCuda(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::compression
