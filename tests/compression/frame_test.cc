// Goal: no byte string does more than return a typed error. Method: every field of good frames broken one at a time with a fresh hash
// (at least 40 broken frames, each with the code it must give), every truncation, every single bit flipped.
#include "compression/frame.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/hash.h"
#include "compression/frame_decoder.h"
#include "compression/grid_codec.h"
#include "tests/compression/codec_data.h"

namespace sluice::compression {
namespace {

ByteVector good_frame(float step, std::size_t count = 6000) {
  const auto delta = random_values(Shape::kLaplace, count, 1);
  std::vector<float> residual(count);
  ByteVector frame;
  EXPECT_TRUE(encode_grid_frame(delta, 1.0F, residual, step, ChunkId(2), frame));
  return frame;
}

ByteVector good_fixed(bool raw) {
  const auto delta = random_values(Shape::kLaplace, 100, 1);
  std::vector<float> residual(100);
  ByteVector frame;
  if (raw) {
    EXPECT_TRUE(encode_raw_frame(delta, 1.0F, residual, ChunkId(2), frame));
  } else {
    EXPECT_TRUE(encode_bf16_frame(delta, 1.0F, residual, ChunkId(2), frame));
  }
  return frame;
}

void fix_hash(ByteVector& frame) { store_le(frame.data() + frame.size() - 8, xxh3_64(ByteSpan(frame).first(frame.size() - 8))); }

// What parse, and decode when parse succeeds, say about the frame.
Status read_frame(const ByteVector& frame) {
  SLUICE_TRY(const FrameView view, parse_frame(frame));
  std::vector<float> values(view.header.value_count);
  return decode_frame(view, values);
}

template <typename Number>
ByteVector changed(ByteVector frame, std::size_t at, Number number) {
  store_le(frame.data() + at, number);
  fix_hash(frame);
  return frame;
}

struct BrokenFrame {
  ByteVector frame;
  ErrorCode code;
};

std::uint8_t u8(unsigned value) { return static_cast<std::uint8_t>(value); }
std::uint32_t u32(std::uint64_t value) { return static_cast<std::uint32_t>(value); }

constexpr ErrorCode bad = ErrorCode::kFrameBadHeader;
constexpr ErrorCode payload = ErrorCode::kFrameBadPayload;
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

std::vector<BrokenFrame> broken_shapes(const ByteVector& dense) {
  const FrameHeader head = parse_frame(dense)->header;
  ByteVector longer = dense;
  longer.push_back(0);
  ByteVector wrong_hash = dense;
  wrong_hash.back() ^= 1;
  return {
      {{}, ErrorCode::kFrameTruncated},
      {ByteVector(47, 0), ErrorCode::kFrameTruncated},
      {ByteVector(100, 0), ErrorCode::kFrameBadMagic},
      {changed(dense, 0, u8('X')), ErrorCode::kFrameBadMagic},
      {changed(dense, 4, u8(0)), ErrorCode::kFrameBadVersion},
      {changed(dense, 4, u8(2)), ErrorCode::kFrameBadVersion},
      {longer, bad},
      {wrong_hash, ErrorCode::kFrameHashMismatch},
      {changed(dense, 5, u8(5)), bad},
      {changed(dense, 5, u8(255)), bad},
      {changed(dense, 5, u8(0)), bad},  // RAW32 with a step
      {changed(dense, 5, u8(4)), bad},  // plain with a model
      {changed(dense, 6, u8(3)), bad},
      {changed(dense, 7, u8(0)), bad},
      {changed(dense, 7, u8(17)), bad},
      {changed(dense, 12, u32(kChunkValues + 1)), bad},
      {changed(dense, 12, u32(0xffffffff)), bad},
      {changed(dense, 12, u32(0)), bad},
      {changed(dense, 12, u32(head.nonzeros - 1)), bad},  // fewer values than nonzeros
      {changed(dense, 12, u32(head.value_count + 64)), payload},
      {changed(dense, 16, 0.0F), bad},
      {changed(dense, 16, -1.0F), bad},
      {changed(dense, 16, nan), bad},
      {changed(dense, 16, std::numeric_limits<float>::infinity()), bad},
      {changed(dense, 16, 1e-30F), bad},
      {changed(dense, 20, u32(0)), bad},
      {changed(dense, 20, u32(head.payload_bytes - 1)), bad},
      {changed(dense, 20, u32(head.payload_bytes + 1)), ErrorCode::kFrameTruncated},
      {changed(dense, 20, u32(0xffffffff)), bad},
      {changed(dense, 24, u32(0)), bad},
  };
}

std::vector<BrokenFrame> broken_models(const ByteVector& dense) {
  const FrameHeader head = parse_frame(dense)->header;
  constexpr double nan64 = std::numeric_limits<double>::quiet_NaN();
  return {
      {changed(dense, 24, u32(head.payload_bytes * 8 + 1)), bad},
      {changed(dense, 28, u32(head.value_count + 1)), bad},
      {changed(dense, 32, -1.0), bad},
      {changed(dense, 32, nan64), bad},
      {changed(dense, 32, std::numeric_limits<double>::infinity()), bad},
      {changed(dense, 40, u8(0)), bad},
      {changed(dense, 40, u8(16)), bad},
      {changed(dense, 40, u8(head.model_a - 1)), payload},
      {changed(dense, 41, u8(17)), bad},
      {changed(dense, 41, u8(2)), bad},  // wider than the stated bound on magnitudes
      {changed(dense, 42, u8(25)), bad},
      {changed(dense, 42, u8(head.model_c + 1)), payload},
      {changed(dense, 43, u8(1)), bad},
      {changed(dense, 44, u32(0xffffffff)), bad},
      {changed(dense, 44, u32(head.model_bytes + 1)), payload},
      {changed(dense, 48, u8(0)), payload},    // frequency 0
      {changed(dense, 48, u8(255)), payload},  // frequencies do not add up
  };
}

std::vector<BrokenFrame> broken_other_codecs() {
  const ByteVector sparse = good_frame(9.0F);
  const ByteVector raw = good_fixed(true);
  const ByteVector half = good_fixed(false);
  EXPECT_EQ(parse_frame(sparse)->header.codec, Codec::kGridSparse);
  return {
      {changed(sparse, 28, u32(parse_frame(sparse)->header.nonzeros + 1)), payload},
      {changed(sparse, 28, u32(parse_frame(sparse)->header.nonzeros - 1)), payload},
      {changed(sparse, 40, u8(18)), bad},
      {changed(sparse, 41, u8(18)), bad},
      {changed(sparse, 42, u8(1)), bad},
      {changed(raw, 48, nan), payload},
      {changed(raw, 12, u32(99)), bad},
      {changed(raw, 40, u8(1)), bad},
      {changed(half, 48, static_cast<std::uint16_t>(0x7f80)), payload},
      {changed(half, 12, u32(101)), bad},
      {changed(half, 16, 1.0F), bad},
      {changed(raw, 43, u8(1)), bad},
      {changed(sparse, 43, u8(0)), payload},  // integers beyond the stated bound
      {changed(sparse, 43, u8(30)), bad},
  };
}

TEST(Frame, BrokenFramesAreRefusedWithTheirCode) {
  const ByteVector dense = good_frame(0.5F);
  ASSERT_EQ(parse_frame(dense)->header.codec, Codec::kGridDense);
  std::vector<BrokenFrame> cases = broken_shapes(dense);
  for (auto& more : {broken_models(dense), broken_other_codecs()}) cases.insert(cases.end(), more.begin(), more.end());
  ASSERT_GE(cases.size(), 40U);
  for (std::size_t index = 0; index < cases.size(); ++index) {
    const Status status = read_frame(cases[index].frame);
    ASSERT_FALSE(status) << "case " << index;
    EXPECT_EQ(status.error().code, cases[index].code) << "case " << index << ": " << status.error().to_string();
  }
}

TEST(Frame, EveryTruncationIsRefused) {
  const ByteVector frame = good_frame(0.5F, 300);
  for (std::size_t length = 0; length < frame.size(); ++length) EXPECT_FALSE(parse_frame(ByteSpan(frame).first(length)));
}

TEST(Frame, EverySingleBitFlipIsRefused) {
  for (const float step : {0.5F, 9.0F}) {
    const ByteVector frame = good_frame(step, 300);
    for (std::size_t bit = 0; bit < 8 * frame.size(); ++bit) {
      ByteVector flipped = frame;
      flipped[bit / 8] = static_cast<std::uint8_t>(flipped[bit / 8] ^ (1U << (bit % 8)));
      EXPECT_FALSE(parse_frame(flipped)) << bit;
    }
  }
}

TEST(Frame, RandomPayloadsWithAGoodHashDecodeOrFailCleanly) {
  Random random(3);
  std::size_t refused = 0;
  for (const float step : {0.5F, 0.02F, 9.0F}) {
    const ByteVector frame = good_frame(step);
    for (int round = 0; round < 2000; ++round) {
      ByteVector broken = frame;
      for (std::uint64_t flips = 1 + random.next() % 4; flips > 0; --flips) {
        const std::size_t at = 40 + random.next() % (broken.size() - 48);
        broken[at] = static_cast<std::uint8_t>(random.next());
      }
      broken[43] = frame[43];  // the bound on magnitudes, which the parser itself holds against the model
      fix_hash(broken);
      refused += read_frame(broken) ? 0U : 1U;
    }
  }
  EXPECT_GT(refused, 4000U);  // the coder's own end checks catch most changes even where the hash is right
}

TEST(Frame, LengthIsKnownFromTheHeader) {
  const ByteVector frame = good_frame(0.5F);
  EXPECT_EQ(*frame_length(ByteSpan(frame).first(kFrameHeaderBytes)), frame.size());
  EXPECT_FALSE(frame_length(ByteSpan(frame).first(kFrameHeaderBytes - 1)));
}

}  // namespace
}  // namespace sluice::compression
