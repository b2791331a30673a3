#include "gateway/internal/record_stream.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <google/protobuf/message_lite.h>
#include <asio/post.hpp>

#include "base/assert.h"
#include "gateway/limits.h"

namespace sluice::gateway::internal {
namespace {

// What one read turn decrypts into before the parser copies it on; stays in the cache. One for each io thread.
std::uint8_t* scratch() {
  thread_local ByteVector buffer(4 * kReadChunkBytes);
  return buffer.data();
}
constexpr std::size_t kScratchBytes = 4 * kReadChunkBytes;

}  // namespace

OutgoingRecord control_record(const google::protobuf::MessageLite& message) {
  OutgoingRecord record;
  const std::size_t bytes = message.ByteSizeLong();
  SLUICE_ASSERT(bytes <= wire::kControlBytesMax, "a control message of {} bytes", bytes);
  record.head.resize(wire::kRecordHeaderBytes + bytes);
  wire::write_record_header({static_cast<std::uint32_t>(bytes), wire::RecordType::kControl}, record.head.data());
  const bool written = message.SerializeToArray(record.head.data() + wire::kRecordHeaderBytes, static_cast<int>(bytes));
  SLUICE_ASSERT(written, "serialise {}", message.GetTypeName());
  return record;
}

OutgoingRecord frame_record(const FrameRecord& frame) {
  SLUICE_ASSERT(frame.frame != nullptr && frame.bytes() <= wire::kFrameRecordBytesMax, "a frame of {} bytes",
                frame.frame ? frame.frame->size() : 0);
  OutgoingRecord record;
  record.head.resize(wire::kRecordHeaderBytes + wire::kFrameEnvelopeBytes);
  wire::write_record_header({static_cast<std::uint32_t>(frame.bytes()), wire::RecordType::kFrame}, record.head.data());
  wire::write_frame_envelope(frame.envelope, record.head.data() + wire::kRecordHeaderBytes);
  record.body = frame.frame;
  return record;
}

RecordStream::RecordStream(asio::io_context& context, std::unique_ptr<Channel> channel, bool takes_frames,
                           std::shared_ptr<RateLimiter> limiter)
    : context_(context),
      channel_(std::move(channel)),
      limiter_(std::move(limiter)),
      timer_(context),
      finish_timer_(context),
      parser_(wire::kControlBytesMax, takes_frames) {}

void RecordStream::open() {
  SLUICE_ASSERT(!is_open_);
  is_open_ = true;
  channel_->enlarge_read_buffer();
  readiness_.emplace(context_, channel_->fd());
  on_open();
  read_turn();
  write_turn();
}

void RecordStream::send(OutgoingRecord record) {
  if (is_closed_ || is_finishing_) return;
  queue_bytes_ += record.bytes();
  queue_.push_back(std::move(record));
  write_turn();
}

void RecordStream::send_ahead(OutgoingRecord record) {
  if (is_closed_ || is_finishing_) return;
  queue_bytes_ += record.bytes();
  // Behind what is on its way and behind earlier ones of its kind: acknowledgements count up.
  auto at = queue_.begin() + (front_sent_ > 0 ? 1 : 0);
  while (at != queue_.end() && !at->is_frame()) ++at;
  queue_.insert(at, std::move(record));
  write_turn();
}

void RecordStream::pause_reading(bool paused) {
  reading_paused_ = paused;
  if (!paused) read_turn();
}

void RecordStream::deliver(std::size_t bytes) {
  const std::size_t waiting = delivering_bytes_.fetch_add(bytes) + bytes;
  if (waiting <= delivery_bytes_max_ || delivery_paused_.exchange(true)) return;
  // The loop may have taken everything between the two steps above, and would not come again.
  if (delivering_bytes_.load() <= delivery_bytes_max_ / 2) resume_later();
}

void RecordStream::on_taken(std::size_t bytes) {
  const std::size_t waiting = delivering_bytes_.fetch_sub(bytes) - bytes;
  if (waiting <= delivery_bytes_max_ / 2 && delivery_paused_.load()) resume_later();
}

void RecordStream::resume_later() {
  asio::post(context_, [self = shared_from_this()] {
    self->delivery_paused_.store(false);
    self->read_turn();
  });
}

void RecordStream::close(Error reason) {
  if (is_closed_) return;
  is_closed_ = true;
  const auto keep = shared_from_this();
  timer_.cancel();
  finish_timer_.cancel();
  readiness_.reset();
  queue_.clear();
  queue_bytes_ = 0;
  channel_.reset();
  on_closed(reason);
}

void RecordStream::finish(Error reason) {
  if (is_closed_ || is_finishing_) return;
  finish_reason_ = std::move(reason);
  is_finishing_ = true;
  reading_paused_ = false;
  delivery_bytes_max_ = std::numeric_limits<std::size_t>::max();
  delivery_paused_.store(false);
  finish_timer_.expires_after(kFarewellTimeout);
  finish_timer_.async_wait([self = shared_from_this()](const asio::error_code& error) {
    if (!error) self->close(self->finish_reason_);
  });
  write_turn();
  read_turn();
}

void RecordStream::break_off() {
  if (is_closed_) return;
  channel_->make_close_abortive();
  close(Error{ErrorCode::kLinkClosed, "exchange data", "broken off on request"});
}

void RecordStream::wait_readable() {
  if (read_waits_) return;
  read_waits_ = true;
  readiness_->wait_read([self = shared_from_this()](const asio::error_code&) {
    if (self->is_closed_) return;
    self->read_waits_ = false;
    self->read_turn();
  });
}

void RecordStream::close_on_read(IoStep step) {
  if (is_finishing_) return close(finish_reason_);
  if (step == IoStep::kClosed) return close(Error{ErrorCode::kLinkClosed, "receive", "the other side closed the connection"});
  close(Error{ErrorCode::kLinkClosed, "receive", channel_->failure()});
}

// Reads once and hands on complete records. False when the turn is over.
bool RecordStream::read_some(TimePoint now, std::size_t& budget) {
  const ReadResult result = channel_->read(scratch(), kScratchBytes);
  if (result.step == IoStep::kWouldBlock) {
    if (budget < kTurnBytes) on_read_turn(now);
    if (!is_closed_) wait_readable();
    return false;
  }
  if (result.step != IoStep::kDone) {
    close_on_read(result.step);
    return false;
  }
  budget -= std::min(budget, result.bytes);
  ByteSpan bytes(scratch(), result.bytes);
  while (!bytes.empty() && !is_finishing_) {
    std::optional<ParsedRecord> record;
    const auto used = parser_.feed(bytes, record);
    if (!used) {
      close(used.error());
      return false;
    }
    bytes = bytes.subspan(*used);
    if (record) on_record(std::move(*record));
    if (is_closed_) return false;
  }
  return true;
}

void RecordStream::read_turn() {
  if (!is_open_ || is_closed_ || read_waits_) return;
  const TimePoint now = Clock::now();
  std::size_t budget = kTurnBytes;
  const auto keep = shared_from_this();
  while (!is_reading_paused() && budget > 0) {
    if (!read_some(now, budget)) return;
  }
  if (budget < kTurnBytes) on_read_turn(now);
  if (is_closed_ || is_reading_paused()) return;
  read_waits_ = true;
  asio::post(context_, [keep] {
    if (keep->is_closed_) return;
    keep->read_waits_ = false;
    keep->read_turn();
  });
}

void RecordStream::advance(std::size_t bytes) {
  front_sent_ += bytes;
  queue_bytes_ -= bytes;
  if (front_sent_ < queue_.front().bytes()) return;
  bytes_written_ += queue_.front().bytes();
  frames_written_ += queue_.front().is_frame() ? 1 : 0;
  queue_.pop_front();
  front_sent_ = 0;
}

// Gives the channel the next piece: small things together up to one TLS record, the bulk of a frame straight from its own memory.
void RecordStream::append_piece() {
  std::uint8_t stage[kReadChunkBytes];
  std::size_t staged = 0;
  while (!queue_.empty() && staged < sizeof stage) {
    const OutgoingRecord& record = queue_.front();
    const ByteSpan rest = front_sent_ < record.head.size() ? ByteSpan(record.head).subspan(front_sent_)
                                                           : ByteSpan(*record.body).subspan(front_sent_ - record.head.size());
    if (staged == 0 && rest.size() >= sizeof stage) {
      // A refused append shows in the next flush or read.
      (void)channel_->append(rest.first(sizeof stage));
      advance(sizeof stage);
      return;
    }
    const std::size_t take = std::min(rest.size(), sizeof stage - staged);
    std::copy_n(rest.begin(), take, stage + staged);
    staged += take;
    advance(take);
  }
  if (staged > 0) (void)channel_->append(ByteSpan(stage, staged));
}

// How much may be given to the channel in this turn; 0 when a timer is set to go on later.
std::size_t RecordStream::write_budget() {
  if (!limiter_ || queue_.empty() || !queue_.front().is_frame()) return kTurnBytes;
  if (limit_waits_) return 0;
  const Duration wait = limiter_->take(std::min(kLimitedTurnBytes, queue_bytes_), Clock::now());
  if (wait == Duration::zero()) return kLimitedTurnBytes;
  limit_waits_ = true;
  timer_.expires_after(wait);
  timer_.async_wait([self = shared_from_this()](const asio::error_code&) {
    if (self->is_closed_) return;
    self->limit_waits_ = false;
    self->write_turn();
  });
  return 0;
}

// True when the turn's budget is used up while there is more to send.
bool RecordStream::fill_channel(std::size_t budget) {
  while (!queue_.empty() && channel_->unsent() < kWriteBufferBytes) {
    if (budget == 0) return true;
    const std::size_t before = queue_bytes_;
    append_piece();
    budget -= std::min(budget, before - queue_bytes_);
  }
  return false;
}

void RecordStream::write_turn() {
  if (!is_open_ || is_closed_ || write_waits_) return;
  const auto keep = shared_from_this();
  std::size_t budget = write_budget();
  IoStep step = channel_->flush();
  while (step == IoStep::kDone && budget > 0 && !queue_.empty()) {
    const std::size_t before = queue_bytes_;
    (void)fill_channel(budget);
    budget -= std::min(budget, before - queue_bytes_);
    step = channel_->flush();
  }
  after_write(step);
}

void RecordStream::after_write(IoStep step) {
  if (step == IoStep::kFailed || step == IoStep::kClosed) {
    return close(Error{ErrorCode::kLinkClosed, "send", channel_->failure()});
  }
  if (bytes_written_ > 0) {
    const std::size_t frames = std::exchange(frames_written_, 0);
    const std::size_t bytes = std::exchange(bytes_written_, 0);
    on_written(frames, bytes);
    if (is_closed_) return;
  }
  if (step == IoStep::kDone && queue_.empty()) {
    if (!is_finishing_) return;
    if (!end_appended_) {
      end_appended_ = true;
      channel_->append_end();
      step = channel_->flush();
    }
    if (step == IoStep::kDone) return channel_->shut_down_writing();
  }
  if (write_waits_ || (limit_waits_ && step == IoStep::kDone)) return;
  write_waits_ = true;
  const auto again = [self = shared_from_this()](const asio::error_code&) {
    if (self->is_closed_) return;
    self->write_waits_ = false;
    self->write_turn();
  };
  if (step == IoStep::kWouldBlock) {
    readiness_->wait_write(again);
  } else {
    asio::post(context_, [again] { again({}); });
  }
}

}  // namespace sluice::gateway::internal
