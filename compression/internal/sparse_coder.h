#pragma once

// Payload of GRID sparse frames: Golomb-Rice gaps with signs, and the magnitudes of the few integers beyond +-1. Pure.

#include <cstdint>
#include <span>

#include "compression/internal/dense_coder.h"

namespace sluice::compression {

// Codes a list of `nonzeros` integers with ascending positions below `count`. The list is workspace.positions / workspace.escapes.
CodedPayload encode_sparse_list(std::span<const std::uint32_t> positions, std::span<const std::int32_t> integers, std::size_t count,
                                EncodeWorkspace& workspace);

// Error feedback, quantisation and coding of `count` values of `source`; same failure rule as encode_dense.
CodedPayload encode_sparse(const GridKernels& kernels, const GridSource& source, std::size_t count, EncodeWorkspace& workspace);

// Adds (or, for the Set sinks, stores over zeros written first) the integers of the frame. False as decode_dense.
bool decode_sparse(const FrameView& frame, const GridSink& sink);

}  // namespace sluice::compression
