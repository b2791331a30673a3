#pragma once

// One lane of the coder as plain functions, compiled for host and device: the CUDA kernels run a row on 64 threads, the tests run the
// same functions on the host against the portable kernels. Exact division, so any frequency will do.

#include <cstdint>

#include "compression/internal/grid_value.h"

namespace sluice::compression {

// True when the lane must shed its low byte before a symbol of this frequency.
SLUICE_HOST_DEVICE inline bool lane_sheds(std::uint32_t x, std::uint32_t frequency) { return x >= (frequency << 8); }

// State after a symbol; `slot_of` is GridModel's table, `start` the symbol's first index in it. REQUIRES: x < 256 * frequency.
SLUICE_HOST_DEVICE inline std::uint32_t lane_encode(std::uint32_t x, std::uint32_t frequency, std::uint32_t start,
                                                    const std::uint8_t* slot_of) {
  const std::uint32_t quotient = x / frequency;
  return quotient << 8 | slot_of[start + (x - quotient * frequency)];
}

// State before the symbol was coded, still without the byte that it shed when the result is below 256.
SLUICE_HOST_DEVICE inline std::uint32_t lane_decode(std::uint32_t x, std::uint32_t frequency, std::uint32_t rank) {
  return frequency * (x >> 8) + rank;
}

// Symbol of an integer's high part.
SLUICE_HOST_DEVICE inline std::uint32_t lane_symbol(std::int32_t high, std::uint32_t half_width) {
  const std::uint32_t symbol = static_cast<std::uint32_t>(high) + half_width;
  const std::uint32_t escape = 2 * half_width + 1;
  return symbol < escape ? symbol : escape;
}

}  // namespace sluice::compression
