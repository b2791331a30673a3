// Goal: packed state comes back bit for bit, gains where exponents are skewed, and broken streams are refused within their limit.
// Method: round trips of all element types and odd sizes, pieces of any length, every single changed byte of a small stream.
#include "compression/state_codec.h"

#include <gtest/gtest.h>

#include "compression/elements.h"
#include "tests/compression/codec_data.h"

namespace sluice::compression {
namespace {

ByteVector weights(ElementType type, std::size_t count) {
  const auto values = random_values(Shape::kGaussian, count, 5, 0.02);
  ByteVector bytes(count * element_size(type));
  store_elements(values, type, bytes);
  return bytes;
}

TEST(StateCodec, AllTypesAndSizesRoundTrip) {
  for (const ElementType type : {ElementType::kFloat32, ElementType::kFloat16, ElementType::kBfloat16}) {
    for (const std::size_t count : {0U, 1U, 3U, 1000U, 262144U, 600001U}) {
      ByteVector bytes = weights(type, count);
      if (count == 1000) bytes.push_back(7);  // not a multiple of the element size
      const auto packed = pack_state(bytes, type);
      ASSERT_TRUE(packed);
      const auto unpacked = unpack_state(*packed, bytes.size());
      ASSERT_TRUE(unpacked) << unpacked.error().to_string();
      ASSERT_EQ(*unpacked, bytes);
    }
  }
}

TEST(StateCodec, Bf16WeightsGainAtLeast145Percent) {
  const ByteVector bytes = weights(ElementType::kBfloat16, std::size_t{1} << 20);
  EXPECT_GE(static_cast<double>(bytes.size()) / static_cast<double>(pack_state(bytes, ElementType::kBfloat16)->size()), 1.45);
}

TEST(StateCodec, NoiseIsStoredAtTheCostOfHeaders) {
  Random random(1);
  ByteVector bytes(std::size_t{2} << 20);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random.next());
  const auto packed = pack_state(bytes, ElementType::kFloat32);
  EXPECT_LE(packed->size(), bytes.size() + 2 * kStateHeaderBytes);
  EXPECT_EQ(*unpack_state(*packed, bytes.size()), bytes);
}

TEST(StateCodec, StreamsArriveInPiecesOfAnySize) {
  const ByteVector bytes = weights(ElementType::kBfloat16, 1200000);
  const ByteVector packed = *pack_state(bytes, ElementType::kBfloat16);
  for (const std::size_t piece : {1000U, 65536U, 1500000U}) {
    StateUnpacker unpacker;
    ByteVector out;
    for (std::size_t at = 0; at < packed.size(); at += piece) {
      ASSERT_TRUE(unpacker.push(ByteSpan(packed).subspan(at, std::min(piece, packed.size() - at)), out));
    }
    EXPECT_TRUE(unpacker.is_at_block_end());
    EXPECT_EQ(out, bytes);
  }
}

TEST(StateCodec, EveryChangedByteAndEveryTruncationIsRefused) {
  const ByteVector bytes = weights(ElementType::kBfloat16, 300);
  const ByteVector packed = *pack_state(bytes, ElementType::kBfloat16);
  for (std::size_t at = 0; at < packed.size(); ++at) {
    for (const unsigned flip : {0x01U, 0x80U, 0xffU}) {
      ByteVector broken = packed;
      broken[at] = static_cast<std::uint8_t>(broken[at] ^ flip);
      const auto unpacked = unpack_state(broken, std::size_t{1} << 20);
      // A change of the element type may leave the bytes alone only if it also leaves the values alone.
      EXPECT_TRUE(!unpacked || *unpacked == bytes) << at;
    }
    EXPECT_FALSE(unpack_state(ByteSpan(packed).first(at), bytes.size()) && at != 0) << at;
  }
}

TEST(StateCodec, MoreThanTheLimitIsRefused) {
  const ByteVector bytes = weights(ElementType::kBfloat16, 600000);
  const auto unpacked = unpack_state(*pack_state(bytes, ElementType::kBfloat16), bytes.size() - 1);
  ASSERT_FALSE(unpacked);
  EXPECT_EQ(unpacked.error().code, ErrorCode::kLimitExceeded);
}

}  // namespace
}  // namespace sluice::compression
