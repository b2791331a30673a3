#pragma once

// ChunkCombiner: the owner's work on a pool of threads. A job takes the contributions of one chunk by value (shared, immutable bytes), sums
// them exactly and returns the coded sum on the loop. The object lives on the gateway's loop; jobs own everything they touch.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/thread_pool.hpp>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"

namespace sluice::gateway {

class ChunkCombiner {
 public:
  using Frame = std::shared_ptr<const ByteVector>;
  using Done = std::function<void(Result<Frame>)>;  // on the loop

  // REQUIRES: threads >= 1; `loop` outlives this object.
  ChunkCombiner(asio::io_context& loop, std::size_t threads);
  // Waits for running jobs; their results are dropped with the loop.
  ~ChunkCombiner();
  ChunkCombiner(const ChunkCombiner&) = delete;
  ChunkCombiner& operator=(const ChunkCombiner&) = delete;

  // `contributions` in site order. Errors given to `done`: those of compression::combine_frames and parse_frame.
  void combine(std::vector<Frame> contributions, Done done);

 private:
  asio::io_context& loop_;
  asio::thread_pool pool_;
};

}  // namespace sluice::gateway
