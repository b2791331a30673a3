// Goal: the coded sum holds exactly the sum of the contributions' integers, whatever their order, and contributions that do not belong
// together are refused. Method: sums of random contributions against plain integer addition.
#include "compression/chunk_sum.h"

#include <gtest/gtest.h>

#include "compression/frame_decoder.h"
#include "compression/grid_codec.h"
#include "compression/internal/grid_value.h"
#include "tests/compression/codec_data.h"

namespace sluice::compression {
namespace {

ByteVector grid_frame(std::uint64_t seed, std::size_t count, float step, ChunkId chunk = ChunkId(4)) {
  const auto delta = random_values(Shape::kGaussian, count, seed);
  std::vector<float> residual(count);
  ByteVector frame;
  EXPECT_TRUE(encode_grid_frame(delta, 1.0F, residual, step, chunk, frame));
  return frame;
}

std::vector<std::int32_t> integers_of(const ByteVector& frame) {
  const auto view = parse_frame(frame);
  EXPECT_TRUE(view);
  std::vector<std::int32_t> integers(view->header.value_count);
  EXPECT_TRUE(decode_frame_integers(*view, integers));
  return integers;
}

void expect_sum(const std::vector<ByteVector>& frames, std::uint32_t scale_of_last = 1) {
  std::vector<FrameView> views;
  std::vector<std::int32_t> expected(integers_of(frames[0]).size());
  for (std::size_t f = 0; f < frames.size(); ++f) {
    views.push_back(*parse_frame(frames[f]));
    const auto integers = integers_of(frames[f]);
    const auto factor = static_cast<std::int32_t>(f + 1 == frames.size() ? scale_of_last : 1);
    for (std::size_t i = 0; i < integers.size(); ++i) expected[i] += factor * integers[i];
  }
  ByteVector sum;
  ASSERT_TRUE(combine_frames(views, sum));
  const auto view = parse_frame(sum);
  ASSERT_TRUE(view) << view.error().to_string();
  EXPECT_EQ(view->header.contributions, frames.size());
  EXPECT_EQ(integers_of(sum), expected);
  std::reverse(views.begin(), views.end());
  ByteVector reversed;
  ASSERT_TRUE(combine_frames(views, reversed));
  EXPECT_EQ(integers_of(reversed), expected);
}

TEST(ChunkSum, DenseSumsAreExactInAnyOrder) {
  for (const std::size_t count : {0, 1, 64, 65, 5000, 262144}) {
    expect_sum({grid_frame(1, count, 0.5F), grid_frame(2, count, 0.5F), grid_frame(3, count, 0.5F)});
  }
}

TEST(ChunkSum, SparseSumsStaySparse) {
  const std::vector<ByteVector> frames{grid_frame(1, 200000, 5.2F), grid_frame(2, 200000, 5.2F), grid_frame(3, 200000, 5.2F)};
  expect_sum(frames);
  ByteVector sum;
  ASSERT_TRUE(combine_frames(std::vector<FrameView>{*parse_frame(frames[0]), *parse_frame(frames[1])}, sum));
  EXPECT_EQ(parse_frame(sum)->header.codec, Codec::kGridSparse);
}

TEST(ChunkSum, ACoarserGridIsAMultipleOfTheFiner) {
  expect_sum({grid_frame(1, 10000, 0.5F), grid_frame(2, 10000, 0.5F), grid_frame(3, 10000, 2.0F)}, 4);
}

TEST(ChunkSum, FixedCodecsAddInTheOrderGiven) {
  std::vector<float> residual(1000);
  const auto a = random_values(Shape::kGaussian, 1000, 1);
  const auto b = random_values(Shape::kGaussian, 1000, 2);
  ByteVector raw;
  ByteVector half;
  ASSERT_TRUE(encode_raw_frame(a, 0.5F, residual, ChunkId(0), raw));
  ASSERT_TRUE(encode_bf16_frame(b, 0.5F, residual, ChunkId(0), half));
  ByteVector sum;
  ASSERT_TRUE(combine_frames(std::vector<FrameView>{*parse_frame(raw), *parse_frame(half)}, sum));
  EXPECT_EQ(parse_frame(sum)->header.codec, Codec::kRaw32);
  std::vector<float> values(1000);
  ASSERT_TRUE(decode_frame(*parse_frame(sum), values));
  for (std::size_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(values[i], add(multiply(0.5F, a[i]), float_from_bf16(bf16_from_float(multiply(0.5F, b[i])))));
  }
}

TEST(ChunkSum, WhatDoesNotBelongTogetherIsRefused) {
  const ByteVector base = grid_frame(1, 1000, 0.5F);
  std::vector<float> residual(1000);
  ByteVector raw;
  ASSERT_TRUE(encode_raw_frame(residual, 1.0F, residual, ChunkId(4), raw));
  for (const ByteVector& other : {grid_frame(2, 1000, 0.5F, ChunkId(5)), grid_frame(2, 999, 0.5F), grid_frame(2, 1000, 0.6F), raw}) {
    ByteVector sum;
    const Status status = combine_frames(std::vector<FrameView>{*parse_frame(base), *parse_frame(other)}, sum);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kFrameUnexpected);
  }
  ByteVector sum;
  EXPECT_FALSE(combine_frames({}, sum));
  EXPECT_FALSE(combine_frames(std::vector<FrameView>(17, *parse_frame(base)), sum));
}

}  // namespace
}  // namespace sluice::compression
