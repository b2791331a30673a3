// Every operation is a direct exchange: each rank sends every other rank its piece and receives theirs into place. The volume is that of
// a ring ((R-1)/R of the data per rank and phase), the latency is one hop, and sums are added in the order of the ranks at whoever owns
// the section, so that a result does not depend on which message came first. Sites have few ranks per node; a tree is not worth its code
// below some 64.

#include "sync/gloo/gloo_collectives.h"

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <numeric>

#include "base/assert.h"

namespace sluice::sync {
namespace {

using std::chrono::milliseconds;
using UnboundBuffer = gloo::transport::UnboundBuffer;

// Gloo's own algorithms use the lower prefixes in the top byte.
constexpr std::uint64_t kSlotPrefix = std::uint64_t{0x5a} << 56;
constexpr std::uint64_t kPairSlotPrefix = std::uint64_t{0x5b} << 56;  // of exchanges, counted for each pair
// Below this size all ranks send everything to everybody: one hop instead of two.
constexpr std::size_t kSmallValues = 2048;

// Gloo writes to connections whose other end may be gone, which raises SIGPIPE in the thread that writes: a rank's death must not kill the
// others' training processes, whatever their handling of signals. Threads that Gloo starts meanwhile inherit the block.
class NoBrokenPipes {
 public:
  NoBrokenPipes() {
    sigemptyset(&broken_pipe_);
    sigaddset(&broken_pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &broken_pipe_, &before_);
  }
  ~NoBrokenPipes() {
    if (sigismember(&before_, SIGPIPE) == 1) return;
    const timespec at_once{};
    if (!was_pending_) sigtimedwait(&broken_pipe_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoBrokenPipes(const NoBrokenPipes&) = delete;
  NoBrokenPipes& operator=(const NoBrokenPipes&) = delete;

 private:
  sigset_t broken_pipe_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

class StoreAdapter final : public gloo::rendezvous::Store {
 public:
  StoreAdapter(KeyValueStore& store, std::string prefix, TimePoint deadline)
      : store_(store), prefix_(std::move(prefix)), deadline_(deadline) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    const auto status = store_.set(prefix_ + key, ByteSpan(reinterpret_cast<const std::uint8_t*>(data.data()), data.size()));
    if (!status) throw std::runtime_error(status.error().to_string());
  }
  std::vector<char> get(const std::string& key) override {
    const auto value = store_.wait(prefix_ + key, std::max(deadline_ - Clock::now(), Duration::zero()));
    if (!value) throw std::runtime_error(value.error().to_string());
    return {value->begin(), value->end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }
  void wait(const std::vector<std::string>& keys, const milliseconds& /*timeout*/) override { wait(keys); }

 private:
  KeyValueStore& store_;
  std::string prefix_;
  TimePoint deadline_;
};

template <typename Number>
Number reduce_pair(Number left, Number right, ReduceOp op) {
  switch (op) {
    case ReduceOp::kMin:
      return std::min(left, right);
    case ReduceOp::kMax:
      return std::max(left, right);
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      break;
  }
  return left + right;
}

template <typename Number>
void reduce_into(std::span<Number> sum, std::span<const Number> other, ReduceOp op) {
  if (op == ReduceOp::kSum || op == ReduceOp::kMean) {
    for (std::size_t index = 0; index < sum.size(); ++index) sum[index] += other[index];
  } else {
    for (std::size_t index = 0; index < sum.size(); ++index) sum[index] = reduce_pair(sum[index], other[index], op);
  }
}

void divide_for_mean(std::span<float> values, std::uint32_t ranks, ReduceOp op) {
  if (op != ReduceOp::kMean) return;
  const auto divisor = static_cast<float>(ranks);
  for (float& value : values) value /= divisor;
}

class GlooCollectives final : public Collectives {
 public:
  GlooCollectives(std::shared_ptr<gloo::rendezvous::Context> context, const GlooOptions& options)
      : context_(std::move(context)), rank_(options.rank), ranks_(options.ranks), pair_slots_(options.ranks, kPairSlotPrefix) {}
  ~GlooCollectives() override { close(); }
  GlooCollectives(const GlooCollectives&) = delete;
  GlooCollectives& operator=(const GlooCollectives&) = delete;

  RankId rank() const override { return rank_; }
  std::uint32_t ranks() const override { return ranks_; }
  bool is_broken() const override { return is_broken_; }

  Status all_reduce(std::span<float> values, ReduceOp op, Duration timeout) override {
    if (values.size() <= kSmallValues) {
      SLUICE_CHECK_OK(all_reduce_small(values, op, timeout));
      divide_for_mean(values, ranks_, op);
      return {};
    }
    std::vector<std::size_t> counts(ranks_);
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      counts[rank] = values.size() * (rank + 1) / ranks_ - values.size() * rank / ranks_;
    }
    std::vector<float> section(counts[rank_.value]);
    SLUICE_CHECK_OK(reduce_scatter(values, counts, section, op, timeout));
    return all_gather(section, counts, values, timeout);
  }

  Status all_reduce(std::span<std::int64_t> values, ReduceOp op, Duration timeout) override {
    SLUICE_ASSERT(op != ReduceOp::kMean);
    return all_reduce_small(values, op, timeout);
  }

  Status reduce_scatter(std::span<const float> values, std::span<const std::size_t> counts, std::span<float> out, ReduceOp op,
                        Duration timeout) override {
    check_counts(counts, values.size(), out.size());
    const std::vector<std::size_t> starts = starts_of(counts);
    const std::size_t own = out.size();
    std::vector<float> received(own * ranks_);
    const auto exchange = [&](TimePoint deadline) {
      auto source = context_->createUnboundBuffer(const_cast<float*>(values.data()), values.size_bytes());
      auto target = context_->createUnboundBuffer(received.data(), received.size() * sizeof(float));
      Pending pending{source.get(), target.get()};
      for_each_peer([&](std::uint32_t peer) {
        pending.send(peer, slot_, starts[peer] * sizeof(float), counts[peer] * sizeof(float));
        pending.receive(peer, slot_, peer * own * sizeof(float), own * sizeof(float));
      });
      pending.wait(deadline);
    };
    SLUICE_CHECK_OK(guarded("reduce-scatter", timeout, exchange));
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      const std::span<const float> piece =
          rank == rank_.value ? values.subspan(starts[rank], own) : std::span<const float>(received).subspan(rank * own, own);
      if (rank == 0) {
        std::copy(piece.begin(), piece.end(), out.begin());
      } else {
        reduce_into(out, piece, op);
      }
    }
    divide_for_mean(out, ranks_, op);
    return {};
  }

  Status all_gather(std::span<const float> in, std::span<const std::size_t> counts, std::span<float> out, Duration timeout) override {
    check_counts(counts, out.size(), in.size());
    const std::vector<std::size_t> starts = starts_of(counts);
    const auto exchange = [&](TimePoint deadline) {
      auto source = context_->createUnboundBuffer(const_cast<float*>(in.data()), in.size_bytes());
      auto target = context_->createUnboundBuffer(out.data(), out.size_bytes());
      Pending pending{source.get(), target.get()};
      for_each_peer([&](std::uint32_t peer) {
        pending.send(peer, slot_, 0, in.size_bytes());
        pending.receive(peer, slot_, starts[peer] * sizeof(float), counts[peer] * sizeof(float));
      });
      pending.wait(deadline);
    };
    std::copy(in.begin(), in.end(), out.begin() + static_cast<std::ptrdiff_t>(starts[rank_.value]));
    return guarded("all-gather", timeout, exchange);
  }

  Status broadcast(std::span<float> values, RankId root, Duration timeout) override {
    return broadcast_memory(values.data(), values.size_bytes(), root, timeout);
  }

  Status broadcast_bytes(std::span<std::uint8_t> bytes, RankId root, Duration timeout) override {
    return broadcast_memory(bytes.data(), bytes.size(), root, timeout);
  }

  Status barrier(Duration timeout) override {
    std::int64_t one = 1;
    return all_reduce(std::span<std::int64_t>(&one, 1), ReduceOp::kSum, timeout);
  }

  Status exchange(RankId peer, ByteSpan out, std::span<std::uint8_t> in, Duration timeout) override {
    SLUICE_ASSERT(peer != rank_ && peer.value < ranks_, "rank {} of {} exchanges with {}", rank_, ranks_, peer);
    const std::uint64_t slot = ++pair_slots_[peer.value];
    return run("exchange", timeout, [&](TimePoint deadline) {
      auto source = context_->createUnboundBuffer(const_cast<std::uint8_t*>(out.data()), out.size());
      auto target = context_->createUnboundBuffer(in.data(), in.size());
      Pending pending{source.get(), target.get()};
      pending.receive(peer.value, slot, 0, in.size());
      pending.send(peer.value, slot, 0, out.size());
      pending.wait(deadline);
    });
  }

 private:
  // Operations under way on one pair of buffers. Empty pieces are skipped on both sides.
  struct Pending {
    UnboundBuffer* source;
    UnboundBuffer* target;
    std::size_t sends = 0;
    std::size_t receives = 0;

    void send(std::uint32_t peer, std::uint64_t slot, std::size_t offset, std::size_t bytes) {
      if (bytes == 0) return;
      source->send(static_cast<int>(peer), slot, offset, bytes);
      ++sends;
    }
    void receive(std::uint32_t peer, std::uint64_t slot, std::size_t offset, std::size_t bytes) {
      if (bytes == 0) return;
      target->recv(static_cast<int>(peer), slot, offset, bytes);
      ++receives;
    }
    void wait(TimePoint deadline) {
      for (; receives > 0; --receives) target->waitRecv(remaining(deadline));
      for (; sends > 0; --sends) source->waitSend(remaining(deadline));
    }
  };

  static milliseconds remaining(TimePoint deadline) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    return std::max(left, milliseconds(1));  // Gloo takes 0 for "no timeout"
  }

