// Goal: element types convert as IEEE 754 says, and chunks of vectors beyond 2^31 values lie where they must.
// Method: all 65536 halves there and back, rounding at ties, boundaries, NaN; chunk arithmetic at 2^31 + 1.
#include "compression/elements.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sluice::compression {
namespace {

float load_half(std::uint16_t bits, ElementType type) {
  std::uint8_t bytes[2];
  store_le(bytes, bits);
  float value = 0.0F;
  load_elements(bytes, type, std::span<float>(&value, 1));
  return value;
}

std::uint16_t store_half(float value, ElementType type) {
  std::uint8_t bytes[2];
  store_elements(std::span<const float>(&value, 1), type, bytes);
  return load_le<std::uint16_t>(bytes);
}

TEST(Elements, EveryHalfComesBack) {
  for (const ElementType type : {ElementType::kFloat16, ElementType::kBfloat16}) {
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      const float value = load_half(static_cast<std::uint16_t>(bits), type);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(load_half(store_half(value, type), type)));
      } else {
        ASSERT_EQ(store_half(value, type), bits);
      }
    }
  }
}

TEST(Elements, Fp16RoundsToNearestEven) {
  EXPECT_EQ(load_half(0x0001, ElementType::kFloat16), 0x1p-24F);
  EXPECT_EQ(load_half(0x3c00, ElementType::kFloat16), 1.0F);
  EXPECT_EQ(store_half(1.0F + 0x1p-11F, ElementType::kFloat16), 0x3c00);      // tie, to even
  EXPECT_EQ(store_half(1.0F + 3 * 0x1p-11F, ElementType::kFloat16), 0x3c02);  // tie, to even
  EXPECT_EQ(store_half(1.0F + 0x1.8p-11F, ElementType::kFloat16), 0x3c01);
  EXPECT_EQ(store_half(0x1p-25F, ElementType::kFloat16), 0x0000);  // half of the smallest, to even
  EXPECT_EQ(store_half(0x1.8p-25F, ElementType::kFloat16), 0x0001);
  EXPECT_EQ(store_half(65504.0F, ElementType::kFloat16), 0x7bff);
  EXPECT_EQ(store_half(65519.0F, ElementType::kFloat16), 0x7bff);
  EXPECT_EQ(store_half(65520.0F, ElementType::kFloat16), 0x7c00);
  EXPECT_EQ(store_half(-std::numeric_limits<float>::infinity(), ElementType::kFloat16), 0xfc00);
}

TEST(Elements, NonFiniteIsFoundByIndex) {
  std::vector<float> values(1000, 1.0F);
  EXPECT_EQ(find_non_finite(values), 1000U);
  values[999] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(find_non_finite(values), 999U);
  values[300] = std::nanf("");
  EXPECT_EQ(find_non_finite(values), 300U);
}

TEST(Elements, ChunksReachBeyond31Bits) {
  constexpr std::uint64_t kCount = (std::uint64_t{1} << 31) + 1;
  EXPECT_EQ(chunk_count(kCount), 8193U);
  EXPECT_EQ(chunk_range(ChunkId(8192), kCount).begin, std::uint64_t{1} << 31);
  EXPECT_EQ(chunk_range(ChunkId(8192), kCount).size, 1U);
  EXPECT_EQ(chunk_range(ChunkId(8191), kCount).size, kChunkValues);
  EXPECT_EQ(chunk_count(0), 0U);
  EXPECT_EQ(chunk_count(1), 1U);
}

}  // namespace
}  // namespace sluice::compression
