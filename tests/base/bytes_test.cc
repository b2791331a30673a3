// Goal: fields survive a round trip in little-endian order, and a reader never leaves its span. Method: golden bytes, every truncation.
#include "base/bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace sluice {
namespace {

using ::testing::ElementsAre;

ByteVector sample() {
  ByteVector bytes;
  ByteWriter writer(bytes);
  writer.write(std::uint8_t{0x01});
  writer.write(std::uint16_t{0x2345});
  writer.write(std::uint64_t{0x1122334455667788});
  writer.write(1.0F);
  return bytes;
}

TEST(ByteWriter, NumbersAreLittleEndian) {
  EXPECT_THAT(sample(), ElementsAre(0x01, 0x45, 0x23, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x00, 0x00, 0x80, 0x3f));
}

TEST(ByteWriter, AppendsToWhatIsThere) {
  ByteVector bytes{7};
  ByteWriter writer(bytes);
  writer.write_span(ByteVector{8, 9});
  writer.write(std::int8_t{-1});
  EXPECT_THAT(bytes, ElementsAre(7, 8, 9, 0xff));
}

TEST(ByteReader, ReadsBackWhatWasWritten) {
  const ByteVector bytes = sample();
  ByteReader reader(bytes);
  EXPECT_EQ(reader.read<std::uint8_t>(), 0x01);
  EXPECT_EQ(reader.read<std::uint16_t>(), 0x2345);
  EXPECT_EQ(reader.read<std::uint64_t>(), 0x1122334455667788U);
  EXPECT_EQ(reader.read<float>(), 1.0F);
  EXPECT_EQ(reader.remaining(), 0U);
  EXPECT_FALSE(reader.failed());
}

TEST(ByteReader, EveryTruncationIsNoticed) {
  const ByteVector bytes = sample();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    ByteReader reader(ByteSpan(bytes).first(length));
    reader.read<std::uint8_t>();
    reader.read<std::uint16_t>();
    reader.read<std::uint64_t>();
    reader.read<float>();
    EXPECT_TRUE(reader.failed()) << "at length " << length;
    EXPECT_EQ(reader.remaining(), 0U);
  }
}

TEST(ByteReader, AShortReadYieldsZeroAndStaysFailed) {
  const ByteVector bytes{1, 2, 3};
  ByteReader reader(bytes);
  EXPECT_EQ(reader.read<std::uint32_t>(), 0U);
  EXPECT_EQ(reader.read<std::uint8_t>(), 0U);
  EXPECT_TRUE(reader.failed());
}

TEST(ByteReader, AHugeSpanIsRefusedWithoutOverflow) {
  const ByteVector bytes{1, 2, 3};
  ByteReader reader(bytes);
  reader.read<std::uint8_t>();
  EXPECT_TRUE(reader.read_span(std::numeric_limits<std::size_t>::max()).empty());
  EXPECT_TRUE(reader.failed());
}

TEST(ByteReader, AnEmptySpanIsNoFailure) {
  ByteReader reader(ByteSpan{});
  EXPECT_TRUE(reader.read_span(0).empty());
  EXPECT_FALSE(reader.failed());
}

TEST(Bytes, UnalignedNumbersAreLoadedAndStored) {
  ByteVector bytes(9, 0);
  store_le(bytes.data() + 1, std::uint64_t{42});
  EXPECT_EQ(load_le<std::uint64_t>(bytes.data() + 1), 42U);
}

}  // namespace
}  // namespace sluice
