// Goal: every instruction set gives the same bytes, residuals and values. Method: all kernel tables that run here against the portable
// ones on random and hostile chunks, every source and sink, sizes around the row length; changed bytes must fail in all or none.
#include "compression/internal/grid_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "compression/internal/chunk_sample.h"
#include "compression/internal/dense_coder.h"
#include "compression/internal/grid_lane.h"
#include "compression/internal/grid_value.h"
#include "compression/internal/sparse_coder.h"
#include "tests/compression/codec_data.h"

namespace sluice::compression {
namespace {

struct Chunk {
  std::vector<float> delta;
  std::vector<float> residual;
  std::vector<std::int16_t> short_residual;
  std::vector<std::int32_t> integers32;
  std::vector<std::int16_t> integers16;
};

Chunk make_chunk(Shape shape, std::size_t count, std::uint64_t seed, double scale) {
  Chunk chunk;
  chunk.delta = random_values(shape, count, seed, scale);
  chunk.residual = random_values(Shape::kGaussian, count, seed + 1, 0.1);
  Random random(seed + 2);
  for (const float value : chunk.delta) {
    chunk.short_residual.push_back(static_cast<std::int16_t>(random.next() % 32768U));
    chunk.integers32.push_back(static_cast<std::int32_t>(std::lrint(std::clamp(value * 3.0F, -1e8F, 1e8F))));
    chunk.integers16.push_back(static_cast<std::int16_t>(std::clamp(chunk.integers32.back(), -32768, 32767)));
  }
  return chunk;
}

GridSource source_of(SourceKind kind, Chunk& chunk, float step) {
  GridSource source;
  source.kind = kind;
  source.delta = chunk.delta.data();
  source.weight = kind == SourceKind::kShortResidual ? 0.7F / step : 0.7F;
  source.residual = chunk.residual.data();
  source.short_residual = chunk.short_residual.data();
  source.short_scale = 1.25F / 32768.0F;
  source.step = step;
  source.inverse_step = 1.0F / step;
  source.integers16 = chunk.integers16.data();
  source.integers32 = chunk.integers32.data();
  return source;
}

struct Coded {
  ByteVector payload;
  CodedPayload fields;
  std::vector<float> residual;
  std::vector<std::int16_t> short_residual;
};

Coded encode_with(const GridKernels& kernels, SourceKind kind, Chunk chunk, float step, bool sparse) {
  const std::size_t count = chunk.delta.size();
  const GridSource source = source_of(kind, chunk, step);
  EncodeWorkspace workspace;
  std::vector<std::int32_t> sample(count / kRowValues * kRowValues);
  kernels.peek(source, 0, sample.size(), sample.data());
  if (sample.empty()) sample.push_back(0);
  Coded coded;
  coded.fields = sparse ? encode_sparse(kernels, source, count, workspace)
                        : encode_dense(kernels, plan_dense(kernels, sample, count), source, count, workspace);
  coded.payload.assign(coded.fields.payload.begin(), coded.fields.payload.end());
  coded.residual = chunk.residual;
  coded.short_residual = chunk.short_residual;
  return coded;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), 4 * a.size()) == 0);
}

FrameView view_of(const Coded& coded, std::size_t count, std::uint8_t contributions) {
  FrameView view;
  view.header.codec = Codec::kGridDense;
  view.header.value_count = static_cast<std::uint32_t>(count);
  view.header.contributions = contributions;
  view.header.model_a = coded.fields.model_a;
  view.header.model_b = coded.fields.model_b;
  view.header.model_c = coded.fields.model_c;
  view.header.model_bytes = coded.fields.model_bytes;
  view.header.magnitude_bits = coded.fields.magnitude_bits;
  view.payload = coded.payload;
  return view;
}

struct Decoded {
  bool ok = false;
  std::vector<float> values;
  std::vector<std::int16_t> integers16;
  std::vector<std::int32_t> integers32;
};

