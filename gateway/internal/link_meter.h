#pragma once

// Measures one link while real frames cross it. As receiver it turns the byte counters into reports for the sender; as sender it joins the
// receiver's reports with what it knows of its own backlog and feeds the estimator. Pure bookkeeping: time is passed in. Not thread-safe:
// owned by the loop.
//
// Bytes are counted where the kernel has them, so that a process that is held up does not make bursts of them. What a report counts left
// the sender about one round trip before the report came back. It tells the link's rate when the connections had more to send at that time
// than they sent; otherwise the sender, not the network, set the pace.
//
// Behind a lost segment the receiver's kernel holds what comes after it, up to several round trips' worth, and its reader gets all of that
// at one moment. The sender's kernel knows how much is held (selective acknowledgements travel as long as a report does), so the bytes
// that reached the other side in a report's time are those that it counts and what is held more than before.
//
// A short burst is on the wire before the link has carried it: the sender has nothing more, and yet the network sets the pace, as long as
// clearly more is in flight than the link holds without a queue. Such a draining burst tells the rate, too.

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "gateway/internal/tcp_sample.h"
#include "topology/wan_estimator.h"

namespace sluice::gateway::internal {

inline constexpr std::chrono::milliseconds kMeterInterval{50};

// One bulk connection, looked at on its thread.
struct StreamSample {
  TcpSample tcp;
  std::size_t waiting_bytes = 0;  // given to the connection and not yet on the wire, those in the kernel too
  TimePoint at{};
  bool is_for_report = false;  // asked for by a report rather than by the clock
};

struct GoodputReport {
  Duration elapsed{};
  std::uint64_t bytes = 0;
};

class LinkMeter {
 public:
  // ---- as sender ----
  // It counts once the next report is there. Afterwards the caller samples all connections for it, so that both speak of the same moment.
  void on_report(const GoodputReport& report, TimePoint now);
  void on_rtt(std::chrono::microseconds rtt, TimePoint now);
  void set_probing(bool is_probing) { is_probing_ = is_probing; }

  // ---- as both ----
  // Frames begin to go or come. Then once an interval until is_quiet() and nothing is sent: the caller begins a turn, samples all these
  // connections, and ends the turn when on_sample() says that it was the last. False from begin_turn() when there is nothing to sample, or
  // a connection has not answered yet.
  void wake();
  bool begin_turn(const std::vector<std::uint64_t>& connections);
  bool on_sample(std::uint64_t connection, const StreamSample& sample);
  void on_stream_closed(std::uint64_t connection);
  // `queued_bytes`: waiting for a connection. For the other side: a report while bytes come, nothing when all is quiet.
  std::optional<GoodputReport> end_turn(std::size_t queued_bytes);
  [[nodiscard]] bool is_quiet() const { return quiet_intervals_ >= kQuietIntervals; }

  [[nodiscard]] topology::LinkEstimate estimate(TimePoint now) const { return estimator_.estimate(now); }

 private:
  static constexpr int kQuietIntervals = 10;

  struct Stream {
    std::optional<StreamSample> last;     // of the turns
    std::uint64_t held_bytes = 0;         // when the last report came; so are the next two
    std::uint64_t outstanding_bytes = 0;  // waiting or in flight
    std::chrono::microseconds rtt_min{};
    bool is_awaited = false;  // in the present turn
  };
  // What the sampled connections had together.
  struct Turn {
    TimePoint at{};
    std::uint64_t waiting_bytes = 0;
    bool has_backlog = false;  // nearly all of them
  };
  // Between two turns.
  struct Stretch {
    TimePoint from;
    TimePoint to;
    bool is_full = false;  // nearly all connections had more to send all the while
  };

  struct Report {
    topology::GoodputSample sample;
    TimePoint sent_from;
    TimePoint sent_to;
  };

  [[nodiscard]] bool is_turn_complete() const;
  void note_stretch(const Turn& turn);
  std::optional<GoodputReport> take_report(TimePoint now);
  [[nodiscard]] bool was_saturated(TimePoint from, TimePoint to) const;
  [[nodiscard]] bool was_draining(const topology::GoodputSample& sample, std::uint64_t outstanding) const;
  void settle_report(TimePoint now);

  topology::WanEstimator estimator_;
  std::map<std::uint64_t, Stream> streams_;
  std::uint64_t sent_total_ = 0;  // of all connections there are and were, as sampled
  std::uint64_t received_total_ = 0;
  std::optional<Turn> turn_;     // the last one
  std::uint64_t turn_sent_ = 0;  // sent_total_ then
  std::deque<Stretch> stretches_;
  std::optional<Report> report_;         // the last one, until what is held is known, and the turns up to then
  std::uint64_t held_bytes_ = 0;         // at the report before it
  std::uint64_t outstanding_bytes_ = 0;  // likewise
  std::chrono::microseconds heartbeat_rtt_{};
  bool is_probing_ = false;

  std::optional<std::uint64_t> counted_;  // received_total_ at the last report
  TimePoint counted_at_{};
  int quiet_intervals_ = kQuietIntervals;
  bool has_flowed_ = false;  // since the last quiet time: control messages and acknowledgements alone are not reported
};

}  // namespace sluice::gateway::internal
