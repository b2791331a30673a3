#include "gateway/internal/link_meter.h"

#include <algorithm>

namespace sluice::gateway::internal {
namespace {

// Long enough for a report that took seconds through a full queue.
constexpr std::chrono::seconds kBacklogMemory{10};
// Control messages alone are no transfer.
constexpr std::uint64_t kTransferBytesMin = 4096;
// Reports with other lengths come of a peer that was held up, or of a broken one.
constexpr std::chrono::seconds kReportLengthMax{5};

}  // namespace

void LinkMeter::on_sample(std::uint64_t connection, const StreamSample& sample) {
  Stream& stream = streams_[connection];
  if (stream.last && sample.tcp.segments_sent >= stream.last->tcp.segments_sent) {
    const std::uint64_t resent = sample.tcp.segments_resent - std::min(sample.tcp.segments_resent, stream.last->tcp.segments_resent);
    estimator_.on_segments(sample.tcp.segments_sent - stream.last->tcp.segments_sent, resent);
  }
  stream.last = sample;
}

void LinkMeter::note_backlog(std::size_t open_streams, TimePoint now) {
  const auto has_backlog = [](const auto& entry) { return entry.second.last && entry.second.last->has_backlog; };
  const auto with_backlog = static_cast<std::size_t>(std::count_if(streams_.begin(), streams_.end(), has_backlog));
  // A connection may run dry for a moment because its neighbours took the next frame.
  backlogs_.push_back({now, open_streams > 0 && 4 * with_backlog >= 3 * open_streams});
  while (now - backlogs_.front().at > kBacklogMemory) backlogs_.pop_front();
}

bool LinkMeter::was_saturated(TimePoint from, TimePoint to) const {
  bool is_any = false;
  for (const Backlog& backlog : backlogs_) {
    if (backlog.at < from || backlog.at > to) continue;
    if (!backlog.is_full) return false;
    is_any = true;
  }
  return is_any;
}

void LinkMeter::on_report(const GoodputReport& report, TimePoint now) {
  if (report.elapsed <= Duration{} || report.elapsed > kReportLengthMax) return;
  std::chrono::microseconds rtt = heartbeat_rtt_;
  for (const auto& [connection, stream] : streams_) {
    if (stream.last) rtt = std::max(rtt, stream.last->tcp.rtt);
  }
  topology::GoodputSample sample;
  sample.length = report.elapsed;
  sample.bytes = report.bytes;
  sample.is_saturated = was_saturated(now - report.elapsed - rtt - kMeterInterval, now - rtt);
  sample.is_probe = is_probing_;
  estimator_.on_goodput(sample, now);
}

void LinkMeter::on_rtt(std::chrono::microseconds rtt, TimePoint now) {
  heartbeat_rtt_ = rtt;
  estimator_.on_rtt(rtt, now);
}

std::optional<GoodputReport> LinkMeter::take_report(std::uint64_t received_total, TimePoint now) {
  const Duration elapsed = now - counted_at_;
  // Woken after a quiet time: the count begins here.
  const bool begins = !counted_ || (is_quiet() && elapsed > 4 * kMeterInterval);
  const std::uint64_t bytes = begins ? 0 : received_total - std::min(*counted_, received_total);
  counted_ = received_total;
  counted_at_ = now;
  if (begins) {
    quiet_intervals_ = 0;
    has_flowed_ = false;
    return std::nullopt;
  }
  const bool flows = bytes >= kTransferBytesMin;
  quiet_intervals_ = flows ? 0 : std::min(quiet_intervals_ + 1, kQuietIntervals);
  has_flowed_ = (has_flowed_ || flows) && !is_quiet();
  return has_flowed_ ? std::optional(GoodputReport{elapsed, bytes}) : std::nullopt;
}

}  // namespace sluice::gateway::internal
