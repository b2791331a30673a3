// Goal: the manifest cuts any set of tensors into the same chunks and shards everywhere. Method: small hand-made manifests, sweeps over
// ranks and sizes, and the error cases.

#include "sync/manifest.h"

#include <gtest/gtest.h>

namespace sluice::sync {
namespace {

using compression::kChunkValues;

TensorSpec tensor(std::string name, std::vector<std::uint64_t> shape) {
  return {std::move(name), compression::ElementType::kFloat32, std::move(shape)};
}

Manifest make(std::vector<TensorSpec> tensors) {
  auto manifest = Manifest::create(std::move(tensors));
  EXPECT_TRUE(manifest) << manifest.error().to_string();
  return std::move(*manifest);
}

TEST(Manifest, CountsValuesAndChunks) {
  EXPECT_EQ(make({tensor("a", {})}).value_count(), 1U);
  EXPECT_EQ(make({tensor("a", {kChunkValues})}).chunk_count(), 1U);
  EXPECT_EQ(make({tensor("a", {kChunkValues}), tensor("b", {1})}).chunk_count(), 2U);
  EXPECT_EQ(make({tensor("a", {3, 5}), tensor("b", {0}), tensor("c", {7})}).value_count(), 22U);
}

TEST(Manifest, ChunksStraddleTensors) {
  const Manifest manifest = make({tensor("a", {kChunkValues - 2}), tensor("b", {5}), tensor("c", {2})});
  const auto first = manifest.slices(manifest.chunk_values(ChunkId(0)));
  EXPECT_EQ(first, (std::vector<TensorSlice>{{0, 0, kChunkValues - 2}, {1, 0, 2}}));
  const auto second = manifest.slices(manifest.chunk_values(ChunkId(1)));
  EXPECT_EQ(second, (std::vector<TensorSlice>{{1, 2, 3}, {2, 0, 2}}));
}

TEST(Manifest, ShardsCoverAllChunksWithoutOverlapForAnyRankCount) {
  for (const std::uint64_t chunks : {1U, 2U, 4U, 5U, 17U}) {
    const Manifest manifest = make({tensor("a", {chunks * kChunkValues - 3})});
    for (std::uint32_t ranks = 1; ranks <= 16; ++ranks) {
      std::uint32_t next = 0;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const ChunkRange shard = manifest.shard(RankId(rank), ranks);
        EXPECT_EQ(shard.begin, next);
        EXPECT_LE(shard.begin, shard.end);
        next = shard.end;
      }
      EXPECT_EQ(next, chunks);
    }
  }
}

TEST(Manifest, LocatesAValueByTensorNameAndIndex) {
  const Manifest manifest = make({tensor("a", {2}), tensor("empty", {0}), tensor("b", {3})});
  EXPECT_EQ(manifest.locate(0), "a[0]");
  EXPECT_EQ(manifest.locate(2), "b[0]");
  EXPECT_EQ(manifest.locate(4), "b[2]");
  EXPECT_EQ(manifest.locate(5), "value 5 of 5");
}

TEST(Manifest, HashDependsOnNamesShapesAndOrder) {
  const std::uint64_t base = make({tensor("a", {6}), tensor("b", {2})}).hash();
  EXPECT_EQ(base, make({tensor("a", {6}), tensor("b", {2})}).hash());
  EXPECT_NE(base, make({tensor("b", {2}), tensor("a", {6})}).hash());
  EXPECT_NE(base, make({tensor("a", {2, 3}), tensor("b", {2})}).hash());
  EXPECT_NE(base, make({tensor("a", {6}), tensor("c", {2})}).hash());
}

TEST(Manifest, HashIsTheSameOnEveryMachine) {
  EXPECT_EQ(make({tensor("layer.weight", {4, 8}), tensor("layer.bias", {8})}).hash(), 7029140252403702147U);
}

TEST(Manifest, DifferenceNamesTheFirstTensorThatDiffers) {
  const Manifest here = make({tensor("a", {1}), tensor("b", {2})});
  EXPECT_EQ(here.difference(here), "");
  EXPECT_EQ(here.difference(make({tensor("a", {1}), tensor("c", {2, 2})})), "tensor 1: b[2] here, c[2,2] there");
  EXPECT_EQ(here.difference(make({tensor("a", {1})})), "2 tensors here, 1 there");
}

TEST(Manifest, BadTensorsAreRefused) {
  EXPECT_EQ(Manifest::create({}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Manifest::create({tensor("", {1})}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Manifest::create({tensor("a", {1}), tensor("a", {2})}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Manifest::create({tensor("a", {0})}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Manifest::create({tensor("a", std::vector<std::uint64_t>(17, 1))}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Manifest::create({tensor(std::string(513, 'a'), {1})}).error().code, ErrorCode::kLimitExceeded);
  EXPECT_EQ(Manifest::create({tensor("a", {1ULL << 40, 1ULL << 40})}).error().code, ErrorCode::kLimitExceeded);
  EXPECT_EQ(Manifest::create({tensor("a", {1ULL << 38}), tensor("b", {1})}).error().code, ErrorCode::kLimitExceeded);
}

}  // namespace
}  // namespace sluice::sync
