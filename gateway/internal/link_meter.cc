#include "gateway/internal/link_meter.h"

#include <algorithm>
#include <utility>

namespace sluice::gateway::internal {
namespace {

// Long enough for a report that took seconds through a full queue.
constexpr std::chrono::seconds kBacklogMemory{10};
// Control messages alone are no transfer.
constexpr std::uint64_t kTransferBytesMin = 4096;
// Reports with other lengths come of a peer that was held up, or of a broken one.
constexpr std::chrono::seconds kReportLengthMax{5};
// In flight over what the path holds at the rate seen: a queue stands. Delayed acknowledgements of a few segments are none.
constexpr double kQueueFactor = 1.25;
constexpr double kAcknowledgedLateBytes = 12'000.0;

}  // namespace

void LinkMeter::wake() {
  if (!is_quiet()) return;
  quiet_intervals_ = 0;
  has_flowed_ = false;
  counted_.reset();
}

bool LinkMeter::begin_turn(const std::vector<std::uint64_t>& connections) {
  if (connections.empty() || std::ranges::any_of(streams_, [](const auto& entry) { return entry.second.is_awaited; })) return false;
  for (const std::uint64_t connection : connections) streams_[connection].is_awaited = true;
  return true;
}

bool LinkMeter::is_turn_complete() const {
  const auto is_awaited = [](const auto& entry) { return entry.second.is_awaited; };
  return !streams_.empty() && std::ranges::none_of(streams_, is_awaited);
}

bool LinkMeter::on_sample(std::uint64_t connection, const StreamSample& sample) {
  Stream& stream = streams_[connection];
  if (sample.is_for_report) {
    stream.held_bytes = sample.tcp.held_bytes;
    stream.outstanding_bytes = sample.waiting_bytes + sample.tcp.in_flight_bytes;
    stream.rtt_min = sample.tcp.rtt_min;
    return false;
  }
  const auto grown = [](std::uint64_t before, std::uint64_t now) { return now - std::min(before, now); };
  const TcpSample before = stream.last ? stream.last->tcp : TcpSample{};
  if (stream.last) {
    const std::uint64_t resent = grown(before.segments_resent, sample.tcp.segments_resent);
    estimator_.on_segments(grown(before.segments_sent, sample.tcp.segments_sent), resent);
  }
  sent_total_ += grown(before.sent_bytes, sample.tcp.sent_bytes);
  received_total_ += grown(before.received_bytes, sample.tcp.received_bytes);
  stream.last = sample;
  return std::exchange(stream.is_awaited, false) && is_turn_complete();
}

void LinkMeter::on_stream_closed(std::uint64_t connection) {
  const auto stream = streams_.find(connection);
  if (stream == streams_.end()) return;
  held_bytes_ -= std::min(held_bytes_, stream->second.held_bytes);
  streams_.erase(stream);
}

std::optional<GoodputReport> LinkMeter::end_turn(std::size_t queued_bytes) {
  Turn turn;
  turn.waiting_bytes = queued_bytes;
  std::size_t sampled = 0;
  std::size_t with_backlog = 0;
  Duration since_first{};
  TimePoint first{};
  for (const auto& [connection, stream] : streams_) {
    if (!stream.last) continue;
    if (sampled == 0) first = stream.last->at;
    ++sampled;
    since_first += stream.last->at - first;
    turn.waiting_bytes += stream.last->waiting_bytes;
    with_backlog += stream.last->waiting_bytes > 0 ? 1 : 0;
  }
  if (sampled == 0) return std::nullopt;
  turn.at = first + since_first / static_cast<Duration::rep>(sampled);
  // A connection may run dry for a moment because its neighbours took the next frame.
  turn.has_backlog = 4 * with_backlog >= 3 * sampled;
  note_stretch(turn);
  return take_report(turn.at);
}

// The connections had more to send all the while when what waited at the begin was more than what went out, and something waits at the end.
void LinkMeter::note_stretch(const Turn& turn) {
  if (turn_ && turn.at > turn_->at) {
    const bool is_full = turn_->has_backlog && turn.has_backlog && turn_->waiting_bytes >= sent_total_ - turn_sent_;
    stretches_.push_back({turn_->at, turn.at, is_full});
    while (turn.at - stretches_.front().to > kBacklogMemory) stretches_.pop_front();
  }
  turn_ = turn;
  turn_sent_ = sent_total_;
}

// False also when nothing is known of a part of that time.
bool LinkMeter::was_saturated(TimePoint from, TimePoint to) const {
  TimePoint known_from = from;
  for (const Stretch& stretch : stretches_) {
    if (stretch.to <= known_from || stretch.from > to) continue;
    if (!stretch.is_full || stretch.from > known_from) return false;
    known_from = stretch.to;
  }
  return known_from >= to;
}

void LinkMeter::on_report(const GoodputReport& report, TimePoint now) {
  if (report.elapsed <= Duration{} || report.elapsed > kReportLengthMax) return;
  settle_report(now);
  std::chrono::microseconds rtt = heartbeat_rtt_;
  for (const auto& [connection, stream] : streams_) {
    if (stream.last) rtt = std::max(rtt, stream.last->tcp.rtt);
  }
  topology::GoodputSample sample;
  sample.length = report.elapsed;
  sample.bytes = report.bytes;
  sample.is_probe = is_probing_;
  // Queues make the round trip longer, and not the same for all: the bytes left between these two times.
  report_ = Report{sample, now - report.elapsed - rtt, now - (heartbeat_rtt_.count() > 0 ? std::min(heartbeat_rtt_, rtt) : rtt)};
}

// Whether what came in the report's time came out of a queue in the network: nearly nothing was added to what was under way before, and
// what was still under way afterwards is more than the path holds at this rate. A sender that adds as much as arrives sets its own pace,
// however long the queues are that others have made.
bool LinkMeter::was_draining(const topology::GoodputSample& sample, std::uint64_t outstanding) const {
  std::chrono::microseconds rtt_min{};
  for (const auto& [connection, stream] : streams_) {
    if (stream.rtt_min.count() > 0 && (rtt_min.count() == 0 || stream.rtt_min < rtt_min)) rtt_min = stream.rtt_min;
  }
  if (rtt_min.count() == 0 || sample.bytes < kTransferBytesMin) return false;
  if (outstanding + sample.bytes > outstanding_bytes_ + sample.bytes / 4) return false;
  const double held_by_path = static_cast<double>(sample.bytes) * (std::chrono::duration<double>(rtt_min) / sample.length);
  return static_cast<double>(outstanding) > kQueueFactor * held_by_path + kAcknowledgedLateBytes;
}

void LinkMeter::settle_report(TimePoint now) {
  if (!report_) return;
  std::uint64_t held = 0;
  std::uint64_t outstanding = 0;
  for (const auto& [connection, stream] : streams_) {
    held += stream.held_bytes;
    outstanding += stream.outstanding_bytes;
  }
  topology::GoodputSample& sample = report_->sample;
  const std::uint64_t arrived = sample.bytes + held;
  sample.bytes = arrived - std::min(held_bytes_, arrived);
  // What waits behind a lost segment, and what it lets go, is not the pace of the link: then only a sender's backlog tells.
  const bool is_in_order = held == 0 && held_bytes_ == 0;
  sample.is_saturated = was_saturated(report_->sent_from, report_->sent_to) || (is_in_order && was_draining(sample, outstanding));
  held_bytes_ = held;
  outstanding_bytes_ = outstanding;
  estimator_.on_goodput(sample, now);
  report_.reset();
}

void LinkMeter::on_rtt(std::chrono::microseconds rtt, TimePoint now) {
  heartbeat_rtt_ = rtt;
  estimator_.on_rtt(rtt, now);
}

std::optional<GoodputReport> LinkMeter::take_report(TimePoint now) {
  const Duration elapsed = now - counted_at_;
  // Woken after a quiet time: the count begins here.
  const bool begins = !counted_;
  const std::uint64_t bytes = begins ? 0 : received_total_ - std::min(*counted_, received_total_);
  counted_ = received_total_;
  counted_at_ = now;
  if (begins) return std::nullopt;
  const bool flows = bytes >= kTransferBytesMin;
  quiet_intervals_ = flows ? 0 : std::min(quiet_intervals_ + 1, kQuietIntervals);
  has_flowed_ = (has_flowed_ || flows) && !is_quiet();
  return has_flowed_ ? std::optional(GoodputReport{elapsed, bytes}) : std::nullopt;
}

}  // namespace sluice::gateway::internal