Decoded decode_with(const GridKernels& kernels, SinkKind kind, const FrameView& view) {
  const std::size_t count = view.header.value_count;
  Decoded decoded{false, std::vector<float>(count, 0.5F), std::vector<std::int16_t>(count, 3), std::vector<std::int32_t>(count, 5)};
  GridSink sink;
  sink.kind = kind;
  sink.scaled_step = 0.3F;
  sink.values = decoded.values.data();
  sink.integers16 = decoded.integers16.data();
  sink.integers32 = decoded.integers32.data();
  decoded.ok = decode_dense(kernels, view, sink);
  return decoded;
}

constexpr SourceKind kSources[] = {SourceKind::kFloatResidual, SourceKind::kShortResidual, SourceKind::kIntegers16,
                                   SourceKind::kIntegers32};
constexpr SinkKind kSinks[] = {SinkKind::kFloatSet, SinkKind::kFloatAdd, SinkKind::kInteger16Add, SinkKind::kInteger32Set,
                               SinkKind::kInteger32Add};

void expect_same(const Chunk& chunk, float step) {
  const GridKernels& reference = scalar_kernels();
  const std::size_t count = chunk.delta.size();
  for (const GridKernels* kernels : available_kernels()) {
    for (const SourceKind source : kSources) {
      for (const bool sparse : {false, true}) {
        const Coded expected = encode_with(reference, source, chunk, step, sparse);
        const Coded actual = encode_with(*kernels, source, chunk, step, sparse);
        ASSERT_EQ(actual.payload, expected.payload)
            << kernels->name << " source " << static_cast<int>(source) << " step " << step << " sparse " << sparse;
        ASSERT_EQ(actual.fields.failed_value, expected.fields.failed_value);
        ASSERT_EQ(actual.fields.nonzeros, expected.fields.nonzeros);
        ASSERT_EQ(actual.fields.squares, expected.fields.squares);
        ASSERT_TRUE(same_bits(actual.residual, expected.residual)) << kernels->name << " step " << step;
        ASSERT_EQ(actual.short_residual, expected.short_residual) << kernels->name;
        if (sparse || expected.fields.is_too_large || expected.fields.failed_value != 0) continue;
        const FrameView view = view_of(expected, count, 16);
        for (const SinkKind sink : kSinks) {
          const Decoded by_reference = decode_with(reference, sink, view);
          const Decoded by_kernels = decode_with(*kernels, sink, view);
          ASSERT_TRUE(by_reference.ok);
          ASSERT_TRUE(by_kernels.ok);
          ASSERT_TRUE(same_bits(by_kernels.values, by_reference.values));
          ASSERT_EQ(by_kernels.integers16, by_reference.integers16);
          ASSERT_EQ(by_kernels.integers32, by_reference.integers32);
        }
      }
    }
  }
}

TEST(GridKernels, RandomChunksGiveTheSameBytesEverywhere) {
  for (const Shape shape : {Shape::kGaussian, Shape::kLaplace, Shape::kHeavy}) {
    for (const float step : {1e-5F, 0.004F, 0.03F, 0.25F, 1.0F, 4.0F}) expect_same(make_chunk(shape, 20011, 1, 1.0), step);
  }
}

TEST(GridKernels, EverySizeGivesTheSameBytes) {
  for (std::size_t count = 1; count < 200; count += 7) expect_same(make_chunk(Shape::kHeavy, count, count, 2.0), 0.5F);
  for (const std::size_t count : {64U, 128U, 192U, 8192U}) expect_same(make_chunk(Shape::kHeavy, count, count, 2.0), 0.5F);
}

TEST(GridKernels, HostileChunksGiveTheSameBytes) {
  Chunk chunk = make_chunk(Shape::kHeavy, 6400, 3, 1.0);
  Random random(4);
  for (std::size_t i = 0; i < chunk.delta.size(); i += 3) {
    std::uint32_t bits = static_cast<std::uint32_t>(random.next());
    if ((bits & 0x7f800000U) == 0x7f800000U) bits &= 0xbfffffffU;
    chunk.delta[i] = bits_float(bits);
  }
  for (float& delta : chunk.delta) delta = std::clamp(delta, -1e37F, 1e37F);
  for (const float step : {1e-6F, 0.5F, 1e6F}) expect_same(chunk, step);
  for (float& delta : chunk.delta) delta = 0.0F;
  expect_same(chunk, 0.5F);
  chunk.delta[777] = 3e30F;
  chunk.delta[778] = -3e30F;
  expect_same(chunk, 0.5F);
  for (std::size_t i = 0; i < chunk.delta.size(); ++i) chunk.delta[i] = (static_cast<float>(i % 7) - 3.0F) * 0.5F / 0.7F;  // ties
  expect_same(chunk, 1.0F);
}

