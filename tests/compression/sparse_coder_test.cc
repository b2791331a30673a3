// Goal: sparse payloads give back what was coded, whatever the gaps and magnitudes, and broken ones are refused or decode inside the chunk.
// Method: lists of every density, with long gaps and large integers, through all sinks; then changed bytes and shortened sections.
#include "compression/internal/sparse_coder.h"

#include <gtest/gtest.h>

#include <vector>

#include "compression/internal/grid_value.h"
#include "tests/compression/codec_data.h"

namespace sluice::compression {
namespace {

// One value in `one_in` is not 0, one of those in `large_in` is beyond +-1.
std::vector<std::int32_t> make_integers(std::size_t count, std::uint64_t one_in, std::uint64_t large_in, Random& random) {
  std::vector<std::int32_t> integers(count);
  for (auto& integer : integers) {
    if (random.next() % one_in != 0) continue;
    const std::int32_t magnitude = random.next() % large_in != 0 ? 1 : static_cast<std::int32_t>(2 + random.next() % 300);
    integer = (random.next() & 1U) != 0 ? magnitude : -magnitude;
  }
  return integers;
}

FrameView view_of(const CodedPayload& coded, ByteSpan payload, std::size_t count) {
  FrameView view;
  view.header.codec = Codec::kGridSparse;
  view.header.value_count = static_cast<std::uint32_t>(count);
  view.header.contributions = 16;
  view.header.nonzeros = coded.nonzeros;
  view.header.model_a = coded.model_a;
  view.header.model_b = coded.model_b;
  view.header.model_bytes = coded.model_bytes;
  view.header.magnitude_bits = coded.magnitude_bits;
  view.payload = payload;
  return view;
}

CodedPayload encode(const std::vector<std::int32_t>& integers, EncodeWorkspace& workspace) {
  GridSource source;
  source.integers32 = integers.data();
  return encode_sparse(scalar_kernels(), source, integers.size(), workspace);
}

void expect_decodes(const FrameView& view, const std::vector<std::int32_t>& integers) {
  const std::size_t count = integers.size();
  std::vector<float> set(count, 7.0F);
  std::vector<float> sum(count, 0.5F);
  std::vector<std::int16_t> sum16(count, 3);
  std::vector<std::int32_t> set32(count, 9);
  std::vector<std::int32_t> sum32(count, 5);
  for (const SinkKind kind :
       {SinkKind::kFloatSet, SinkKind::kFloatAdd, SinkKind::kInteger16Add, SinkKind::kInteger32Set, SinkKind::kInteger32Add}) {
    GridSink sink;
    sink.kind = kind;
    sink.scaled_step = 0.3F;
    sink.values = kind == SinkKind::kFloatSet ? set.data() : sum.data();
    sink.integers16 = sum16.data();
    sink.integers32 = kind == SinkKind::kInteger32Set ? set32.data() : sum32.data();
    ASSERT_TRUE(decode_sparse(view, sink)) << "sink " << static_cast<int>(kind);
  }
  ASSERT_EQ(set32, integers);
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t q = integers[i];
    ASSERT_EQ(set[i], q == 0 ? 0.0F : grid_value(q, 0.3F)) << i;
    ASSERT_EQ(sum[i], q == 0 ? 0.5F : add(0.5F, grid_value(q, 0.3F))) << i;
    ASSERT_EQ(sum16[i], 3 + q) << i;
    ASSERT_EQ(sum32[i], 5 + q) << i;
  }
}

TEST(SparseCoder, EveryDensityAndMagnitudeRoundTrips) {
  Random random(1);
  EncodeWorkspace workspace;
  for (const std::size_t count : {1U, 63U, 700U, 5000U, 262144U}) {
    for (const std::uint64_t one_in : {1U, 2U, 9U, 40U, 100U, 1000U, 20000U, 200000U}) {
      for (const std::uint64_t large_in : {1U, 3U, 500U, 1000000000U}) {
        const auto integers = make_integers(count, one_in, large_in, random);
        const CodedPayload coded = encode(integers, workspace);
        expect_decodes(view_of(coded, coded.payload, count), integers);
        if (HasFatalFailure()) FAIL() << count << " values, one in " << one_in << ", large one in " << large_in;
      }
    }
  }
}

TEST(SparseCoder, GapsFarBeyondTheMeanRoundTrip) {
  EncodeWorkspace workspace;
  for (const std::size_t crowd : {5U, 37U, 300U, 4000U}) {
    std::vector<std::int32_t> integers(262144);
    for (std::size_t i = 0; i < crowd; ++i) integers[i] = i % 2 == 0 ? 1 : -1;
    for (std::size_t i = 0; i < crowd; ++i) integers[131072 + 3 * i] = 1;
    integers.back() = -1;
    const CodedPayload coded = encode(integers, workspace);
    expect_decodes(view_of(coded, coded.payload, integers.size()), integers);
  }
}

TEST(SparseCoder, BrokenSectionsAreRefusedOrStayInTheChunk) {
  Random random(2);
  EncodeWorkspace workspace;
  for (const std::uint64_t one_in : {3U, 80U, 900U}) {
    const auto integers = make_integers(20000, one_in, 7, random);
    const CodedPayload coded = encode(integers, workspace);
    for (int round = 0; round < 2000; ++round) {
      ByteVector payload(coded.payload.begin(), coded.payload.end());
      FrameView view = view_of(coded, payload, integers.size());
      payload[random.next() % payload.size()] = static_cast<std::uint8_t>(random.next());
      if (round % 4 == 1) view.payload = view.payload.first(random.next() % payload.size());
      if (round % 4 == 2) view.header.value_count -= static_cast<std::uint32_t>(random.next() % 20000);
      if (round % 4 == 3) view.header.nonzeros += static_cast<std::uint32_t>(random.next() % 9);
      if (round % 8 == 4) view.header.model_a = static_cast<std::uint8_t>(random.next() % 18);
      std::vector<std::int32_t> out(view.header.value_count);  // of exactly this size: a sanitizer sees what goes beyond
      GridSink sink;
      sink.integers32 = out.data();
      decode_sparse(view, sink);
      const std::int32_t limit = integer_limit_of(view.header);
      for (const std::int32_t integer : out) ASSERT_TRUE(integer <= limit && integer >= -limit) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace sluice::compression
