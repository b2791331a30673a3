#pragma once

// Arithmetic of one value, specified to the bit: fp32, round to nearest even, fixed order, no fused multiply-add. Shared by the
// portable kernels, the tests (as the reference) and the CUDA kernels, which compile it for both sides.

#include <cmath>
#include <cstdint>
#if defined(__SSE2__) && !defined(__CUDA_ARCH__)
#include <emmintrin.h>
#endif

#include "compression/limits.h"

#if defined(__CUDACC__)
#define SLUICE_HOST_DEVICE __host__ __device__
#else
#define SLUICE_HOST_DEVICE
#endif

namespace sluice::compression {

// True for NaN and Inf, by bits: works whatever the compiler assumes about floats.
SLUICE_HOST_DEVICE inline bool is_non_finite_bits(std::uint32_t bits) { return (bits & 0x7f800000U) == 0x7f800000U; }

SLUICE_HOST_DEVICE inline std::uint32_t float_bits(float value) {
  static_assert(sizeof(float) == sizeof(std::uint32_t));
  std::uint32_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}

SLUICE_HOST_DEVICE inline float bits_float(std::uint32_t bits) {
  float value = 0.0F;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

// True unless it is 0, subnormal, Inf or NaN.
SLUICE_HOST_DEVICE inline bool is_normal(float value) {
  const std::uint32_t exponent = float_bits(value) & 0x7f800000U;
  return exponent != 0 && exponent != 0x7f800000U;
}

SLUICE_HOST_DEVICE inline bool is_non_finite(float value) { return is_non_finite_bits(float_bits(value)); }

// fp32 product, sum and difference that no compiler fuses.
#if defined(__CUDA_ARCH__)
__device__ inline float multiply(float a, float b) { return __fmul_rn(a, b); }
__device__ inline float add(float a, float b) { return __fadd_rn(a, b); }
__device__ inline float subtract(float a, float b) { return __fsub_rn(a, b); }
#else
SLUICE_HOST_DEVICE inline float multiply(float a, float b) { return a * b; }
SLUICE_HOST_DEVICE inline float add(float a, float b) { return a + b; }
SLUICE_HOST_DEVICE inline float subtract(float a, float b) { return a - b; }
#endif

// Nearest integer, ties to even. REQUIRES: |scaled| <= kGridIntegerMax.
SLUICE_HOST_DEVICE inline std::int32_t round_half_even(float scaled) {
#if defined(__CUDA_ARCH__)
  return __float2int_rn(scaled);
#elif defined(__SSE2__)
  return _mm_cvtss_si32(_mm_set_ss(scaled));
#else
  return static_cast<std::int32_t>(std::nearbyintf(scaled));
#endif
}

// The integer of a scaled value: nearest, and clamped to +-kGridIntegerMax so that what goes beyond stays in the residual.
// A NaN gives an unspecified integer: callers test the value first.
SLUICE_HOST_DEVICE inline std::int32_t grid_integer(float scaled) {
  constexpr auto kMax = static_cast<float>(kGridIntegerMax);
  if (scaled > kMax) return kGridIntegerMax;
  if (!(scaled >= -kMax)) return -kGridIntegerMax;
  return round_half_even(scaled);
}

// The same for a sample that only chooses a model: what no int32 holds, NaN included, counts as the smallest integer.
SLUICE_HOST_DEVICE inline std::int32_t grid_sample_integer(float scaled) {
  if (!(scaled < 0x1p31F && scaled >= -0x1p31F)) return -kGridIntegerMax;
  return grid_integer(scaled);
}

struct Quantised {
  std::int32_t integer;
  float residual;
};

// Error feedback with an fp32 residual. `input` is weight * delta + residual.
SLUICE_HOST_DEVICE inline Quantised quantise_value(float input, float step, float inverse_step) {
  const std::int32_t integer = grid_integer(multiply(input, inverse_step));
  return Quantised{integer, subtract(input, multiply(step, static_cast<float>(integer)))};
}

// Unit of an int16 residual: step / 32768.
inline constexpr float kShortResidualUnits = 32768.0F;

struct ShortQuantised {
  std::int32_t integer;
  std::int16_t residual;  // in units of step / 32768
  float rest;             // the same in units of the step, before it is rounded
};

// Error feedback with an int16 residual. `input` is in units of the step; what is beyond the grid is lost, int16 cannot keep it.
SLUICE_HOST_DEVICE inline ShortQuantised quantise_short_value(float input) {
  constexpr auto kMax = static_cast<float>(kGridIntegerMax);
  const float inside = input > kMax ? kMax : input < -kMax ? -kMax : input;
  const std::int32_t integer = round_half_even(inside);
  const float rest = subtract(inside, static_cast<float>(integer));
  return ShortQuantised{integer, static_cast<std::int16_t>(round_half_even(multiply(rest, kShortResidualUnits))), rest};
}

// Inverse of quantise_short_value up to rounding: the residual from before, in its old unit.
// `weighted` is the value in units of the step, `short_scale` the old unit in units of the step.
SLUICE_HOST_DEVICE inline std::int16_t undo_short_value(std::int16_t residual, std::int32_t integer, float weighted, float short_scale) {
  const float rest = multiply(static_cast<float>(residual), 1.0F / kShortResidualUnits);
  float units = subtract(add(static_cast<float>(integer), rest), weighted) / short_scale;
  if (!(units < 32767.0F)) units = 32767.0F;
  if (units < -32767.0F) units = -32767.0F;
  return static_cast<std::int16_t>(round_half_even(units));
}

// Value of an integer; `scaled_step` is scale * step, rounded once.
SLUICE_HOST_DEVICE inline float grid_value(std::int32_t integer, float scaled_step) {
  return multiply(scaled_step, static_cast<float>(integer));
}

// fp32 to bfloat16, nearest even. REQUIRES: finite.
SLUICE_HOST_DEVICE inline std::uint16_t bf16_from_float(float value) {
  const std::uint32_t bits = float_bits(value);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

SLUICE_HOST_DEVICE inline float float_from_bf16(std::uint16_t half) { return bits_float(static_cast<std::uint32_t>(half) << 16); }

}  // namespace sluice::compression
