// Stands in for grid_cuda.cu where the build has no CUDA: every call says so.
#include "compression/cuda/grid_cuda.h"

namespace sluice::compression {

struct GridCuda::Impl {};

GridCuda::GridCuda(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GridCuda::~GridCuda() = default;
GridCuda::GridCuda(GridCuda&&) noexcept = default;
GridCuda& GridCuda::operator=(GridCuda&&) noexcept = default;

Result<GridCuda> GridCuda::create(int) { return fail(ErrorCode::kUnavailable, "open GPU codec", "built without CUDA (SLUICE_CUDA)"); }

Result<std::vector<ByteVector>> GridCuda::encode(const float*, float, float*, std::uint64_t, float, ChunkId, float) {
  return fail(ErrorCode::kUnavailable, "encode on GPU", "built without CUDA (SLUICE_CUDA)");
}

Status GridCuda::decode_add(std::span<const FrameView>, float*, float) {
  return fail(ErrorCode::kUnavailable, "decode on GPU", "built without CUDA (SLUICE_CUDA)");
}

}  // namespace sluice::compression