TEST(GridKernels, NonFiniteRowsAreFoundAlike) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::signaling_NaN()}) {
    for (const std::size_t at : {0U, 70U, 3000U, 6399U, 6420U}) {
      Chunk chunk = make_chunk(Shape::kGaussian, 6421, 5, 1.0);
      chunk.delta[at] = bad;
      for (const float step : {0.001F, 0.5F, 5.0F}) expect_same(chunk, step);
    }
  }
}

TEST(GridKernels, ChangedBytesFailInAllOrNone) {
  Random random(6);
  for (const float step : {0.004F, 0.5F}) {
    const Coded good = encode_with(scalar_kernels(), SourceKind::kFloatResidual, make_chunk(Shape::kHeavy, 5003, 8, 1.0), step, false);
    for (int round = 0; round < 1500; ++round) {
      Coded broken = good;
      broken.payload[random.next() % broken.payload.size()] = static_cast<std::uint8_t>(random.next());
      if (round % 5 == 0) broken.payload.resize(random.next() % broken.payload.size());
      const FrameView view = view_of(broken, 5003, 1);
      const Decoded expected = decode_with(scalar_kernels(), SinkKind::kInteger32Set, view);
      for (const GridKernels* kernels : available_kernels()) {
        const Decoded actual = decode_with(*kernels, SinkKind::kInteger32Set, view);
        ASSERT_EQ(actual.ok, expected.ok) << kernels->name << " round " << round;
        if (!expected.ok) continue;
        ASSERT_EQ(actual.integers32, expected.integers32);
      }
    }
  }
}

// Chunks of integers most of which are escapes: more than a kernel reads ahead, with some beyond a byte, and every code length.
Coded encode_escapes(const std::vector<std::int32_t>& integers) {
  std::vector<std::int32_t> sample(4096);
  for (std::size_t i = 0; i < sample.size(); ++i) sample[i] = static_cast<std::int32_t>(i % 3) - 1;
  GridSource source;
  source.integers32 = integers.data();
  EncodeWorkspace workspace;
  Coded coded;
  coded.fields = encode_dense(scalar_kernels(), plan_dense(scalar_kernels(), sample, integers.size()), source, integers.size(), workspace);
  coded.payload.assign(coded.fields.payload.begin(), coded.fields.payload.end());
  return coded;
}

// What decode_with has put to every integer.
bool are_delivered(SinkKind sink, const std::vector<std::int32_t>& integers, const Decoded& decoded) {
  for (std::size_t i = 0; i < integers.size(); ++i) {
    const float value = grid_value(integers[i], 0.3F);
    if (sink == SinkKind::kFloatSet && decoded.values[i] != value) return false;
    if (sink == SinkKind::kFloatAdd && decoded.values[i] != add(0.5F, value)) return false;
    if (sink == SinkKind::kInteger16Add && decoded.integers16[i] != 3 + integers[i]) return false;
    if (sink == SinkKind::kInteger32Set && decoded.integers32[i] != integers[i]) return false;
    if (sink == SinkKind::kInteger32Add && decoded.integers32[i] != 5 + integers[i]) return false;
  }
  return true;
}

