// Goal: several ranks of a site act as one: they average their parameters, take the same decision, and end with the same bits; a rank
// that dies holds nobody up, and one that starts again is given the site's parameters. Method: two or three agents in threads, a gateway
// in the test that echoes every contribution as the update.

#include <gtest/gtest.h>

#include <future>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "compression/frame.h"
#include "compression/limits.h"
#include "site-agent/agent.h"
#include "tests/site-agent/fake_gateway.h"

namespace sluice::site_agent {
namespace {

using compression::kChunkValues;
using test::FakeConnection;
using test::FakeGateway;
using wire::FrameRole;

// Forms groups, and commits each round that all ranks are ready for with their own contributions.
class EchoSite {
 public:
  EchoSite(FakeGateway& gateway, std::uint32_t ranks) : gateway_(gateway), ranks_(ranks) {}
  ~EchoSite() {
    {
      const std::lock_guard lock(mutex_);
      for (auto& [rank, connection] : connections_) connection->end();
    }
    for (std::thread& thread : threads_) thread.join();
  }
  EchoSite(const EchoSite&) = delete;
  EchoSite& operator=(const EchoSite&) = delete;

  // Takes `count` more agents in; forms the group when all are here.
  void admit(std::uint32_t count) {
    for (std::uint32_t index = 0; index < count; ++index) {
      {
        const std::lock_guard lock(mutex_);
        gateway_.welcome.set_round(round_);
      }
      std::shared_ptr<FakeConnection> connection = gateway_.accept();
      const std::uint32_t rank = gateway_.hello.rank();
      chunks_ = gateway_.hello.chunks();
      const std::lock_guard lock(mutex_);
      connections_[rank] = connection;
      threads_.emplace_back([this, rank, connection] { serve(rank, connection); });
    }
    const std::lock_guard lock(mutex_);
    if (connections_.size() < ranks_) return;
    values_.clear();
    ++generation_;
    wire::AgentMessage formed;
    formed.mutable_group_formed()->set_generation(generation_);
    to_all(formed);
  }
  void bring_up_to_date(std::uint32_t rank, const std::vector<test::FakeFrame>& updates) {
    const std::lock_guard lock(mutex_);
    connections_.at(rank)->send(test::catch_up(round_, false));
    for (const test::FakeFrame& update : updates) connections_.at(rank)->send_frame(update.envelope, update.frame);
    connections_.at(rank)->send(test::committed(round_, 1, 1.0F, true));
  }
  // Frames of the last round, as replay.
  std::vector<test::FakeFrame> last_update() {
    const std::lock_guard lock(mutex_);
    return updates_;
  }
  // What the ranks said of their probe.
  std::map<std::uint32_t, wire::SiteProbe> probes() {
    const std::lock_guard lock(mutex_);
    return probes_;
  }
  std::map<std::uint32_t, std::string> digests() {
    const std::lock_guard lock(mutex_);
    return digests_;
  }

 private:
  void serve(std::uint32_t rank, const std::shared_ptr<FakeConnection>& connection) {
    while (auto record = connection->try_read()) {
      const std::lock_guard lock(mutex_);
      if (record->frame) {
        take_frame(*record->frame);
      } else {
        take(rank, record->message);
      }
    }
    const std::lock_guard lock(mutex_);
    if (connections_[rank] != connection) return;
    connections_.erase(rank);
    ready_ = 0;
    wire::AgentMessage broken;
    broken.mutable_group_broken()->set_generation(generation_);
    to_all(broken);
  }

  void take(std::uint32_t rank, const wire::AgentMessage& message) {
    if (message.has_key_set()) {
      values_[message.key_set().key()] = message.key_set().value();
      answer_waits();
    } else if (message.has_key_wait()) {
      waits_.emplace_back(rank, message.key_wait());
      answer_waits();
    } else if (message.has_ready() && ++ready_ == ranks_) {
      ready_ = 0;
      updates_.clear();
      to_all(test::opened(round_ + 1, 0, 0.0F));
    } else if (message.has_site_probe()) {
      probes_[rank] = message.site_probe();
    } else if (message.has_round_applied()) {
      for (int index = 0; index < message.round_applied().chunk_digests_size(); ++index) {
        digests_[rank] += message.round_applied().chunk_digests(index);
      }
    }
  }

