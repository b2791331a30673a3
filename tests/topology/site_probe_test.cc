// Goal: the probe of a site meets every rank early and no machine twice at a time, its figures are those of the link whatever its speed,
// and it is quick on fast links and bounded on slow ones. Method: schedules of many shapes; meters run against links that are computed.

#include "topology/site_probe.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace sluice::topology {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::size_t kAll = 100'000;

std::vector<std::uint64_t> machines(std::size_t count, std::size_t ranks_each) {
  std::vector<std::uint64_t> result;
  for (std::size_t machine = 0; machine < count; ++machine) result.insert(result.end(), ranks_each, 1000 + machine);
  return result;
}

void expect_sound(const std::vector<std::uint64_t>& machine_of, const ProbeSchedule& schedule) {
  std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
  std::size_t pairs = 0;
  for (const auto& round : schedule.rounds) {
    std::set<std::uint64_t> busy;
    EXPECT_FALSE(round.empty());
    for (const ProbePair& pair : round) {
      EXPECT_LT(pair.leader, pair.follower);
      EXPECT_TRUE(seen.emplace(pair.leader.value, pair.follower.value).second);
      const std::uint64_t left = machine_of[pair.leader.value];
      const std::uint64_t right = machine_of[pair.follower.value];
      EXPECT_TRUE(busy.insert(left).second);
      if (left != right) {
        EXPECT_TRUE(busy.insert(right).second);
      }
      ++pairs;
    }
  }
  EXPECT_EQ(pairs, schedule.pairs);
}

TEST(SiteProbe, EveryPairOfAMachineAndOneOfEveryTwoMachinesIsMeasuredOnce) {
  for (std::size_t count = 1; count <= 9; ++count) {
    for (std::size_t each = 1; each <= 8; ++each) {
      const auto machine_of = machines(count, each);
      const ProbeSchedule schedule = plan_site_probe(machine_of, kAll);
      expect_sound(machine_of, schedule);
      EXPECT_EQ(schedule.pairs, count * each * (each - 1) / 2 + count * (count - 1) / 2) << count << " machines of " << each;
    }
  }
}

TEST(SiteProbe, RanksOfUnequalMachinesInAnyOrder) {
  const std::vector<std::uint64_t> machine_of{7, 3, 7, 7, 9, 3};
  const ProbeSchedule schedule = plan_site_probe(machine_of, kAll);
  expect_sound(machine_of, schedule);
  EXPECT_EQ(schedule.pairs, 3U + 1U + 3U);
  EXPECT_TRUE(plan_site_probe({}, kAll).rounds.empty());
  EXPECT_TRUE(plan_site_probe(std::vector<std::uint64_t>{5}, kAll).rounds.empty());
}

TEST(SiteProbe, AScheduleThatIsCutOffHasMetEveryRank) {
  const auto one = machines(1, 8);
  const ProbeSchedule first = plan_site_probe(one, 4);
  EXPECT_EQ(first.rounds.size(), 4U);
  std::set<std::uint32_t> met;
  for (const auto& round : first.rounds) {
    for (const ProbePair& pair : round) met.insert({pair.leader.value, pair.follower.value});
  }
  EXPECT_EQ(met.size(), 8U);
  // The largest site allowed, in a bounded number of rounds.
  const auto many = machines(128, 8);
  const ProbeSchedule large = plan_site_probe(many, 200);
  expect_sound(many, large);
  EXPECT_EQ(large.rounds.size(), 28U + 127U);
  EXPECT_LE(plan_site_probe(machines(1, 1024), 500).rounds.size(), 500U);
}

TEST(SiteProbe, CommandsAreReadBackAndOthersRefused) {
  const ProbeCommand command{ProbeStep::kReceive, 123'456};
  const auto read = read_probe_command(write_probe_command(command));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->step, command.step);
  EXPECT_EQ(read->bytes, command.bytes);
  EXPECT_FALSE(read_probe_command(write_probe_command({ProbeStep::kSend, kProbeBytesMax + 1})));
  EXPECT_FALSE(read_probe_command(write_probe_command({static_cast<ProbeStep>(4), 0})));
}

// A link that carries `forward` and `backward` GB/s and answers after `round_trip`.
struct ModelLink {
  double forward = 1.0;
  double backward = 1.0;
  Duration round_trip = microseconds(50);
  std::function<double(std::size_t)> factor = [](std::size_t) { return 1.0; };  // of the rate, by transfer
};

struct MeterRun {
  ProbedPair pair;
  Duration took{};
  std::size_t transfers = 0;
};

