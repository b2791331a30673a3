// Goal: what a receiver decodes plus what the sender keeps is exactly what was to be sent, at every size, shape and step, and bad
// values are refused with nothing lost. Method: round trips against the arithmetic of one value, sweeps over sizes and steps.
#include "compression/grid_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "compression/frame_decoder.h"
#include "compression/internal/grid_kernels.h"
#include "compression/internal/grid_value.h"
#include "tests/compression/codec_data.h"

namespace sluice::compression {
namespace {

double entropy_of(const std::vector<std::int32_t>& integers) {
  std::vector<std::int32_t> sorted = integers;
  std::sort(sorted.begin(), sorted.end());
  double entropy = 0.0;
  for (std::size_t at = 0; at < sorted.size();) {
    std::size_t end = at;
    while (end < sorted.size() && sorted[end] == sorted[at]) ++end;
    const double share = static_cast<double>(end - at) / static_cast<double>(sorted.size());
    entropy -= share * std::log2(share);
    at = end;
  }
  return entropy;
}

// Encodes, checks integers and residuals against the arithmetic of one value, and the decoded values against the identity.
EncodeStats expect_exact(const std::vector<float>& delta, float weight, std::vector<float> residual, float step) {
  const std::vector<float> before = residual;
  ByteVector frame;
  const auto stats = encode_grid_frame(delta, weight, residual, step, ChunkId(7), frame);
  EXPECT_TRUE(stats) << stats.error().to_string();
  const auto view = parse_frame(frame);
  EXPECT_TRUE(view) << view.error().to_string();
  if (!stats || !view) return {};
  EXPECT_EQ(view->header.value_count, delta.size());
  EXPECT_EQ(8 * frame.size(), stats->bits);
  std::vector<std::int32_t> integers(delta.size());
  EXPECT_TRUE(decode_frame_integers(*view, integers));
  std::vector<float> values(delta.size(), 123.0F);
  EXPECT_TRUE(decode_frame(*view, values));
  std::vector<float> sums(delta.size(), 1.0F);
  EXPECT_TRUE(decode_frame_add(*view, sums, 0.5F));
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < delta.size(); ++i) {
    const float input = add(multiply(weight, delta[i]), before[i]);
    const Quantised expected = quantise_value(input, step, 1.0F / step);
    const bool same = expected.integer == integers[i] && float_bits(expected.residual) == float_bits(residual[i]) &&
                      float_bits(values[i]) == float_bits(grid_value(integers[i], step)) && input - values[i] - residual[i] == 0.0F &&
                      sums[i] == add(1.0F, grid_value(integers[i], multiply(0.5F, step)));
    wrong += same ? 0U : 1U;
  }
  EXPECT_EQ(wrong, 0U) << delta.size() << " values, step " << step;
  return *stats;
}

TEST(GridCodec, EverySizeRoundTripsExactly) {
  for (const std::size_t size : {0, 1, 2, 63, 64, 65, 100, 1000, 4095, 4096, 4097, 5000, 65535, 262143, 262144}) {
    const auto delta = random_values(Shape::kGaussian, size, size + 1);
    expect_exact(delta, 0.5F, random_values(Shape::kGaussian, size, size + 2, 0.1), 0.25F);
  }
}

TEST(GridCodec, EveryShapeAndRateRoundTripsExactly) {
  for (const Shape shape : {Shape::kGaussian, Shape::kLaplace, Shape::kHeavy}) {
    for (const float step : {1e-6F, 1e-4F, 1e-3F, 0.01F, 0.065F, 0.259F, 0.522F, 1.082F, 3.0F, 6.0F, 100.0F}) {
      const auto delta = random_values(shape, 70001, 3);
      expect_exact(delta, 1.0F, std::vector<float>(delta.size()), step);
    }
  }
}

TEST(GridCodec, CostsAtMostAHundredthOfABitOverEntropy) {
  constexpr std::uint64_t kChunks = 6;
  for (const float step : {1.658F, 1.082F, 0.522F, 0.259F}) {
    double excess = 0.0;
    for (std::uint64_t chunk = 0; chunk < kChunks; ++chunk) {
      const auto delta = random_values(Shape::kGaussian, kChunkValues, 100 + chunk);
      std::vector<float> residual(delta.size());
      ByteVector frame;
      ASSERT_TRUE(encode_grid_frame(delta, 1.0F, residual, step, ChunkId(0), frame));
      std::vector<std::int32_t> integers(delta.size());
      const auto view = parse_frame(frame);
      ASSERT_TRUE(view);
      ASSERT_TRUE(decode_frame_integers(*view, integers));
      excess += static_cast<double>(view->header.coded_bits) / kChunkValues - entropy_of(integers);
    }
    EXPECT_LE(excess / kChunks, 0.01) << "step " << step;
  }
}

TEST(GridCodec, HostileValuesRoundTripExactly) {
  std::vector<float> delta(20000, 0.0F);
  delta[100] = 1e30F;
  delta[5000] = -1e30F;
  delta[5001] = std::numeric_limits<float>::denorm_min();
  delta[5002] = -0.0F;
  delta[19999] = std::numeric_limits<float>::max();
  expect_exact(delta, 1.0F, std::vector<float>(delta.size()), 1e-3F);
  Random random(9);
  for (float& value : delta) value = bits_float(static_cast<std::uint32_t>(random.next()) & 0xBF7FFFFFU);
  expect_exact(delta, 1.0F, std::vector<float>(delta.size()), 1e-3F);
  for (float& value : delta) value = 0.5F;  // halves, to even
  expect_exact(delta, 1.0F, std::vector<float>(delta.size()), 1.0F);
  for (float& value : delta) value = 1e6F;
  expect_exact(delta, 1.0F, std::vector<float>(delta.size()), 1.0F);
}

TEST(GridCodec, ZeroChunkCostsAFewBytes) {
  std::vector<float> delta(kChunkValues);
  const EncodeStats stats = expect_exact(delta, 1.0F, std::vector<float>(delta.size()), 1.0F);
  EXPECT_LE(stats.bits, 8U * (kFrameHeaderBytes + kFrameTrailerBytes));
  EXPECT_EQ(stats.nonzeros, 0U);
}

TEST(GridCodec, ResidualNeverExceedsHalfAStep) {
  auto delta = random_values(Shape::kHeavy, 50000, 4);
  std::vector<float> residual(delta.size());
  ByteVector frame;
  for (int round = 0; round < 4; ++round) ASSERT_TRUE(encode_grid_frame(delta, 1.0F, residual, 0.75F, ChunkId(0), frame));
  for (const float rest : residual) ASSERT_LE(std::fabs(rest), 0.375F * 1.000001F);
}

TEST(GridCodec, NonFiniteIsRefusedByIndexAndTheResidualIsGivenBack) {
  for (const std::size_t size : {std::size_t{1000}, std::size_t{100000}}) {
    for (const float scale : {1.0F, 1e-3F}) {
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::quiet_NaN()}) {
        auto delta = random_values(Shape::kGaussian, size, 6, static_cast<double>(scale));
        auto residual = random_values(Shape::kGaussian, size, 7, static_cast<double>(scale) * 0.1);
        const auto before = residual;
        delta[size / 2 + 3] = bad;
        ByteVector frame;
        const auto stats = encode_grid_frame(delta, 1.0F, residual, 0.522F, ChunkId(3), frame);
        ASSERT_FALSE(stats);
        EXPECT_EQ(stats.error().code, ErrorCode::kNonFinite);
        EXPECT_NE(stats.error().detail.find(std::to_string(size / 2 + 3)), std::string::npos) << stats.error().detail;
        EXPECT_TRUE(frame.empty());
        for (std::size_t i = 0; i < size; ++i) ASSERT_NEAR(residual[i], before[i], 1e-6F) << i;
      }
    }
  }
}

