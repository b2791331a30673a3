#include "site-agent/internal/site_prober.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/hash.h"
#include "site-agent/limits.h"

namespace sluice::site_agent {
namespace {

using topology::PairMeter;
using topology::ProbeCommand;
using topology::ProbeStep;

using CommandBytes = std::array<std::uint8_t, topology::kProbeCommandBytes>;

class SiteProber {
 public:
  SiteProber(sync::Collectives& group, const std::string& machine, Duration window) : group_(group), begin_(Clock::now()), window_(window) {
    probe_.report.rank = group.rank();
    probe_.report.machine = machine;
  }

  SiteProbe run() {
    const Status status = measure();
    if (!status) probe_.failure = status.error();
    probe_.elapsed = Clock::now() - begin_;
    return std::move(probe_);
  }

 private:
  Status measure() {
    std::vector<std::int64_t> names(group_.ranks(), 0);
    const std::string& machine = probe_.report.machine;
    const std::uint64_t hash = xxh3_64(ByteSpan(reinterpret_cast<const std::uint8_t*>(machine.data()), machine.size()));
    names[group_.rank().value] = static_cast<std::int64_t>(hash >> 1U);
    SLUICE_CHECK_OK(group_.all_reduce(std::span(names), sync::ReduceOp::kSum, time_left()));
    const std::vector<std::uint64_t> machine_of(names.begin(), names.end());
    const topology::ProbeSchedule schedule = topology::plan_site_probe(machine_of, kProbeRoundsMax);
    probe_.pairs_planned = schedule.pairs;
    for (std::size_t round = 0; round < schedule.rounds.size(); ++round) {
      const Duration elapsed = Clock::now() - begin_;
      const auto rounds_left = static_cast<std::int64_t>(schedule.rounds.size() - round);
      // Nobody begins a round before all have ended the last one, and all see alike whether there is time for it.
      std::array<std::int64_t, 1> least = {elapsed < window_ ? 1 : 0};
      SLUICE_CHECK_OK(group_.all_reduce(std::span<std::int64_t>(least), sync::ReduceOp::kMin, time_left()));
      if (least[0] == 0) {
        probe_.is_cut = true;
        return {};
      }
      const Duration share = (window_ - elapsed) / rounds_left;
      for (const topology::ProbePair& pair : schedule.rounds[round]) {
        if (pair.leader == group_.rank())
          SLUICE_CHECK_OK(lead(pair.follower, std::clamp<Duration>(share, kProbePairTimeMin, kProbePairTimeMax)));
        if (pair.follower == group_.rank()) SLUICE_CHECK_OK(follow(pair.leader));
      }
    }
    return {};
  }

  Status lead(RankId peer, Duration limit) {
    PairMeter meter(limit);
    const TimePoint begin = Clock::now();
    while (true) {
      const ProbeCommand command = meter.next(Clock::now() - begin);
      prepare(command.bytes);
      const TimePoint sent = Clock::now();
      const CommandBytes bytes = topology::write_probe_command(command);
      SLUICE_CHECK_OK(group_.exchange(peer, bytes, {}, time_left()));
      if (command.step == ProbeStep::kEnd) break;
      if (command.step == ProbeStep::kSend) SLUICE_CHECK_OK(group_.exchange(peer, data(command.bytes), {}, time_left()));
      const bool is_answer = command.step != ProbeStep::kReceive;
      SLUICE_CHECK_OK(group_.exchange(peer, {}, is_answer ? std::span<std::uint8_t>(answer_) : data(command.bytes), time_left()));
      meter.add(Clock::now() - sent);
    }
    probe_.report.pairs.push_back(meter.result(group_.rank(), peer));
    return {};
  }

  Status follow(RankId leader) {
    for (int commands = 0; commands < kProbeCommandsMax; ++commands) {
      CommandBytes bytes{};
      SLUICE_CHECK_OK(group_.exchange(leader, {}, bytes, time_left()));
      const auto command = topology::read_probe_command(bytes);
      if (!command) return fail(ErrorCode::kAgentProtocol, "probe site", fmt::format("rank {} sent no command", leader));
      if (command->step == ProbeStep::kEnd) return {};
      prepare(command->bytes);
      if (command->step == ProbeStep::kSend) SLUICE_CHECK_OK(group_.exchange(leader, {}, data(command->bytes), time_left()));
      const bool is_answer = command->step != ProbeStep::kReceive;
      SLUICE_CHECK_OK(group_.exchange(leader, is_answer ? ByteSpan(answer_) : ByteSpan(data(command->bytes)), {}, time_left()));
    }
    return fail(ErrorCode::kAgentProtocol, "probe site", fmt::format("rank {} does not end", leader));
  }

  void prepare(std::size_t bytes) {
    if (data_.size() < bytes) data_.resize(bytes);
  }
  std::span<std::uint8_t> data(std::size_t bytes) { return std::span(data_).first(bytes); }
  // Until twice the window: what takes longer is broken.
  [[nodiscard]] Duration time_left() const { return std::max<Duration>(begin_ + 2 * window_ - Clock::now(), std::chrono::milliseconds(1)); }

  sync::Collectives& group_;
  TimePoint begin_;
  Duration window_;
  SiteProbe probe_;
  ByteVector data_;  // zeros: nothing on the way inside a site compresses
  std::array<std::uint8_t, topology::kProbeAnswerBytes> answer_{};
};

}  // namespace

SiteProbe probe_site(sync::Collectives& group, const std::string& machine, Duration window) {
  return SiteProber(group, machine, window).run();
}

}  // namespace sluice::site_agent
