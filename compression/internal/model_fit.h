#pragma once

// From the counts of a sample to the probability model of a chunk. Pure; only + - * / in fixed order, so that every machine chooses the
// same model from the same sample.

#include <cstddef>

#include "compression/internal/grid_kernels.h"
#include "compression/internal/grid_model.h"

namespace sluice::compression {

// The shares of the values -15 .. 15 in a population of which `counts` of `total` values are a sample.
using ValueShares = std::array<double, 2 * kGridHalfWidthMax + 1>;

// Averages and smooths the counts where the sample does not speak against it: fewer free numbers, less noise. REQUIRES: total > 0.
ValueShares estimate_shares(const ValueCounts& counts, std::size_t total);

// The shares as counted, for a sample that is the whole population.
ValueShares counted_shares(const ValueCounts& counts, std::size_t total);

// Chooses K and frequencies. A pair of values +-k below kPairSlotsMin of 256 slots is cheaper among the escapes.
GridModel choose_model(const ValueShares& shares);

}  // namespace sluice::compression
