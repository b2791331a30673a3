#pragma once

// A fixed sample of a chunk's integers, from which an encoder takes model and representation. Pure.

#include <array>
#include <cstdint>
#include <span>

#include "compression/internal/grid_kernels.h"

namespace sluice::compression {

// 16 runs of 256 values, spread evenly: contiguous runs cost little of the memory time that scattered values would.
inline constexpr std::size_t kSampleRuns = 16;
inline constexpr std::size_t kSampleRunValues = 256;
inline constexpr std::size_t kSampleValues = kSampleRuns * kSampleRunValues;

// Integers of the sample; nothing is changed. Values that are not finite give any integer. REQUIRES: count >= kSampleValues.
void sample_integers(const GridKernels& kernels, const GridSource& source, std::size_t count,
                     std::array<std::int32_t, kSampleValues>& sample);

// True when the sample has so few integers beside 0 that a sparse frame is smaller.
bool is_sparse_sample(std::span<const std::int32_t> sample);

// Index of the first value from `first` on whose input is not finite; `count` when there is none.
std::size_t first_non_finite(const GridSource& source, std::size_t first, std::size_t count);

// Error feedback and quantisation of a whole small chunk. REQUIRES: all inputs finite.
void quantise_source(const GridSource& source, std::size_t count, std::int32_t* integers, std::array<float, 16>& squares);

}  // namespace sluice::compression
