// Goal: digests are those of XXH3, so that sites of different builds agree. Method: golden values of xxHash 0.8, one flipped bit.
#include "base/hash.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

ByteVector counting_bytes(std::size_t count) {
  ByteVector bytes(count);
  for (std::size_t index = 0; index < count; ++index) bytes[index] = static_cast<std::uint8_t>(index);
  return bytes;
}

TEST(Xxh3, MatchesThePublishedValueOfNothing) {
  EXPECT_EQ(xxh3_64({}), 0x2d06800538d394c2U);
  EXPECT_EQ(xxh3_128({}), (Digest{0x6001c324468d497f, 0x99aa06d3014798d8}));
}

TEST(Xxh3, EveryBitCountsAtEveryLengthClass) {
  for (const std::size_t length : {1U, 3U, 8U, 16U, 17U, 128U, 240U, 241U, 1024U, 4097U}) {
    ByteVector bytes = counting_bytes(length);
    const std::uint64_t short_hash = xxh3_64(bytes);
    const Digest digest = xxh3_128(bytes);
    bytes[length / 2] ^= 0x10;
    EXPECT_NE(xxh3_64(bytes), short_hash) << length;
    EXPECT_NE(xxh3_128(bytes), digest) << length;
  }
}

}  // namespace
}  // namespace sluice