  void take_frame(test::FakeFrame& frame) {
    const auto rank_of = [&](std::uint32_t chunk) {
      std::uint32_t rank = 0;
      while ((rank + 1) * chunks_ / ranks_ <= chunk) ++rank;
      return rank;
    };
    frame.envelope.role = static_cast<std::uint16_t>(FrameRole::kUpdate);
    frame.envelope.counted = 1;
    connections_.at(rank_of(frame.envelope.chunk))->send_frame(frame.envelope, frame.frame);
    frame.envelope.role = static_cast<std::uint16_t>(FrameRole::kReplay);
    updates_.push_back(frame);
    if (updates_.size() < chunks_) return;
    ++round_;
    to_all(test::committed(round_, 1, 1.0F, true));
  }

  void answer_waits() {
    std::erase_if(waits_, [&](const auto& wait) {
      const auto found = values_.find(wait.second.key());
      if (found == values_.end() || !connections_.contains(wait.first)) return false;
      wire::AgentMessage answer;
      answer.mutable_key_value()->set_request_id(wait.second.request_id());
      answer.mutable_key_value()->set_found(true);
      answer.mutable_key_value()->set_value(found->second);
      connections_.at(wait.first)->send(answer);
      return true;
    });
  }

  void to_all(const wire::AgentMessage& message) {
    for (auto& [rank, connection] : connections_) connection->send(message);
  }

  FakeGateway& gateway_;
  std::uint32_t ranks_;
  std::mutex mutex_;
  std::map<std::uint32_t, std::shared_ptr<FakeConnection>> connections_;
  std::vector<std::thread> threads_;
  std::map<std::string, std::string> values_;
  std::vector<std::pair<std::uint32_t, wire::KeyWait>> waits_;
  std::vector<test::FakeFrame> updates_;
  std::map<std::uint32_t, std::string> digests_;
  std::map<std::uint32_t, wire::SiteProbe> probes_;
  std::uint64_t generation_ = 0;
  std::uint64_t round_ = 0;
  std::uint32_t chunks_ = 0;
  std::uint32_t ready_ = 0;
};

struct Rank {
  Rank(const FakeGateway& gateway, std::uint32_t rank, std::uint32_t ranks, std::size_t values,
       Duration group_timeout = std::chrono::seconds(20))
      : tensor(values) {
    std::iota(tensor.begin(), tensor.end(), 0.0F);
    AgentOptions options;
    options.gateway = gateway.address();
    options.rank = RankId(rank);
    options.ranks = ranks;
    options.group_timeout = group_timeout;
    options.start_timeout = std::chrono::seconds(20);
    agent = std::move(*Agent::create(options));
    EXPECT_TRUE(agent->add_tensor("weight", compression::ElementType::kFloat32, {values}, tensor.data()));
  }
  std::future<void> start() {
    return std::async(std::launch::async, [this] { EXPECT_TRUE(agent->start()); });
  }
  std::future<StepOutcome> step() {
    return std::async(std::launch::async, [this] { return agent->step(1, 1.0)->outcome; });
  }
  std::vector<float> tensor;
  std::unique_ptr<Agent> agent;
};

TEST(AgentGroup, RanksAverageTheirParametersAndEndWithTheSameBits) {
  for (const std::uint32_t ranks : {2U, 3U}) {
    FakeGateway gateway;
    EchoSite site(gateway, ranks);
    const std::size_t values = 2 * kChunkValues + 100;  // three chunks: uneven shards
    std::vector<std::unique_ptr<Rank>> all;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) all.push_back(std::make_unique<Rank>(gateway, rank, ranks, values));
    all[1]->tensor[5] = 77.0F;  // not the same start: the shards' owners decide
    std::vector<std::future<void>> started;
    for (auto& rank : all) started.push_back(rank->start());
    site.admit(ranks);
    for (auto& done : started) done.get();
    EXPECT_EQ(all[1]->tensor, all[0]->tensor);
    for (int round = 0; round < 2; ++round) {
      const std::vector<float> before = all[0]->tensor;
      std::vector<std::future<StepOutcome>> steps;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        for (float& value : all[rank]->tensor) value += static_cast<float>(rank);
        steps.push_back(all[rank]->step());
      }
      for (auto& outcome : steps) EXPECT_EQ(outcome.get(), StepOutcome::kCommitted);
      for (auto& rank : all) EXPECT_EQ(rank->tensor, all[0]->tensor);
      EXPECT_NEAR(all[0]->tensor[9], before[9] + static_cast<float>(ranks - 1) / 2.0F, 1e-4F);
    }
  }
}

