#pragma once

// Measuring what joins the ranks (training processes) of a site: which pairs in which order, how much each pair sends, when its figure is
// steady. Pure functions and value types, any thread; PairMeter is used by one thread at a time. Time is passed in. The shell that moves
// the bytes is site-agent/internal/site_prober.h; what becomes of the figures is in probe_graph.h.
//
// Of each pair the lower rank leads: it tells the other what comes next and holds the clock, so that what it times ends with bytes that
// have arrived. Bandwidth is in GB/s (10^9 bytes), latency (one way) in microseconds.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"

namespace sluice::topology {

struct ProbePair {
  RankId leader;
  RankId follower;
  bool operator==(const ProbePair&) const = default;
};

// Rounds of pairs, each to be done by all ranks before the next begins. In a round no machine is in two pairs: two pairs in one machine
// share its memory and its ports, and would measure that.
struct ProbeSchedule {
  std::vector<std::vector<ProbePair>> rounds;
  std::size_t pairs = 0;  // in all rounds
};

// Every pair of ranks within a machine, and one pair for every two machines. Machines and pairs inside them take turns, and every rank is
// met early, so that a schedule that is cut off has seen a bit of everything; at most `rounds_max` rounds.
// `machine_of` names the machine of each rank. The same input gives the same schedule at every rank.
ProbeSchedule plan_site_probe(std::span<const std::uint64_t> machine_of, std::size_t rounds_max);

enum class ProbeStep : std::uint32_t {
  kEnd = 0,
  kEcho = 1,     // an answer of kProbeAnswerBytes at once
  kSend = 2,     // `bytes` from the leader, then an answer
  kReceive = 3,  // `bytes` to the leader
};

struct ProbeCommand {
  ProbeStep step = ProbeStep::kEnd;
  std::uint32_t bytes = 0;
};

inline constexpr std::size_t kProbeCommandBytes = 8;
inline constexpr std::size_t kProbeAnswerBytes = 8;
// Largest transfer: 3 ms at 3 GB/s, what a good TCP connection carries.
inline constexpr std::uint32_t kProbeBytesMax = 8U << 20;

std::array<std::uint8_t, kProbeCommandBytes> write_probe_command(const ProbeCommand& command);
// Nothing when the step is unknown or its bytes are more than kProbeBytesMax.
std::optional<ProbeCommand> read_probe_command(std::span<const std::uint8_t, kProbeCommandBytes> bytes);

// What a pair has measured. Absent: not measured.
struct ProbedPair {
  RankId leader;
  RankId follower;
  std::optional<double> forward_gb_per_second;  // from the leader to the follower
  std::optional<double> backward_gb_per_second;
  std::optional<double> latency_us;
  bool is_steady = false;  // the last transfers of both directions agreed within kProbeSpread
};

inline constexpr double kProbeSpread = 0.10;

// Decides what a pair sends next. Echoes first; then, for each direction, transfers of four times the size until they take a few
// milliseconds (this ramp does not count), and at that size until three in a row agree.
class PairMeter {
 public:
  // `limit`: of the pair's time; at least one transfer a direction is made whatever it is.
  explicit PairMeter(Duration limit) : limit_(limit) {}

  // What comes next, `elapsed` after the pair began.
  ProbeCommand next(Duration elapsed);
  // How long the last command took, until what it moved had arrived. REQUIRES: next() has returned something else than kEnd.
  void add(Duration took);
  [[nodiscard]] ProbedPair result(RankId leader, RankId follower) const;

 private:
  struct Direction {
    std::uint32_t bytes = 0;
    int ramp_tries = 0;  // at this size
    bool is_ramp_over = false;
    bool is_done = false;
    bool is_steady = false;
    std::optional<double> ramp_rate;  // of the last transfer of the ramp, bytes per second
    std::vector<double> rates;
  };
  void begin(Direction& direction, Duration elapsed);
  void add_to(Direction& direction, double seconds);
  void grow(Direction& direction, double seconds) const;
  [[nodiscard]] double echo_seconds() const;
  [[nodiscard]] static std::optional<double> rate_of(const Direction& direction);

  Duration limit_;
  Duration direction_end_{};  // by `elapsed`
  Duration elapsed_{};
  ProbeCommand last_;
  std::vector<double> echoes_;  // seconds there and back
  Direction forward_;
  Direction backward_;
};

// What one rank says when the probe has ended for it: the pairs that it led.
struct ProbeReport {
  RankId rank;
  std::string machine;  // name of its machine
  std::vector<ProbedPair> pairs;
};

}  // namespace sluice::topology