  static std::vector<std::size_t> starts_of(std::span<const std::size_t> counts) {
    std::vector<std::size_t> starts(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), starts.begin(), std::size_t{0});
    return starts;
  }

  void check_counts(std::span<const std::size_t> counts, std::size_t total, std::size_t own) const {
    SLUICE_ASSERT(counts.size() == ranks_, "{} counts for {} ranks", counts.size(), ranks_);
    SLUICE_ASSERT(std::accumulate(counts.begin(), counts.end(), std::size_t{0}) == total, "counts do not add up to {}", total);
    SLUICE_ASSERT(counts[rank_.value] == own, "own section has {} values, count says {}", own, counts[rank_.value]);
  }

  template <typename Visit>
  void for_each_peer(Visit&& visit) const {
    for (std::uint32_t step = 1; step < ranks_; ++step) visit((rank_.value + step) % ranks_);
  }

  template <typename Number>
  Status all_reduce_small(std::span<Number> values, ReduceOp op, Duration timeout) {
    const std::size_t count = values.size();
    std::vector<Number> all(count * ranks_);
    const auto exchange = [&](TimePoint deadline) {
      auto source = context_->createUnboundBuffer(values.data(), values.size_bytes());
      auto target = context_->createUnboundBuffer(all.data(), all.size() * sizeof(Number));
      Pending pending{source.get(), target.get()};
      for_each_peer([&](std::uint32_t peer) {
        pending.send(peer, slot_, 0, values.size_bytes());
        pending.receive(peer, slot_, peer * values.size_bytes(), values.size_bytes());
      });
      pending.wait(deadline);
    };
    SLUICE_CHECK_OK(guarded("all-reduce", timeout, exchange));
    std::copy(values.begin(), values.end(), all.begin() + static_cast<std::ptrdiff_t>(rank_.value * count));
    std::copy_n(all.begin(), count, values.begin());
    for (std::uint32_t rank = 1; rank < ranks_; ++rank) {
      reduce_into(values, std::span<const Number>(all).subspan(rank * count, count), op);
    }
    return {};
  }