TEST(AgentGroup, RanksWithoutAChunkTakePart) {
  FakeGateway gateway;
  EchoSite site(gateway, 2);
  Rank first(gateway, 0, 2, 10);
  Rank second(gateway, 1, 2, 10);
  auto one = first.start();
  auto two = second.start();
  site.admit(2);
  one.get();
  two.get();
  for (float& value : first.tensor) value += 2.0F;
  auto outcome = first.step();
  EXPECT_EQ(second.step().get(), StepOutcome::kCommitted);
  EXPECT_EQ(outcome.get(), StepOutcome::kCommitted);
  EXPECT_EQ(first.tensor, second.tensor);
  EXPECT_EQ(first.tensor[3], 4.0F);
}

TEST(AgentGroup, DeathOfARankHoldsNobodyUpAndItsReplacementGetsTheParameters) {
  FakeGateway gateway;
  EchoSite site(gateway, 2);
  Rank first(gateway, 0, 2, kChunkValues + 10);
  auto second = std::make_unique<Rank>(gateway, 1, 2, kChunkValues + 10);
  {
    auto one = first.start();
    auto two = second->start();
    site.admit(2);
    one.get();
    two.get();
  }
  {
    auto outcome = first.step();
    EXPECT_EQ(second->step().get(), StepOutcome::kCommitted);
    EXPECT_EQ(outcome.get(), StepOutcome::kCommitted);
  }
  std::vector<test::FakeFrame> lost = site.last_update();
  std::erase_if(lost, [](const test::FakeFrame& frame) { return frame.envelope.chunk != 1; });
  second.reset();
  EXPECT_EQ(first.step().get(), StepOutcome::kSolo);
  for (float& value : first.tensor) value += 1.0F;
  second = std::make_unique<Rank>(gateway, 1, 2, kChunkValues + 10);
  second->tensor[0] = -5.0F;
  auto started = second->start();
  site.admit(1);
  site.bring_up_to_date(1, lost);
  StepOutcome outcome = StepOutcome::kSolo;
  const TimePoint limit = Clock::now() + std::chrono::seconds(15);
  while (outcome == StepOutcome::kSolo && Clock::now() < limit) {  // until the group is there
    outcome = first.step().get();
  }
  EXPECT_EQ(outcome, StepOutcome::kCaughtUp);
  started.get();
  EXPECT_EQ(first.tensor, second->tensor);
  auto next = first.step();
  EXPECT_EQ(second->step().get(), StepOutcome::kCommitted);
  EXPECT_EQ(next.get(), StepOutcome::kCommitted);
}

// The last rank to be done has sent its report before its start() returns; the gateway's thread may read it a little later.
std::map<std::uint32_t, wire::SiteProbe> wait_for_probes(EchoSite& site, std::size_t ranks) {
  const TimePoint limit = Clock::now() + std::chrono::seconds(20);
  while (site.probes().size() < ranks && Clock::now() < limit) std::this_thread::yield();
  return site.probes();
}