TEST(GridCodec, ArgumentsOutOfRangeAreRefused) {
  std::vector<float> delta(10);
  std::vector<float> residual(10);
  ByteVector frame;
  for (const float step : {0.0F, -1.0F, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e-30F}) {
    EXPECT_FALSE(encode_grid_frame(delta, 1.0F, residual, step, ChunkId(0), frame));
  }
  EXPECT_FALSE(encode_grid_frame(delta, std::numeric_limits<float>::quiet_NaN(), residual, 1.0F, ChunkId(0), frame));
}

TEST(GridCodec, UndoGivesTheResidualBack) {
  const auto delta = random_values(Shape::kGaussian, 100000, 8);
  for (const float step : {0.3F, 5.0F}) {
    auto residual = random_values(Shape::kGaussian, delta.size(), 9, 0.1);
    const auto before = residual;
    ByteVector frame;
    ASSERT_TRUE(encode_grid_frame(delta, 0.7F, residual, step, ChunkId(0), frame));
    ASSERT_TRUE(undo_frame(*parse_frame(frame), delta, 0.7F, residual));
    for (std::size_t i = 0; i < delta.size(); ++i) ASSERT_NEAR(residual[i], before[i], 1e-5F);
  }
}

TEST(GridCodec, ShortResidualKeepsWhatWasNotSent) {
  for (const std::size_t size : {std::size_t{100}, std::size_t{100000}}) {
    const auto delta = random_values(Shape::kHeavy, size, 12);
    std::vector<std::int16_t> residual(size);
    FrameEncoder encoder;
    float previous = 1.0F;
    for (const float step : {0.5F, 0.7F, 8.0F, 0.3F}) {
      const auto before = residual;
      const auto frame = encoder.encode_grid_short(delta, 0.7F, residual, previous, step, ChunkId(0));
      ASSERT_TRUE(frame);
      std::vector<float> values(size);
      ASSERT_TRUE(decode_frame(*parse_frame(frame->bytes), values));
      for (std::size_t i = 0; i < size; ++i) {
        const double input =
            0.7F * static_cast<double>(delta[i]) + static_cast<double>(before[i]) * static_cast<double>(previous) / 32768.0;
        const double rest = static_cast<double>(residual[i]) * static_cast<double>(step) / 32768.0;
        ASSERT_NEAR(input - static_cast<double>(values[i]) - rest, 0.0, 2e-5 * static_cast<double>(step) + 1e-6 * std::fabs(input)) << i;
      }
      auto undone = residual;
      ASSERT_TRUE(undo_frame_short(*parse_frame(frame->bytes), delta, 0.7F, undone, previous));
      for (std::size_t i = 0; i < size; ++i) ASSERT_NEAR(undone[i], before[i], 1.0 + 2.0 * static_cast<double>(step / previous)) << i;
      previous = step;
    }
  }
}