TEST(GridKernels, EscapesByTheThousandDecodeAlike) {
  Random random(12);
  for (const std::int32_t largest : {3, 40, 127, 128, 1500}) {
    for (const std::uint64_t one_in : {1U, 2U, 300U}) {
      std::vector<std::int32_t> integers(30011);
      for (auto& integer : integers) {
        if (random.next() % one_in != 0) continue;
        const auto magnitude = static_cast<std::int32_t>(random.next() % static_cast<std::uint64_t>(largest)) + 1;
        integer = (random.next() & 1U) != 0 ? magnitude : -magnitude;
      }
      const Coded good = encode_escapes(integers);
      ASSERT_FALSE(good.fields.is_too_large);
      for (const GridKernels* kernels : available_kernels()) {
        for (const SinkKind sink : kSinks) {
          const Decoded decoded = decode_with(*kernels, sink, view_of(good, integers.size(), 16));
          ASSERT_TRUE(decoded.ok) << kernels->name << " up to " << largest;
          ASSERT_TRUE(are_delivered(sink, integers, decoded))
              << kernels->name << " up to " << largest << " sink " << static_cast<int>(sink);
        }
      }
      for (int round = 0; round < 40; ++round) {
        Coded broken = good;
        broken.payload[random.next() % broken.payload.size()] = static_cast<std::uint8_t>(random.next());
        const FrameView view = view_of(broken, integers.size(), 16);
        const Decoded expected = decode_with(scalar_kernels(), SinkKind::kInteger32Set, view);
        for (const GridKernels* kernels : available_kernels()) {
          ASSERT_EQ(decode_with(*kernels, SinkKind::kInteger32Set, view).ok, expected.ok) << kernels->name << " round " << round;
        }
      }
    }
  }
}

// The coder of one chunk from the single-lane functions that the GPU runs: bytes in coding order, final states at the end.
ByteVector encode_by_lanes(const GridModel& model, const std::vector<std::int32_t>& integers, std::vector<std::uint32_t>& lanes) {
  const auto half_width = static_cast<std::uint32_t>(model.half_width());
  lanes.assign(kRowValues, 256);
  ByteVector backward;
  for (std::size_t row = integers.size() / kRowValues; row-- > 0;) {
    for (std::size_t j = kRowValues; j-- > 0;) {
      const std::uint32_t symbol = lane_symbol(integers[row * kRowValues + j], half_width);
      const std::uint32_t frequency = model.frequency[symbol];
      if (lane_sheds(lanes[j], frequency)) {
        backward.push_back(static_cast<std::uint8_t>(lanes[j]));
        lanes[j] >>= 8;
      }
      lanes[j] = lane_encode(lanes[j], frequency, model.start[symbol], model.slot_of.data());
    }
  }
  std::reverse(backward.begin(), backward.end());
  return backward;
}

TEST(GridLane, TheFunctionsOfTheGpuGiveTheBytesOfTheKernels) {
  Chunk chunk = make_chunk(Shape::kLaplace, 64 * 100, 11, 1.0);
  const DensePlan plan = plan_dense(scalar_kernels(), chunk.integers32, chunk.integers32.size());
  ASSERT_EQ(plan.low_bits, 0U);
  std::vector<std::uint32_t> lanes;
  const ByteVector bytes = encode_by_lanes(plan.model, chunk.integers32, lanes);
  EncodeWorkspace workspace;
  const GridSource source = source_of(SourceKind::kIntegers32, chunk, 1.0F);
  const CodedPayload coded = encode_dense(scalar_kernels(), plan, source, chunk.integers32.size(), workspace);
  ASSERT_GE(coded.payload.size(), bytes.size() + 128);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), coded.payload.end() - static_cast<std::ptrdiff_t>(bytes.size())));
  const ByteSpan states = coded.payload.subspan(coded.payload.size() - bytes.size() - 128, 128);
  for (std::size_t j = 0; j < kRowValues; ++j) ASSERT_EQ(lanes[j], static_cast<std::uint32_t>(states[j]) << 8 | states[64 + j]);
  std::size_t at = 0;
  for (std::size_t i = 0; i < chunk.integers32.size(); ++i) {
    std::uint32_t& x = lanes[i % kRowValues];
    const std::uint32_t slot = x & 255U;
    const std::uint32_t symbol = plan.model.symbol_of[slot];
    ASSERT_EQ(symbol, lane_symbol(chunk.integers32[i], static_cast<std::uint32_t>(plan.model.half_width())));
    x = lane_decode(x, plan.model.frequency[symbol], plan.model.rank_of[slot]);
    if (x < 256) x = x << 8 | bytes.at(at++);
  }
  EXPECT_EQ(at, bytes.size());
  for (const std::uint32_t x : lanes) EXPECT_EQ(x, 256U);
}

}  // namespace
}  // namespace sluice::compression