TEST(AgentGroup, RanksMeasureWhatJoinsThemOnceBeforeTheyTrain) {
  FakeGateway gateway;
  gateway.welcome.set_probe_window_us(5'000'000);
  EchoSite site(gateway, 3);
  std::vector<std::unique_ptr<Rank>> all;
  for (std::uint32_t rank = 0; rank < 3; ++rank) all.push_back(std::make_unique<Rank>(gateway, rank, 3, 1000));
  std::vector<std::future<void>> started;
  for (auto& rank : all) started.push_back(rank->start());
  site.admit(3);
  for (auto& done : started) done.get();
  const auto probes = wait_for_probes(site, 3);
  ASSERT_EQ(probes.size(), 3U);
  int pairs = 0;
  for (const auto& [rank, probe] : probes) {
    EXPECT_EQ(probe.failure(), "");
    EXPECT_EQ(probe.pairs_planned(), 3U);
    EXPECT_EQ(probe.machine(), probes.at(0).machine());
    for (const wire::ProbedPair& pair : probe.pairs()) {
      ++pairs;
      EXPECT_GT(pair.peer(), rank);
      EXPECT_GT(pair.forward_gb_per_second(), 0.001);
      EXPECT_GT(pair.backward_gb_per_second(), 0.001);
      EXPECT_GT(pair.latency_us(), 0.0);
    }
  }
  EXPECT_EQ(pairs, 3);
  std::vector<std::future<StepOutcome>> steps;
  for (auto& rank : all) steps.push_back(rank->step());
  for (auto& outcome : steps) EXPECT_EQ(outcome.get(), StepOutcome::kCommitted);
}

TEST(AgentGroup, ARankThatIsOnlyLateBreaksTheGroupAndAnotherOneIsFormed) {
  FakeGateway gateway;
  EchoSite site(gateway, 2);
  Rank first(gateway, 0, 2, kChunkValues + 10, std::chrono::seconds(2));
  Rank second(gateway, 1, 2, kChunkValues + 10, std::chrono::seconds(2));
  {
    auto one = first.start();
    auto two = second.start();
    site.admit(2);
    one.get();
    two.get();
  }
  EXPECT_EQ(first.step().get(), StepOutcome::kSolo);  // the second is at work elsewhere
  // Nobody has left: the first asks the gateway for another group by coming again.
  std::future<void> admitted = std::async(std::launch::async, [&] { site.admit(1); });
  const TimePoint limit = Clock::now() + std::chrono::seconds(15);
  while (admitted.wait_for(std::chrono::seconds(0)) != std::future_status::ready && Clock::now() < limit) first.step().get();
  const auto train = [&](Rank& rank) {
    StepOutcome outcome = StepOutcome::kSolo;
    while (outcome != StepOutcome::kCommitted && Clock::now() < limit) outcome = rank.agent->step(1, 1.0)->outcome;
    return outcome;
  };
  auto other = std::async(std::launch::async, [&] { return train(second); });
  EXPECT_EQ(train(first), StepOutcome::kCommitted);
  EXPECT_EQ(other.get(), StepOutcome::kCommitted);
  admitted.get();
  EXPECT_EQ(first.tensor, second.tensor);
}

TEST(AgentGroup, NonFiniteValueOfOneRankWithholdsTheSitesContribution) {
  FakeGateway gateway;
  EchoSite site(gateway, 2);
  Rank first(gateway, 0, 2, kChunkValues + 10);
  Rank second(gateway, 1, 2, kChunkValues + 10);
  auto one = first.start();
  auto two = second.start();
  site.admit(2);
  one.get();
  two.get();
  first.tensor[kChunkValues + 3] = std::numeric_limits<float>::infinity();  // of the second rank's shard
  auto outcome = first.step();
  EXPECT_EQ(second.step().get(), StepOutcome::kSkipped);
  EXPECT_EQ(outcome.get(), StepOutcome::kSkipped);
  EXPECT_NE(second.agent->last_error().find("weight[262147]"), std::string::npos);
  EXPECT_EQ(first.agent->statistics().deltas_withheld, 1U);
}

}  // namespace
}  // namespace sluice::site_agent
