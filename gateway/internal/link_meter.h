#pragma once

// Measures one link while real frames cross it. As receiver it turns the byte counters into reports for the sender; as sender it joins the
// receiver's reports with what it knows of its own backlog and feeds the estimator. Pure bookkeeping: time is passed in. Not thread-safe:
// owned by the loop.
//
// Bytes that a report counts left the sender about one round trip before the report came back. They tell the link's rate when nearly all
// connections had more to send at that time; otherwise the sender, not the network, set the pace.

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "base/clock.h"
#include "gateway/internal/tcp_sample.h"
#include "topology/wan_estimator.h"

namespace sluice::gateway::internal {

inline constexpr std::chrono::milliseconds kMeterInterval{50};

// One bulk connection, looked at on its thread.
struct StreamSample {
  TcpSample tcp;
  bool has_backlog = false;  // something waits here or in the kernel
};

struct GoodputReport {
  Duration elapsed{};
  std::uint64_t bytes = 0;
};

class LinkMeter {
 public:
  // ---- as sender ----
  void on_sample(std::uint64_t connection, const StreamSample& sample);
  void on_stream_closed(std::uint64_t connection) { streams_.erase(connection); }
  // Once an interval while frames are on their way: remembers whether the connections had a backlog, as last sampled.
  void note_backlog(std::size_t open_streams, TimePoint now);
  void on_report(const GoodputReport& report, TimePoint now);
  void on_rtt(std::chrono::microseconds rtt, TimePoint now);
  void set_probing(bool is_probing) { is_probing_ = is_probing; }

  // ---- as receiver ----
  // `received_total`: bytes of all bulk connections since start. A report while bytes flow, nothing when all is quiet.
  std::optional<GoodputReport> take_report(std::uint64_t received_total, TimePoint now);
  [[nodiscard]] bool is_quiet() const { return quiet_intervals_ >= kQuietIntervals; }

  [[nodiscard]] topology::LinkEstimate estimate(TimePoint now) const { return estimator_.estimate(now); }

 private:
  static constexpr int kQuietIntervals = 10;

  struct Stream {
    std::optional<StreamSample> last;
  };
  struct Backlog {
    TimePoint at;
    bool is_full = false;  // nearly all connections had one
  };

  [[nodiscard]] bool was_saturated(TimePoint from, TimePoint to) const;

  topology::WanEstimator estimator_;
  std::map<std::uint64_t, Stream> streams_;
  std::deque<Backlog> backlogs_;
  std::chrono::microseconds heartbeat_rtt_{};
  bool is_probing_ = false;

  std::optional<std::uint64_t> counted_;  // received_total at the last report
  TimePoint counted_at_{};
  int quiet_intervals_ = kQuietIntervals;
  bool has_flowed_ = false;  // since the last quiet time: control messages and acknowledgements alone are not reported
};

}  // namespace sluice::gateway::internal