// input - decoded - residual of whole chunks: dense with and without low bits, with escapes, sparse, short last rows.
TEST(GridIdentity, Fp32ResidualsLoseNothingOnAnyInstructionSet) {
  for (const GridKernels* kernels : available_kernels()) {
    FrameEncoder encoder(*kernels);
    for (const float step : {0.01F, 0.065F, 0.259F, 0.522F, 1.082F, 2.5F, 5.1517F}) {
      for (const std::size_t size : {std::size_t{5001}, std::size_t{70000}}) {
        const auto delta = random_values(Shape::kHeavy, size, 31);
        const auto before = random_values(Shape::kGaussian, size, 32, 0.2 * static_cast<double>(step));
        auto residual = before;
        const auto frame = encoder.encode_grid(delta, 0.7F, residual, step, ChunkId(0));
        ASSERT_TRUE(frame);
        std::vector<float> values(size);
        ASSERT_TRUE(decode_frame(*parse_frame(frame->bytes), values));
        std::size_t lost = 0;
        for (std::size_t i = 0; i < size; ++i) {
          const float input = add(multiply(0.7F, delta[i]), before[i]);
          lost += subtract(subtract(input, values[i]), residual[i]) == 0.0F ? 0U : 1U;
        }
        EXPECT_EQ(lost, 0U) << "step " << step << ", " << size << " values";
      }
    }
  }
}

