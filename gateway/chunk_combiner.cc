#include "gateway/chunk_combiner.h"

#include <utility>

#include <asio/post.hpp>

#include "compression/chunk_sum.h"
#include "compression/frame.h"

namespace sluice::gateway {
namespace {

Result<ChunkCombiner::Frame> combine_now(const std::vector<ChunkCombiner::Frame>& contributions) {
  // One accumulator of 1 to 2 MiB for each pool thread, kept between jobs.
  thread_local compression::ChunkSum sum;
  sum.reset();
  for (const ChunkCombiner::Frame& frame : contributions) {
    SLUICE_TRY(const auto view, compression::parse_frame(*frame));
    SLUICE_CHECK_OK(sum.add(view));
  }
  auto coded = std::make_shared<ByteVector>();
  SLUICE_CHECK_OK(sum.encode(*coded));
  return ChunkCombiner::Frame(std::move(coded));
}

}  // namespace

ChunkCombiner::ChunkCombiner(asio::io_context& loop, std::size_t threads) : loop_(loop), pool_(threads) {}

ChunkCombiner::~ChunkCombiner() { pool_.join(); }

void ChunkCombiner::combine(std::vector<Frame> contributions, Done done) {
  asio::post(pool_, [this, contributions = std::move(contributions), done = std::move(done)]() mutable {
    auto result = combine_now(contributions);
    contributions.clear();
    asio::post(loop_, [result = std::move(result), done = std::move(done)]() mutable { done(std::move(result)); });
  });
}

}  // namespace sluice::gateway