MeterRun run_meter(const ModelLink& link, Duration limit) {
  PairMeter meter(limit);
  MeterRun run;
  for (ProbeCommand command = meter.next({}); command.step != ProbeStep::kEnd; command = meter.next(run.took)) {
    Duration took = link.round_trip;
    if (command.step != ProbeStep::kEcho) {
      const double rate = (command.step == ProbeStep::kSend ? link.forward : link.backward) * link.factor(run.transfers++);
      took += std::chrono::duration_cast<Duration>(std::chrono::duration<double>(command.bytes / (rate * 1e9)));
    }
    meter.add(took);
    run.took += took;
    EXPECT_LE(command.bytes, kProbeBytesMax);
  }
  run.pair = meter.result(RankId(0), RankId(1));
  return run;
}

TEST(PairMeter, FindsTheRateOfBothDirectionsAndTheLatency) {
  for (const double rate : {0.001, 0.0125, 0.125, 1.2, 12.0, 100.0}) {
    ModelLink link;
    link.forward = rate;
    link.backward = rate / 2;
    const MeterRun run = run_meter(link, std::chrono::seconds(5));
    EXPECT_NEAR(*run.pair.forward_gb_per_second, rate, rate * 0.01);
    EXPECT_NEAR(*run.pair.backward_gb_per_second, rate / 2, rate * 0.01);
    EXPECT_NEAR(*run.pair.latency_us, 25.0, 0.1);
    EXPECT_TRUE(run.pair.is_steady);
  }
}

TEST(PairMeter, IsDoneInAFewMillisecondsOnAFastLink) {
  EXPECT_LT(run_meter({3.0, 3.0, microseconds(40), [](std::size_t) { return 1.0; }}, std::chrono::seconds(5)).took, milliseconds(60));
}

TEST(PairMeter, TheRampOfAConnectionDoesNotCount) {
  ModelLink link;
  link.factor = [](std::size_t transfer) { return transfer < 3 ? 0.1 : 1.0; };
  const MeterRun run = run_meter(link, std::chrono::seconds(5));
  EXPECT_NEAR(*run.pair.forward_gb_per_second, 1.0, 0.02);
}

TEST(PairMeter, EchoesThatWaitedDoNotMakeTheLinkLookFaster) {
  PairMeter meter(std::chrono::seconds(5));
  int echoes = 0;
  Duration now{};
  for (ProbeCommand command = meter.next({}); command.step != ProbeStep::kEnd; command = meter.next(now)) {
    Duration took = microseconds(50);
    if (command.step == ProbeStep::kEcho) {
      took = ++echoes % 4 == 0 ? microseconds(50) : milliseconds(4);
    } else {
      took += std::chrono::nanoseconds(command.bytes);  // 1 GB/s
    }
    meter.add(took);
    now += took;
  }
  EXPECT_NEAR(*meter.result(RankId(0), RankId(1)).forward_gb_per_second, 1.0, 0.02);
}

TEST(PairMeter, AProcessorThatWasBusyOnceDoesNotFixTheSize) {
  ModelLink link;
  link.factor = [](std::size_t transfer) { return transfer == 0 ? 0.005 : 1.0; };
  const MeterRun run = run_meter(link, std::chrono::seconds(5));
  EXPECT_NEAR(*run.pair.forward_gb_per_second, 1.0, 0.01);
  EXPECT_TRUE(run.pair.is_steady);
}

TEST(PairMeter, AnUnsteadyLinkIsSaidToBeSoAndCountsByItsMedian) {
  ModelLink link;
  link.factor = [](std::size_t transfer) { return transfer % 2 == 0 ? 1.4 : 0.8; };
  const MeterRun run = run_meter(link, std::chrono::seconds(5));
  EXPECT_FALSE(run.pair.is_steady);
  EXPECT_GE(*run.pair.forward_gb_per_second, 0.8 * 0.99);
  EXPECT_LE(*run.pair.forward_gb_per_second, 1.4 * 1.01);
  EXPECT_LT(run.took, milliseconds(200));
}

TEST(PairMeter, KeepsToItsTimeOnASlowLink) {
  for (const double rate : {0.0001, 0.002, 0.02}) {  // 0.8, 16 and 160 Mbit/s
    ModelLink link;
    link.forward = link.backward = rate;
    const Duration limit = milliseconds(40);
    const MeterRun run = run_meter(link, limit);
    EXPECT_NEAR(*run.pair.forward_gb_per_second, rate, rate * 0.02);
    EXPECT_NEAR(*run.pair.backward_gb_per_second, rate, rate * 0.02);
    // At most the transfer in progress and the least one of the other direction beyond the limit.
    const auto least = std::chrono::duration<double>(65'536.0 / (rate * 1e9));
    EXPECT_LT(run.took, limit + 3 * std::chrono::duration_cast<Duration>(least)) << rate;
  }
}

TEST(PairMeter, WithoutAnyTimeItStillMeasuresOnceADirection) {
  const MeterRun run = run_meter({}, Duration{});
  EXPECT_EQ(run.transfers, 2U);
  EXPECT_TRUE(run.pair.forward_gb_per_second && run.pair.backward_gb_per_second && run.pair.latency_us);
  EXPECT_FALSE(run.pair.is_steady);
}

}  // namespace
}  // namespace sluice::topology
