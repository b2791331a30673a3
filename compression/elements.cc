#include "compression/elements.h"

#include <cstring>

#include "base/assert.h"
#include "compression/internal/grid_value.h"

namespace sluice::compression {
namespace {

float float_from_fp16(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 31U;
  const std::uint32_t mantissa = half & 0x3ffU;
  if (exponent == 0) return bits_float(sign | float_bits(static_cast<float>(mantissa) * 0x1p-24F));
  if (exponent == 31) return bits_float(sign | 0x7f800000U | mantissa << 13);
  return bits_float(sign | (exponent + 112U) << 23 | mantissa << 13);
}

std::uint16_t fp16_from_float(float value) {
  const std::uint32_t bits = float_bits(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);   // NaN
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // rounds to 65536 or more
  if (magnitude < 0x38800000U) {
    // Below the smallest normal fp16: adding 0.5 aligns the unit 2^-24 with the last bit of the sum, which rounds to nearest even.
    const float aligned = bits_float(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (float_bits(aligned) - float_bits(0.5F)));
  }
  const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - (112U << 23)) >> 13));
}

std::uint16_t bf16_or_nan(float value) {
  if ((float_bits(value) & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((float_bits(value) >> 16) | 0x40U);
  return bf16_from_float(value);
}

}  // namespace

void load_elements(ByteSpan bytes, ElementType type, std::span<float> values) {
  SLUICE_ASSERT(bytes.size() == values.size() * element_size(type), "{} bytes for {} values", bytes.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    switch (type) {
      case ElementType::kFloat32:
        values[i] = load_le<float>(bytes.data() + 4 * i);
        break;
      case ElementType::kFloat16:
        values[i] = float_from_fp16(load_le<std::uint16_t>(bytes.data() + 2 * i));
        break;
      case ElementType::kBfloat16:
        values[i] = float_from_bf16(load_le<std::uint16_t>(bytes.data() + 2 * i));
        break;
    }
  }
}

void store_elements(std::span<const float> values, ElementType type, std::span<std::uint8_t> bytes) {
  SLUICE_ASSERT(bytes.size() == values.size() * element_size(type), "{} bytes for {} values", bytes.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    switch (type) {
      case ElementType::kFloat32:
        store_le(bytes.data() + 4 * i, values[i]);
        break;
      case ElementType::kFloat16:
        store_le(bytes.data() + 2 * i, fp16_from_float(values[i]));
        break;
      case ElementType::kBfloat16:
        store_le(bytes.data() + 2 * i, bf16_or_nan(values[i]));
        break;
    }
  }
}

std::size_t find_non_finite(std::span<const float> values) {
  constexpr std::size_t kBlock = 256;
  for (std::size_t at = 0; at < values.size(); at += kBlock) {
    const std::size_t end = std::min(values.size(), at + kBlock);
    std::uint32_t bad = 0;
    for (std::size_t i = at; i < end; ++i) bad |= is_non_finite(values[i]) ? 1U : 0U;
    if (bad == 0) continue;
    while (!is_non_finite(values[at])) ++at;
    return at;
  }
  return values.size();
}

}  // namespace sluice::compression