TEST(GridIdentity, Int16ResidualsLoseLessThan2e5OfAStepOnAnyInstructionSet) {
  for (const GridKernels* kernels : available_kernels()) {
    FrameEncoder encoder(*kernels);
    for (const float step : {0.259F, 0.522F, 1.082F, 5.1517F}) {
      const auto delta = random_values(Shape::kGaussian, 70001, 33);
      std::vector<std::int16_t> residual(delta.size());
      const auto frame = encoder.encode_grid_short(delta, 1.0F, residual, step, step, ChunkId(0));
      ASSERT_TRUE(frame);
      std::vector<float> values(delta.size());
      ASSERT_TRUE(decode_frame(*parse_frame(frame->bytes), values));
      double worst = 0.0;
      for (std::size_t i = 0; i < delta.size(); ++i) {
        const double kept = static_cast<double>(residual[i]) * static_cast<double>(step) / 32768.0;
        worst = std::max(worst, std::fabs(static_cast<double>(delta[i]) - static_cast<double>(values[i]) - kept));
      }
      EXPECT_LE(worst, 2e-5 * static_cast<double>(step)) << "step " << step;
    }
  }
}

TEST(GridCodec, DecayShrinksTheOldResidual) {
  const auto delta = random_values(Shape::kGaussian, 50000, 13);
  const auto before = random_values(Shape::kGaussian, 50000, 14, 2.0);
  auto residual = before;
  ByteVector frame;
  ASSERT_TRUE(encode_grid_frame(delta, 1.0F, residual, 6.0F, ChunkId(0), frame, ElementType::kFloat32, 0.95F));
  std::vector<float> values(delta.size());
  ASSERT_TRUE(decode_frame(*parse_frame(frame), values));
  for (std::size_t i = 0; i < delta.size(); ++i) ASSERT_EQ(add(delta[i], multiply(0.95F, before[i])) - values[i], residual[i]);
  ASSERT_TRUE(undo_frame(*parse_frame(frame), delta, 1.0F, residual, 0.95F));
  for (std::size_t i = 0; i < delta.size(); ++i) ASSERT_NEAR(residual[i], before[i], 1e-5F);
  EXPECT_FALSE(encode_grid_frame(delta, 1.0F, residual, 6.0F, ChunkId(0), frame, ElementType::kFloat32, 0.0F));
}

TEST(FixedCodecs, Raw32IsExactAndBf16KeepsItsRounding) {
  const auto delta = random_values(Shape::kHeavy, 10001, 10);
  const auto before = random_values(Shape::kGaussian, delta.size(), 11, 0.1);
  auto residual = before;
  ByteVector frame;
  ASSERT_TRUE(encode_raw_frame(delta, 0.3F, residual, ChunkId(1), frame));
  std::vector<float> values(delta.size());
  ASSERT_TRUE(decode_frame(*parse_frame(frame), values));
  for (std::size_t i = 0; i < delta.size(); ++i) {
    ASSERT_EQ(values[i], add(multiply(0.3F, delta[i]), before[i]));
    ASSERT_EQ(residual[i], 0.0F);
  }
  residual = before;
  const auto stats = encode_bf16_frame(delta, 0.3F, residual, ChunkId(1), frame);
  ASSERT_TRUE(stats);
  EXPECT_GT(stats->squared_error, 0.0);
  ASSERT_TRUE(decode_frame(*parse_frame(frame), values));
  for (std::size_t i = 0; i < delta.size(); ++i) {
    const float input = add(multiply(0.3F, delta[i]), before[i]);
    ASSERT_EQ(input - values[i], residual[i]);
    ASSERT_LE(std::fabs(residual[i]), std::fabs(input) * 0x1p-8F);
  }
  std::vector<float> huge(3, std::numeric_limits<float>::max());
  std::vector<float> none(3);
  EXPECT_EQ(encode_bf16_frame(huge, 1.0F, none, ChunkId(1), frame).error().code, ErrorCode::kNonFinite);
}

}  // namespace
}  // namespace sluice::compression
