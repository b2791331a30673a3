// Goal: element types convert as IEEE 754 says, and chunks of vectors beyond 2^31 values lie where they must.
// Method: all 65536 halves there and back, rounding at ties, boundaries, NaN; chunk arithmetic at 2^31 + 1, and a vector of that size made
// of the same 16 MiB mapped again and again, so that it takes addresses and no memory.
#include "compression/elements.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <limits>

#include "compression/frame_decoder.h"
#include "compression/grid_codec.h"
#include "compression/sketch.h"

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

// 2^31 + 1 floats at consecutive addresses: 16 MiB of ones 512 times, then a page of its own for the last value.
class LongVector {
 public:
  static constexpr std::uint64_t kCount = (std::uint64_t{1} << 31) + 1;
  LongVector() {
    const int file = memfd_create("long-vector", 0);
    if (file < 0 || ftruncate(file, kPieceBytes + kPageBytes) != 0) return;
    void* const place = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) return;
    begin_ = static_cast<std::uint8_t*>(place);
    for (std::uint64_t at = 0; at + kPageBytes < kBytes; at += kPieceBytes) is_whole_ = map(file, begin_ + at, kPieceBytes, 0) && is_whole_;
    is_whole_ = map(file, begin_ + kBytes - kPageBytes, kPageBytes, kPieceBytes) && is_whole_;
    close(file);
    std::fill_n(values().begin(), kPieceBytes / 4, 1.0F);
  }
  ~LongVector() {
    if (begin_ != nullptr) munmap(begin_, kBytes);
  }
  LongVector(const LongVector&) = delete;
  LongVector& operator=(const LongVector&) = delete;
  [[nodiscard]] bool is_whole() const { return begin_ != nullptr && is_whole_; }
  [[nodiscard]] std::span<float> values() const { return {reinterpret_cast<float*>(begin_), kCount}; }

 private:
  static constexpr std::uint64_t kPageBytes = 4096;
  static constexpr std::uint64_t kPieceBytes = std::uint64_t{16} << 20;
  static constexpr std::uint64_t kBytes = 4 * (kCount - 1) + kPageBytes;
  static bool map(int file, void* at, std::uint64_t bytes, std::uint64_t offset) {
    return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, static_cast<off_t>(offset)) == at;
  }
  std::uint8_t* begin_ = nullptr;
  bool is_whole_ = true;
};

TEST(Elements, AVectorBeyond31BitsIsSearchedAndCodedToItsLastValue) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "this sanitizer keeps four bytes for each byte read: 32 GiB here";
#endif
  const LongVector vector;
  ASSERT_TRUE(vector.is_whole());
  const std::span<float> values = vector.values();
  const std::uint64_t last = values.size() - 1;
  values[last] = -3.0F;
  EXPECT_EQ(find_non_finite(values), values.size());
  const ChunkId chunk(static_cast<std::uint32_t>(chunk_count(values.size()) - 1));
  const ChunkRange range = chunk_range(chunk, values.size());
  ASSERT_EQ(range.begin, last);
  std::vector<float> residual(range.size);
  ByteVector frame;
  ASSERT_TRUE(encode_grid_frame(values.subspan(range.begin, range.size), 1.0F, residual, 0.5F, chunk, frame));
  float decoded = 0.0F;
  ASSERT_TRUE(decode_frame(*parse_frame(frame), std::span<float>(&decoded, 1)));
  EXPECT_EQ(decoded, -3.0F);
  Sketch sketch;
  sketch.add(values, 1.0F, {}, std::uint32_t{1} << 16);
  EXPECT_EQ(sketch.samples(), (std::uint64_t{1} << 15) + 1);
  values[last] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(find_non_finite(values), last);
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
