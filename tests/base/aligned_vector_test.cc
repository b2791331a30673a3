// Goal: arrays begin at a cache line whatever their size and however they grow. Method: addresses of vectors of every size up to some
// lines.
#include "base/aligned_vector.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace sluice {
namespace {

template <typename T>
bool is_at_line(const AlignedVector<T>& vector) {
  return reinterpret_cast<std::uintptr_t>(vector.data()) % kCacheLineBytes == 0;
}

TEST(AlignedVector, BeginsAtACacheLineAtEverySize) {
  for (std::size_t size = 1; size < 300; ++size) {
    const AlignedVector<float> floats(size, 1.0F);
    const AlignedVector<std::int16_t> words(size);
    EXPECT_TRUE(is_at_line(floats)) << size;
    EXPECT_TRUE(is_at_line(words)) << size;
  }
  EXPECT_TRUE(is_at_line(AlignedVector<float>(std::size_t{1} << 20)));
}

TEST(AlignedVector, KeepsItsValuesAndItsPlaceWhenItGrowsOrIsSwapped) {
  AlignedVector<int> grown;
  for (int value = 0; value < 1000; ++value) {
    grown.push_back(value);
    ASSERT_TRUE(is_at_line(grown)) << value;
  }
  AlignedVector<int> other(3, -1);
  other.swap(grown);
  EXPECT_TRUE(is_at_line(other));
  EXPECT_EQ(other.size(), 1000U);
  EXPECT_EQ(other.back(), 999);
  EXPECT_EQ(grown.size(), 3U);
}

}  // namespace
}  // namespace sluice