  Status broadcast_memory(void* memory, std::size_t size, RankId root, Duration timeout) {
    SLUICE_ASSERT(root.value < ranks_, "root {} of {}", root.value, ranks_);
    return guarded("broadcast", timeout, [&](TimePoint deadline) {
      auto buffer = context_->createUnboundBuffer(memory, size);
      Pending pending{buffer.get(), buffer.get()};
      if (rank_ == root) {
        for_each_peer([&](std::uint32_t peer) { pending.send(peer, slot_, 0, size); });
      } else {
        pending.receive(root.value, slot_, 0, size);
      }
      pending.wait(deadline);
    });
  }

  // Runs one operation of all ranks under its own slot.
  template <typename Operation>
  Status guarded(const char* name, Duration timeout, Operation&& operation) {
    ++slot_;
    return run(name, timeout, std::forward<Operation>(operation));
  }

  // An exception breaks the group for good.
  template <typename Operation>
  Status run(const char* name, Duration timeout, Operation&& operation) {
    if (is_broken_) return fail(ErrorCode::kGroupBroken, name, "the group was broken before");
    if (ranks_ == 1) return {};
    const NoBrokenPipes guard;
    try {
      operation(Clock::now() + timeout);
      return {};
    } catch (const std::exception& problem) {
      close();
      return fail(ErrorCode::kGroupBroken, name, problem.what());
    }
  }

  // Peers that still wait see their connections end.
  void close() {
    if (is_broken_) return;
    is_broken_ = true;
    if (ranks_ == 1) return;
    const NoBrokenPipes guard;
    try {
      context_->closeConnections();
    } catch (const std::exception&) {
      // The connections are gone already, which is what was wanted.
    }
  }

  std::shared_ptr<gloo::rendezvous::Context> context_;
  RankId rank_;
  std::uint32_t ranks_;
  std::uint64_t slot_ = kSlotPrefix;
  std::vector<std::uint64_t> pair_slots_;  // by peer
  bool is_broken_ = false;
};

}  // namespace

Result<std::unique_ptr<Collectives>> form_gloo_group(KeyValueStore& store, const GlooOptions& options) {
  SLUICE_ASSERT(options.rank.value < options.ranks, "rank {} of {}", options.rank.value, options.ranks);
  if (options.ranks == 1) return std::make_unique<GlooCollectives>(nullptr, options);
  const NoBrokenPipes guard;
  try {
    gloo::transport::tcp::attr attributes;
    attributes.iface = options.interface;
    if (options.interface.empty()) attributes.hostname = options.address.empty() ? "127.0.0.1" : options.address;
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    auto context = std::make_shared<gloo::rendezvous::Context>(static_cast<int>(options.rank.value), static_cast<int>(options.ranks));
    context->setTimeout(std::max(std::chrono::ceil<milliseconds>(options.timeout), milliseconds(1)));
    StoreAdapter adapter(store, options.group + "/", Clock::now() + options.timeout);
    context->connectFullMesh(adapter, device);
    return std::make_unique<GlooCollectives>(std::move(context), options);
  } catch (const std::exception& problem) {
    return fail(ErrorCode::kGroupBroken, "form group", problem.what());
  }
}

}  // namespace sluice::sync
