#pragma once

// WanEstimator: what one directed WAN link carries, from what its receiver counted. Pure; not thread-safe: owned by the gateway loop.
// Time is passed in; never reads a clock. It outlives connections: whoever owns it keeps it while the link is down.
// "Not measured" is an absent value, never zero. Rates are bits per second of TCP payload (TLS included), counted at the receiver.
// REQUIRES: `now` never goes back.

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace sluice::topology {

enum class EstimateMethod : std::uint8_t {
  kNone = 0,     // nothing is known of the rate
  kBound = 1,    // transfers were too short or the sender too slow to fill the link: it carries at least this
  kPassive = 2,  // from transfers that filled it
  kProbe = 3,    // from an active probe
};
// "none", "bound", "passive", "probe".
std::string_view estimate_method_name(EstimateMethod method);

// Bytes that reached the receiver in a stretch of time, over all bulk connections of the link together.
struct GoodputSample {
  Duration length{};
  std::uint64_t bytes = 0;
  bool is_saturated = false;  // the sender had more to send all the while, so that the network set the pace
  bool is_probe = false;
};

struct RateEstimate {
  double low = 0.0;  // 25th percentile: what a controller may count on
  double p10 = 0.0;
  double p50 = 0.0;
  double p90 = 0.0;
};

struct RttEstimate {
  std::chrono::microseconds min{};
  std::chrono::microseconds p50{};
  std::chrono::microseconds p95{};
  std::chrono::microseconds jitter{};  // mean change from one sample to the next
};

struct LinkEstimate {
  std::optional<RateEstimate> rate;  // with kBound all four are the same number
  std::optional<RttEstimate> rtt;
  std::optional<double> loss;  // share of segments that had to be sent again
  EstimateMethod method = EstimateMethod::kNone;
  double confidence = 0.0;      // 0..1: enough windows, near each other, lately
  std::optional<Duration> age;  // since the last window of full use
  bool is_contradicted = false;  // the last windows say something else, but are too few to believe
  bool is_unknown = true;        // no transfer has filled the link yet
  bool is_stale = false;         // the last that did is long ago
  // Whether an active probe would tell something.
  [[nodiscard]] bool wants_probe() const { return is_unknown || is_stale || is_contradicted; }
};

class WanEstimator {
 public:
  void on_goodput(const GoodputSample& sample, TimePoint now);
  void on_rtt(std::chrono::microseconds rtt, TimePoint now);
  // Segments sent and sent again since the last call.
  void on_segments(std::uint64_t sent, std::uint64_t resent);

  [[nodiscard]] LinkEstimate estimate(TimePoint now) const;

 private:
  struct Window {
    double rate = 0.0;     // bits per second
    double seconds = 0.0;  // of full use
    bool is_probe = false;
    TimePoint at{};
  };
  // A stretch of full use. The ramp at its begin is dropped.
  struct Run {
    bool is_open = false;
    bool is_ramping = true;
    double last_rate = 0.0;
    double best_rate = 0.0;
    double seconds = 0.0;  // of the window being filled
    double bytes = 0.0;
    bool is_probe = false;
    int windows = 0;
  };
  // What a sender without a backlog sends.
  struct Idle {
    double seconds = 0.0;  // of the window being filled
    double bytes = 0.0;
    double last_rate = 0.0;  // of the window before
  };
  struct RttSample {
    std::chrono::microseconds rtt;
    TimePoint at;
  };

  [[nodiscard]] double window_seconds() const;
  void end_run(TimePoint now);
  void on_idle_sample(double seconds, double bytes);
  void on_window(double rate, double seconds, bool is_probe, TimePoint now);
  void keep(const Window& window);
  void look_for_change();
  void raise_bound(double rate);
  [[nodiscard]] double percentile(double share) const;

  Run run_;
  Idle idle_;
  std::deque<Window> windows_;     // of the present regime, oldest first
  std::vector<Window> deviating_;  // the last windows, all on one side of the regime
  double bound_ = 0.0;
  std::deque<RttSample> rtts_;
  std::optional<std::chrono::microseconds> rtt_floor_;
  double segments_sent_ = 0.0;
  double segments_resent_ = 0.0;
};

}  // namespace sluice::topology
