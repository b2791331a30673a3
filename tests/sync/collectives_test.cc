// Goal: the Gloo backend gives every rank the same, right bits, and a rank that dies or stays away ends the others' calls instead of
// hanging them.
// Method: 1 to 4 real processes, forked before any thread exists; the parent serves their rendezvous over socket pairs.

#include "sync/collectives.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <map>
#include <numeric>

#include "sync/gloo/gloo_collectives.h"

namespace sluice::sync {
namespace {

using namespace std::chrono_literals;

// One request or answer on the socket pair: 'S' key value, 'W' key -> value.
void write_all(int socket, const std::string& text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  if (write(socket, &size, sizeof size) != sizeof size || write(socket, text.data(), size) != static_cast<ssize_t>(size)) _exit(99);
}

bool read_all(int socket, std::string& text) {
  std::uint32_t size = 0;
  if (recv(socket, &size, sizeof size, MSG_WAITALL) != sizeof size) return false;
  text.resize(size);
  if (size == 0) return true;  // a receive of nothing waits for something
  return recv(socket, text.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

class SocketStore final : public KeyValueStore {
 public:
  explicit SocketStore(int socket) : socket_(socket) {}
  Status set(const std::string& key, ByteSpan value) override {
    write_all(socket_, "S" + key);
    write_all(socket_, std::string(value.begin(), value.end()));
    return {};
  }
  Result<ByteVector> wait(const std::string& key, Duration timeout) override {
    write_all(socket_, "W" + key);
    pollfd ready{socket_, POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(timeout).count())) != 1) {
      return fail(ErrorCode::kTimeout, "wait for key", key);
    }
    std::string value;
    if (!read_all(socket_, value)) return fail(ErrorCode::kUnavailable, "wait for key", key);
    return ByteVector(value.begin(), value.end());
  }

 private:
  int socket_;
};

// Serves sets and waits until all children have closed their ends.
void serve(std::vector<int> sockets) {
  std::map<std::string, std::string> values;
  std::map<int, std::string> waiting;
  std::size_t open = sockets.size();
  while (open > 0) {
    std::vector<pollfd> ready;
    for (const int socket : sockets) ready.push_back({socket, POLLIN, 0});
    ASSERT_GT(poll(ready.data(), ready.size(), 60'000), 0);
    for (std::size_t index = 0; index < ready.size(); ++index) {
      if ((ready[index].revents & (POLLIN | POLLHUP)) == 0) continue;
      std::string request;
      std::string value;
      if (!read_all(sockets[index], request)) {
        close(sockets[index]);
        waiting.erase(sockets[index]);
        sockets[index] = -1;
        --open;
      } else if (request[0] == 'S') {
        ASSERT_TRUE(read_all(sockets[index], value));
        values[request.substr(1)] = value;
      } else {
        waiting[sockets[index]] = request.substr(1);
      }
    }
    std::erase_if(waiting, [&](const auto& entry) {
      const auto found = values.find(entry.second);
      if (found == values.end()) return false;
      write_all(entry.first, found->second);
      return true;
    });
  }
}

// A check in a child: prints and ends the process with a status that the parent sees.
#define CHILD_CHECK(condition)                                                    \
  do {                                                                            \
    if (!(condition)) {                                                           \
      std::fprintf(stderr, "rank failed at line %d: %s\n", __LINE__, #condition); \
      _exit(1);                                                                   \
    }                                                                             \
  } while (false)

using Body = std::function<void(KeyValueStore&, RankId, std::uint32_t)>;

void run_ranks(std::uint32_t ranks, const Body& body) {
  std::vector<int> sockets;
  std::vector<pid_t> children;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (const int socket : sockets) close(socket);
      close(pair[0]);
      SocketStore store(pair[1]);
      body(store, RankId(rank), ranks);
      _exit(0);
    }
    close(pair[1]);
    sockets.push_back(pair[0]);
    children.push_back(child);
  }
  serve(sockets);
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "a rank ended with status " << status;
  }
}

std::unique_ptr<Collectives> form(KeyValueStore& store, RankId rank, std::uint32_t ranks, Duration timeout = 20s) {
  GlooOptions options;
  options.rank = rank;
  options.ranks = ranks;
  options.group = "test";
  options.timeout = timeout;
  auto group = form_gloo_group(store, options);
  CHILD_CHECK(group);
  return std::move(*group);
}

float value_at(std::uint32_t rank, std::size_t index) { return static_cast<float>(rank + 1) * 0.1F + static_cast<float>(index % 97); }

void check_reductions(Collectives& group, std::size_t count) {
  const std::uint32_t ranks = group.ranks();
  std::vector<float> values(count);
  for (std::size_t index = 0; index < count; ++index) values[index] = value_at(group.rank().value, index);
  std::vector<float> sum = values;
  CHILD_CHECK(group.all_reduce(std::span<float>(sum), ReduceOp::kSum, 20s));
  std::vector<float> mean = values;
  CHILD_CHECK(group.all_reduce(std::span<float>(mean), ReduceOp::kMean, 20s));
  std::vector<float> least = values;
  CHILD_CHECK(group.all_reduce(std::span<float>(least), ReduceOp::kMin, 20s));
  std::vector<float> most = values;
  CHILD_CHECK(group.all_reduce(std::span<float>(most), ReduceOp::kMax, 20s));
  for (std::size_t index = 0; index < count; ++index) {
    float expected = value_at(0, index);
    for (std::uint32_t rank = 1; rank < ranks; ++rank) expected += value_at(rank, index);
    CHILD_CHECK(sum[index] == expected);
    CHILD_CHECK(mean[index] == expected / static_cast<float>(ranks));
    CHILD_CHECK(least[index] == value_at(0, index));
    CHILD_CHECK(most[index] == value_at(ranks - 1, index));
  }
}

void check_scatter_and_gather(Collectives& group, std::span<const std::size_t> counts) {
  const std::uint32_t rank = group.rank().value;
  const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const std::size_t begin = std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
  std::vector<float> values(total);
  for (std::size_t index = 0; index < total; ++index) values[index] = value_at(rank, index);
  std::vector<float> own(counts[rank]);
  CHILD_CHECK(group.reduce_scatter(values, counts, own, ReduceOp::kSum, 20s));
  std::vector<float> all(total);
  CHILD_CHECK(group.all_gather(own, counts, all, 20s));
  for (std::size_t index = 0; index < total; ++index) {
    float expected = value_at(0, index);
    for (std::uint32_t other = 1; other < group.ranks(); ++other) expected += value_at(other, index);
    CHILD_CHECK(all[index] == expected);
    if (index >= begin && index < begin + own.size()) CHILD_CHECK(own[index - begin] == expected);
  }
}

TEST(Collectives, ReductionsAreRightForOneToFourRanksAndAllSizes) {
  for (std::uint32_t ranks = 1; ranks <= 4; ++ranks) {
    run_ranks(ranks, [](KeyValueStore& store, RankId rank, std::uint32_t count) {
      const auto group = form(store, rank, count);
      for (const std::size_t size : {std::size_t{1}, std::size_t{2}, std::size_t{2049}, std::size_t{100'003}}) {
        check_reductions(*group, size);
      }
    });
  }
}

TEST(Collectives, ScatterAndGatherTakeUnequalAndEmptySections) {
  run_ranks(3, [](KeyValueStore& store, RankId rank, std::uint32_t count) {
    const auto group = form(store, rank, count);
    check_scatter_and_gather(*group, std::vector<std::size_t>{5, 0, 7});
    check_scatter_and_gather(*group, std::vector<std::size_t>{0, 300'001, 262'144});
    check_scatter_and_gather(*group, std::vector<std::size_t>{0, 0, 1});
  });
}

TEST(Collectives, BroadcastBarrierAndAgreement) {
  run_ranks(4, [](KeyValueStore& store, RankId rank, std::uint32_t count) {
    const auto group = form(store, rank, count);
    std::vector<float> values(70'000, rank.value == 2 ? 1.5F : 0.0F);
    CHILD_CHECK(group->broadcast(values, RankId(2), 20s));
    CHILD_CHECK(values.front() == 1.5F && values.back() == 1.5F);
    std::uint8_t bytes[3] = {static_cast<std::uint8_t>(rank.value), 1, 2};
    CHILD_CHECK(group->broadcast_bytes(bytes, RankId(3), 20s));
    CHILD_CHECK(bytes[0] == 3);
    std::int64_t least[2] = {std::int64_t{1} << 60, -static_cast<std::int64_t>(rank.value)};
    CHILD_CHECK(group->all_reduce(std::span<std::int64_t>(least), ReduceOp::kMin, 20s));
    CHILD_CHECK(least[0] == std::int64_t{1} << 60 && least[1] == -3);
    CHILD_CHECK(group->barrier(20s));
  });
}

TEST(Collectives, TwoRanksExchangeWhileOthersDoNot) {
  run_ranks(3, [](KeyValueStore& store, RankId rank, std::uint32_t count) {
    const auto group = form(store, rank, count);
    if (rank.value != 1) {
      const RankId peer(2 - rank.value);
      for (const std::size_t size : {std::size_t{1}, std::size_t{0}, std::size_t{3'000'000}}) {
        const ByteVector out(size, static_cast<std::uint8_t>(rank.value + 1));
        ByteVector in(size);
        CHILD_CHECK(group->exchange(peer, out, in, 20s));
        CHILD_CHECK(in == ByteVector(size, static_cast<std::uint8_t>(peer.value + 1)));
      }
      ByteVector word(8, 7);  // one way
      const ByteSpan out = rank.value == 0 ? ByteSpan(word) : ByteSpan();
      CHILD_CHECK(group->exchange(peer, out, rank.value == 0 ? std::span<std::uint8_t>() : std::span<std::uint8_t>(word), 20s));
    }
    CHILD_CHECK(group->barrier(20s));  // whoever was in no exchange is still in step
  });
}

TEST(Collectives, AnExchangeWithARankThatStaysAwayTimesOut) {
  run_ranks(2, [](KeyValueStore& store, RankId rank, std::uint32_t count) {
    const auto group = form(store, rank, count);
    if (rank.value == 1) {
      CHILD_CHECK(store.wait("the other has given up", 20s));
      return;
    }
    ByteVector in(8);
    const Status status = group->exchange(RankId(1), {}, in, 200ms);
    CHILD_CHECK(!status && status.error().code == ErrorCode::kGroupBroken);
    CHILD_CHECK(group->is_broken());
    CHILD_CHECK(store.set("the other has given up", {}));
  });
}

TEST(Collectives, DeathOfARankEndsTheCallsOfTheOthers) {
  run_ranks(3, [](KeyValueStore& store, RankId rank, std::uint32_t count) {
    const auto group = form(store, rank, count);
    CHILD_CHECK(group->barrier(20s));
    if (rank.value == 1) _exit(0);
    const TimePoint begin = Clock::now();
    const Status status = group->barrier(60s);
    CHILD_CHECK(!status && status.error().code == ErrorCode::kGroupBroken);
    CHILD_CHECK(group->is_broken());
    CHILD_CHECK(!group->barrier(60s));
    CHILD_CHECK(Clock::now() - begin < 30s);
  });
}

TEST(Collectives, AnAbsentRankMakesFormingAndCallsTimeOut) {
  run_ranks(2, [](KeyValueStore& store, RankId rank, std::uint32_t count) {
    GlooOptions options{rank, count + 1, "absent", "", "", 200ms};
    const auto group = form_gloo_group(store, options);
    CHILD_CHECK(!group && group.error().code == ErrorCode::kGroupBroken);
  });
  run_ranks(2, [](KeyValueStore& store, RankId rank, std::uint32_t count) {
    const auto group = form(store, rank, count);
    CHILD_CHECK(group->barrier(20s));
    if (rank.value == 1) {  // alive and connected, but in no call
      CHILD_CHECK(store.wait("the other has given up", 20s));
      return;
    }
    const Status status = group->barrier(200ms);
    CHILD_CHECK(!status && status.error().code == ErrorCode::kGroupBroken);
    CHILD_CHECK(store.set("the other has given up", {}));
  });
}

}  // namespace
}  // namespace sluice::sync
