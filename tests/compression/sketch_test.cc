// Goal: a sketch predicts the bits of frames and sums well enough to choose a step from. Method: predictions against encoded frames
// over shapes and rates; serialisation round trips and broken bytes.
#include "compression/sketch.h"

#include <gtest/gtest.h>

#include <cmath>

#include "compression/chunk_sum.h"
#include "compression/grid_codec.h"
#include "tests/compression/codec_data.h"

namespace sluice::compression {
namespace {

Sketch sketch_of(const std::vector<float>& values, float weight = 1.0F) {
  Sketch sketch;
  sketch.add(values, weight, {}, 2);
  return sketch;
}

double payload_bits(const std::vector<float>& values, float step, ByteVector& frame) {
  std::vector<float> residual(values.size());
  EXPECT_TRUE(encode_grid_frame(values, 1.0F, residual, step, ChunkId(0), frame));
  return static_cast<double>(parse_frame(frame)->header.coded_bits) / static_cast<double>(values.size());
}

TEST(Sketch, PredictsBitsOfFrames) {
  for (const Shape shape : {Shape::kGaussian, Shape::kLaplace, Shape::kHeavy}) {
    const auto values = random_values(shape, kChunkValues, 11, 1e-3);
    const Sketch sketch = sketch_of(values);
    for (const float step : {1e-5F, 6e-5F, 2.6e-4F, 5.2e-4F, 1.1e-3F, 1.7e-3F, 3e-3F, 4e-3F, 5.2e-3F}) {
      ByteVector frame;
      const double measured = payload_bits(values, step, frame);
      const double predicted = predict_bits(sketch, step);
      EXPECT_NEAR(predicted, measured, (measured >= 1.0 ? 0.03 : 0.10) * measured) << "step " << step;
    }
  }
}

TEST(Sketch, PredictsBitsOfSums) {
  for (const float step : {0.1F, 0.5F, 1.0F, 3.0F}) {
    ChunkSum sum;
    std::vector<Sketch> sketches;
    std::vector<SiteSketch> sites;
    for (std::uint64_t site = 0; site < 3; ++site) {
      const auto values = random_values(Shape::kGaussian, kChunkValues, 20 + site, 0.6 + 0.3 * static_cast<double>(site));
      sketches.push_back(sketch_of(values));
      ByteVector frame;
      payload_bits(values, step, frame);
      ASSERT_TRUE(sum.add(*parse_frame(frame)));
    }
    for (const Sketch& sketch : sketches) sites.push_back({&sketch, 1.0});
    ByteVector frame;
    ASSERT_TRUE(sum.encode(frame));
    const double measured = static_cast<double>(parse_frame(frame)->header.coded_bits) / kChunkValues;
    EXPECT_NEAR(predict_sum_bits(sites, step), measured, 0.04 * measured) << "step " << step;
  }
}

TEST(Sketch, ChosenStepMeetsTheTarget) {
  const auto heavy = random_values(Shape::kHeavy, kChunkValues, 1, 2e-4);
  const auto light = random_values(Shape::kGaussian, kChunkValues, 2, 5e-5);
  const Sketch a = sketch_of(heavy);
  const Sketch b = sketch_of(light);
  for (const double target : {8.0, 4.0, 3.0, 2.0, 1.0, 0.3, 0.1}) {
    const float step = choose_step(std::vector<SiteSketch>{{&a, 1.0}, {&b, 1.0}}, target);
    ByteVector frame;
    const double mean = 0.5 * (payload_bits(heavy, step, frame) + payload_bits(light, step, frame));
    EXPECT_NEAR(mean, target, (target >= 1.0 ? 0.03 : 0.10) * target) << "step " << step;
  }
}

TEST(Sketch, WeightScalesLikeTheValues) {
  const auto values = random_values(Shape::kLaplace, 100000, 3);
  const Sketch plain = sketch_of(values);
  EXPECT_NEAR(predict_bits(plain, 0.25F, 0.5), predict_bits(sketch_of(values, 0.5F), 0.25F), 1e-9);
}

TEST(Sketch, MergeCountsBoth) {
  const auto values = random_values(Shape::kLaplace, 100000, 3);
  Sketch twice = sketch_of(values);
  twice.merge(sketch_of(values));
  EXPECT_EQ(twice.samples(), 2 * sketch_of(values).samples());
  EXPECT_NEAR(predict_bits(twice, 0.3F), predict_bits(sketch_of(values), 0.3F), 1e-12);
}

TEST(Sketch, BytesRoundTripAndBrokenBytesAreRefused) {
  const Sketch sketch = sketch_of(random_values(Shape::kHeavy, 100000, 3));
  const ByteVector bytes = sketch.to_bytes();
  EXPECT_LE(bytes.size(), kSketchBytesMax);
  const auto parsed = Sketch::parse(bytes);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(*parsed, sketch);
  for (std::size_t length = 0; length < bytes.size(); ++length) EXPECT_FALSE(Sketch::parse(ByteSpan(bytes).first(length)));
  ByteVector longer = bytes;
  longer.push_back(0);
  EXPECT_FALSE(Sketch::parse(longer));
  for (std::size_t at = 0; at < 8; at += at == 3 ? 2 : 1) {
    ByteVector broken = bytes;
    broken[at] = 0xff;
    EXPECT_FALSE(Sketch::parse(broken)) << at;
  }
  EXPECT_TRUE(Sketch::parse(Sketch().to_bytes()));
}

TEST(Sketch, EmptyAndHostileValuesAreHarmless) {
  Sketch sketch;
  EXPECT_EQ(predict_bits(sketch, 1.0F), 0.0);
  EXPECT_EQ(choose_step(std::vector<SiteSketch>{{&sketch, 1.0}}, 3.0), 1.0F);
  std::vector<float> values{0.0F, -0.0F, 1e-40F, 3e38F, -3e38F, std::nanf(""), INFINITY};
  sketch.add(values, 1.0F, {}, 1);
  EXPECT_EQ(sketch.samples(), 5U);
  EXPECT_TRUE(std::isfinite(predict_bits(sketch, kGridStepMin)));
  EXPECT_TRUE(std::isfinite(predict_bits(sketch, kGridStepMax)));
}

}  // namespace
}  // namespace sluice::compression
