#pragma once

// Collective operations among the ranks of one site, over whatever the site has inside: gloo/ (CPU, TCP) or nccl/ (GPU).
//
// All ranks make the same calls in the same order with the same sizes, each from one thread at a time; only exchange() is between two of
// them. Every call has a timeout; when it
// fails (a rank died, the timeout passed) the group is broken: every later call fails at once, the other ranks' calls end with an error
// too, and a new group has to be formed. Results are the same bits at every rank: sums are added in the order of the ranks.
// Sizes are counts of values. Errors: kGroupBroken with the rank or the cause.

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"

namespace sluice::sync {

enum class ReduceOp : std::uint8_t { kSum = 0, kMean = 1, kMin = 2, kMax = 3 };

class Collectives {
 public:
  virtual ~Collectives() = default;

  [[nodiscard]] virtual RankId rank() const = 0;
  [[nodiscard]] virtual std::uint32_t ranks() const = 0;
  // Once true, it stays so.
  [[nodiscard]] virtual bool is_broken() const = 0;

  virtual Status all_reduce(std::span<float> values, ReduceOp op, Duration timeout) = 0;
  // For agreements: few values, exact. kMean is not allowed.
  virtual Status all_reduce(std::span<std::int64_t> values, ReduceOp op, Duration timeout) = 0;
  // `values` holds the sections of all ranks one behind the other, counts[r] values for rank r; this rank receives its own reduced
  // section in `out`. REQUIRES: counts.size() == ranks(), their sum is values.size(), out.size() == counts[rank()], out outside values.
  virtual Status reduce_scatter(std::span<const float> values, std::span<const std::size_t> counts, std::span<float> out, ReduceOp op,
                                Duration timeout) = 0;
  // The reverse: every rank gives its section and receives all. REQUIRES: in.size() == counts[rank()], out.size() is the sum of counts.
  virtual Status all_gather(std::span<const float> in, std::span<const std::size_t> counts, std::span<float> out, Duration timeout) = 0;
  virtual Status broadcast(std::span<float> values, RankId root, Duration timeout) = 0;
  virtual Status broadcast_bytes(std::span<std::uint8_t> bytes, RankId root, Duration timeout) = 0;
  virtual Status barrier(Duration timeout) = 0;
  // Sends `out` to the peer and receives `in` from it; the other ranks neither take part nor wait. Both ranks of the pair make the same
  // calls in the same order, and what one sends is as long as what the other receives; either may be nothing. REQUIRES: peer is another
  // rank of the group.
  virtual Status exchange(RankId peer, ByteSpan out, std::span<std::uint8_t> in, Duration timeout) = 0;
};

// Where the ranks of a group find each other: in memory for tests, through the gateway in the agent. Called from any thread.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  virtual Status set(const std::string& key, ByteSpan value) = 0;
  // Waits until somebody has set the key. Errors: kTimeout, kUnavailable.
  virtual Result<ByteVector> wait(const std::string& key, Duration timeout) = 0;
};

}  // namespace sluice::sync
