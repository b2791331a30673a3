// The order of pairs is that of a round-robin tournament by the circle method: one player stays, the others move on by one place a round;
// in each round everybody meets somebody else. Between machines a round of the tournament is one round of the schedule. Within a machine
// its pairs are taken one by one in the tournament's order, all machines at the same time.
//
// A rate is bytes over what the transfer took beyond the shortest echo: the command and the answer cost a round trip whatever the size. A
// longer echo may have waited for a processor, and taking off too much makes a link look better than it is.

#include "topology/site_probe.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/assert.h"

namespace sluice::topology {
namespace {

constexpr std::size_t kEchoes = 12;
constexpr std::size_t kEchoesDropped = 4;  // the first ones wake threads and fill caches
constexpr std::uint32_t kFirstBytes = 64U << 10;
constexpr std::uint32_t kGrowth = 4;
// Long enough that waking a thread (some 50 us) is a few percent of it.
constexpr double kSampleSeconds = 0.002;
constexpr int kRampTries = 3;
constexpr std::size_t kSteadySamples = 3;
constexpr std::size_t kSamplesMax = 9;
// Of a transfer's time, at least this share is taken for the transfer when an echo took as long as all of it.
constexpr double kTransferShareMin = 0.1;

double to_seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

double median_of(std::vector<double> values) {
  SLUICE_ASSERT(!values.empty());
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<double> last_of(const std::vector<double>& values, std::size_t count) {
  return {values.end() - static_cast<std::ptrdiff_t>(std::min(count, values.size())), values.end()};
}

// Calls visit(round, left, right) for the rounds of a tournament of `players` until it returns false. left < right.
template <typename Visit>
void visit_tournament(std::size_t players, Visit&& visit) {
  const std::size_t seats = players + players % 2;  // with an odd number one sits out
  for (std::size_t round = 0; round + 1 < seats; ++round) {
    for (std::size_t place = 0; place < seats / 2; ++place) {
      const auto player_at = [&](std::size_t seat) { return seat == 0 ? 0 : (seat - 1 + round) % (seats - 1) + 1; };
      const auto [left, right] = std::minmax({player_at(place), player_at(seats - 1 - place)});
      if (right < players && !visit(round, left, right)) return;
    }
  }
}

ProbePair make_pair(RankId one, RankId other) { return one < other ? ProbePair{one, other} : ProbePair{other, one}; }

using Rounds = std::vector<std::vector<ProbePair>>;

// Round n: the n-th pair of each machine.
Rounds rounds_within(const std::vector<std::vector<RankId>>& machines, std::size_t rounds_max) {
  Rounds rounds;
  for (const std::vector<RankId>& ranks : machines) {
    std::size_t next = 0;
    visit_tournament(ranks.size(), [&](std::size_t, std::size_t left, std::size_t right) {
      if (next >= rounds_max) return false;
      if (next == rounds.size()) rounds.emplace_back();
      rounds[next++].push_back(make_pair(ranks[left], ranks[right]));
      return true;
    });
  }
  return rounds;
}

// One pair for every two machines; the ranks that stand for a machine take turns.
Rounds rounds_between(const std::vector<std::vector<RankId>>& machines, std::size_t rounds_max) {
  Rounds rounds;
  visit_tournament(machines.size(), [&](std::size_t round, std::size_t left, std::size_t right) {
    if (round >= rounds_max) return false;
    if (round >= rounds.size()) rounds.resize(round + 1);
    rounds[round].push_back(make_pair(machines[left][round % machines[left].size()], machines[right][round % machines[right].size()]));
    return true;
  });
  return rounds;
}

}  // namespace

ProbeSchedule plan_site_probe(std::span<const std::uint64_t> machine_of, std::size_t rounds_max) {
  std::vector<std::vector<RankId>> machines;
  std::map<std::uint64_t, std::size_t> numbers;
  for (std::size_t rank = 0; rank < machine_of.size(); ++rank) {
    const auto [known, is_new] = numbers.emplace(machine_of[rank], machines.size());
    if (is_new) machines.emplace_back();
    machines[known->second].emplace_back(static_cast<std::uint32_t>(rank));
  }
  Rounds within = rounds_within(machines, rounds_max);
  Rounds between = rounds_between(machines, rounds_max);
  ProbeSchedule schedule;
  for (std::size_t index = 0; index < std::max(within.size(), between.size()); ++index) {
    for (Rounds* rounds : {&within, &between}) {
      if (index >= rounds->size() || schedule.rounds.size() >= rounds_max) continue;
      schedule.pairs += (*rounds)[index].size();
      schedule.rounds.push_back(std::move((*rounds)[index]));
    }
  }
  return schedule;
}

std::array<std::uint8_t, kProbeCommandBytes> write_probe_command(const ProbeCommand& command) {
  std::array<std::uint8_t, kProbeCommandBytes> bytes{};
  std::memcpy(bytes.data(), &command.step, 4);
  std::memcpy(bytes.data() + 4, &command.bytes, 4);
  return bytes;
}

std::optional<ProbeCommand> read_probe_command(std::span<const std::uint8_t, kProbeCommandBytes> bytes) {
  std::uint32_t step = 0;
  ProbeCommand command;
  std::memcpy(&step, bytes.data(), 4);
  std::memcpy(&command.bytes, bytes.data() + 4, 4);
  if (step > static_cast<std::uint32_t>(ProbeStep::kReceive) || command.bytes > kProbeBytesMax) return std::nullopt;
  command.step = static_cast<ProbeStep>(step);
  return command;
}

// ---- one pair ----

double PairMeter::echo_seconds() const {
  const std::size_t dropped = std::min(kEchoesDropped, echoes_.size() / 2);
  return echoes_.empty() ? 0.0 : median_of({echoes_.begin() + static_cast<std::ptrdiff_t>(dropped), echoes_.end()});
}

void PairMeter::begin(Direction& direction, Duration elapsed) {
  direction.bytes = kFirstBytes;
  // The second direction has what the first one left.
  const Duration left = std::max(limit_ - elapsed, Duration::zero());
  direction_end_ = elapsed + (&direction == &forward_ ? left / 2 : left);
}

ProbeCommand PairMeter::next(Duration elapsed) {
  elapsed_ = elapsed;
  if (echoes_.size() < kEchoes && (echoes_.empty() || elapsed < limit_ / 4)) return last_ = {ProbeStep::kEcho, 0};
  for (Direction* direction : {&forward_, &backward_}) {
    if (direction->is_done) continue;
    if (direction->bytes == 0) begin(*direction, elapsed);
    const bool has_any = direction->ramp_rate || !direction->rates.empty();
    if (has_any && elapsed >= direction_end_) {
      direction->is_done = true;
      continue;
    }
    return last_ = {direction == &forward_ ? ProbeStep::kSend : ProbeStep::kReceive, direction->bytes};
  }
  return last_ = {};
}

void PairMeter::add(Duration took) {
  SLUICE_ASSERT(last_.step != ProbeStep::kEnd);
  const double seconds = std::max(to_seconds(took), 1e-9);
  if (last_.step == ProbeStep::kEcho) {
    echoes_.push_back(seconds);
  } else {
    add_to(last_.step == ProbeStep::kSend ? forward_ : backward_, seconds);
  }
}

void PairMeter::add_to(Direction& direction, double seconds) {
  const double shortest = echoes_.empty() ? 0.0 : *std::min_element(echoes_.begin(), echoes_.end());
  const double transfer = std::max(seconds - shortest, seconds * kTransferShareMin);
  const double rate = static_cast<double>(direction.bytes) / transfer;
  if (!direction.is_ramp_over) {
    direction.ramp_rate = rate;
    grow(direction, transfer);
    return;
  }
  direction.rates.push_back(rate);
  const std::vector<double> last = last_of(direction.rates, kSteadySamples);
  const auto [least, most] = std::minmax_element(last.begin(), last.end());
  direction.is_steady = last.size() == kSteadySamples && *most - *least <= kProbeSpread * median_of(last);
  direction.is_done = direction.is_steady || direction.rates.size() >= kSamplesMax;
}

// A size is left when a transfer of it was short. One that was long may only have met a busy processor: it is tried again.
void PairMeter::grow(Direction& direction, double seconds) const {
  const bool has_time = to_seconds(direction_end_ - elapsed_) > seconds * (1 + kGrowth * static_cast<double>(kSteadySamples));
  ++direction.ramp_tries;
  if (direction.bytes >= kProbeBytesMax || !has_time) {
    direction.is_ramp_over = true;
  } else if (seconds < kSampleSeconds) {
    direction.bytes = std::min(direction.bytes * kGrowth, kProbeBytesMax);
    direction.ramp_tries = 0;
  } else {
    direction.is_ramp_over = direction.ramp_tries >= kRampTries;
  }
}

std::optional<double> PairMeter::rate_of(const Direction& direction) {
  if (direction.rates.empty()) return direction.ramp_rate;
  // The later half where it never settled: what still grew is in the first.
  const std::size_t count = direction.is_steady ? kSteadySamples : (direction.rates.size() + 1) / 2;
  return median_of(last_of(direction.rates, count));
}

ProbedPair PairMeter::result(RankId leader, RankId follower) const {
  ProbedPair pair;
  pair.leader = leader;
  pair.follower = follower;
  const auto to_gb = [](std::optional<double> rate) { return rate ? std::optional(*rate / 1e9) : std::nullopt; };
  pair.forward_gb_per_second = to_gb(rate_of(forward_));
  pair.backward_gb_per_second = to_gb(rate_of(backward_));
  if (!echoes_.empty()) pair.latency_us = echo_seconds() / 2 * 1e6;
  pair.is_steady = forward_.is_steady && backward_.is_steady;
  return pair;
}

}  // namespace sluice::topology
