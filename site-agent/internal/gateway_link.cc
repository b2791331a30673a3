#include "site-agent/internal/gateway_link.h"

#include <asio/co_spawn.hpp>
#include <asio/post.hpp>
#include <asio/redirect_error.hpp>
#include <asio/use_awaitable.hpp>

#include "base/assert.h"
#include "base/log.h"
#include "site-agent/limits.h"

namespace sluice::site_agent {
namespace {

// Records gathered into one write.
constexpr std::size_t kWriteRecordsMax = 32;

void rethrow_nothing(const std::exception_ptr& escaped) {
  if (!escaped) return;
  try {
    std::rethrow_exception(escaped);
  } catch (const std::exception& problem) {
    panic(__FILE__, __LINE__, fmt::format("an exception escaped from the gateway link: {}", problem.what()));
  }
}

}  // namespace

GatewayLink::GatewayLink(LinkConfig config, const sync::Manifest& manifest, Callbacks callbacks)
    : config_(std::move(config)), manifest_(manifest), callbacks_(std::move(callbacks)), store_([this](ByteVector record) {
        std::uint64_t connection = 0;
        {
          const std::lock_guard lock(mutex_);
          connection = connection_;
        }
        return connection != 0 && send(connection, std::move(record));
      }) {}

GatewayLink::~GatewayLink() { stop(); }

void GatewayLink::stop() {
  is_stopping_ = true;
  if (!thread_.joinable()) return;
  std::uint64_t connection = 0;
  {
    const std::lock_guard lock(mutex_);
    connection = connection_;
  }
  if (connection != 0 && send(connection, make_goodbye("the training process is done"))) {
    std::unique_lock lock(mutex_);
    room_.wait_until(lock, Clock::now() + kGoodbyeTimeout, [&] { return queued_bytes_ == 0 || connection_ != connection; });
  }
  asio::post(loop_, [this] {
    close_stream("stopped");
    pause_timer_.cancel();
    resume_timer_.cancel();
    heartbeat_timer_.cancel();
  });
  thread_.join();
}

void GatewayLink::set_state(std::uint64_t round, std::span<const Digest> chunk_digests) {
  const std::lock_guard lock(mutex_);
  state_round_ = round;
  state_digests_.assign(chunk_digests.begin(), chunk_digests.end());
}

void GatewayLink::start() {
  SLUICE_ASSERT(!thread_.joinable(), "started twice");
  asio::co_spawn(loop_, run(), rethrow_nothing);
  thread_ = std::thread([this] { loop_.run(); });
}

// ---- connecting ----

asio::awaitable<void> GatewayLink::run() {
  auto pause = kReconnectPauseMin;
  while (!is_stopping_) {
    const std::uint64_t connections_before = connections_;
    const std::string reason = co_await converse();
    if (is_stopping_) break;
    report_lost(reason);
    if (is_replaced_) break;
    if (connections_ != connections_before) pause = kReconnectPauseMin;
    pause_timer_.expires_after(was_refused_ ? kRefusedPause : pause);
    pause = std::min(pause * 2, kReconnectPauseMax);
    std::error_code ignored;
    co_await pause_timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

void GatewayLink::report_lost(const std::string& reason) {
  if (reason == last_reported_) return;  // said once, not at every attempt
  last_reported_ = reason;
  log_warning("agent", "rank {}: no gateway ({}); training goes on locally{}", config_.rank, reason,
              is_replaced_ ? "" : ", connecting again");
}

// One connection from connecting to its end; returns why it ended.
asio::awaitable<std::string> GatewayLink::converse() {
  close_reason_.clear();
  was_refused_ = false;
  auto stream = make_byte_stream(loop_, config_.address, config_.files);
  if (!stream) {
    callbacks_.on_problem(stream.error());
    co_return stream.error().to_string();
  }
  stream_ = std::move(*stream);
  arm_handshake_timer();
  std::uint64_t hello_round = 0;
  auto welcome = co_await shake_hands(*stream_, hello_round);
  handshake_timer_.cancel();
  if (!welcome) {
    if (welcome.error().code != ErrorCode::kGatewayLost) callbacks_.on_problem(welcome.error());
    was_refused_ = welcome.error().code == ErrorCode::kGatewayRefused;
    co_await finish_stream();
    co_return close_reason_.empty() || was_refused_ ? welcome.error().detail : close_reason_;
  }
  const std::uint64_t number = ++connections_;
  {
    const std::lock_guard lock(mutex_);
    connection_ = number;
  }
  is_connected_ = true;
  last_reported_.clear();
  log_info("agent", "rank {}: joined run {} as site {}, {} inner steps a round, round {} committed", config_.rank, welcome->run,
           welcome->site, welcome->inner_steps, welcome->round);
  deliver(LinkUp{number, hello_round, std::move(*welcome)});
  if (!config_.address.is_unix) asio::co_spawn(loop_, keep_alive(), rethrow_nothing);
  std::string reason = co_await read_records(*stream_);
  if (!close_reason_.empty()) reason = close_reason_;
  co_await finish_stream();
  store_.on_link_lost();
  deliver(LinkDown{reason});
  co_return reason;
}

// Closes the stream and waits until nothing refers to it.
asio::awaitable<void> GatewayLink::finish_stream() {
  is_connected_ = false;
  stream_->close();
  heartbeat_timer_.cancel();
  while (is_writing_) {  // the cancelled write still holds its buffers; its handler cancels the timer
    resume_timer_.expires_after(std::chrono::seconds(1));
    std::error_code ignored;
    co_await resume_timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  const std::lock_guard lock(mutex_);
  connection_ = 0;
  queue_.clear();
  queued_bytes_ = 0;
  wants_drained_event_ = false;
  room_.notify_all();
}

void GatewayLink::arm_handshake_timer() {
  handshake_timer_.expires_after(kHandshakeTimeout);
  handshake_timer_.async_wait([this](std::error_code error) {
    if (!error) close_stream(fmt::format("no answer within {} s", kHandshakeTimeout.count()));
  });
}

asio::awaitable<Result<Welcome>> GatewayLink::shake_hands(ByteStream& stream, std::uint64_t& hello_round) {
  const std::string problem = co_await stream.connect();
  if (!problem.empty()) co_return fail(ErrorCode::kGatewayLost, "connect", problem);
  Hello hello{config_.rank, config_.ranks, 0, {}, config_.boot_id};
  {
    const std::lock_guard lock(mutex_);
    hello.round = state_round_;
    hello.chunk_digests = state_digests_;
  }
  hello_round = hello.round;
  enqueue(make_hello(hello, manifest_));
  while (true) {
    wire::RecordType type{};
    auto record = co_await read_record(stream, type);
    if (!record) co_return fail(record.error());
    if (type != wire::RecordType::kControl) co_return fail(ErrorCode::kAgentProtocol, "greet gateway", "a frame before the welcome");
    auto message = parse_gateway_message(*record);
    if (!message) co_return fail(message.error());
    if (std::holds_alternative<Heartbeat>(*message)) continue;  // over TCP the gateway's begin with the connection
    if (const auto* reject = std::get_if<Reject>(&*message)) {
      co_return fail(ErrorCode::kGatewayRefused, "greet gateway", fmt::format("refused: {} [{}]", reject->detail, reject->error_code));
    }
    if (auto* welcome = std::get_if<Welcome>(&*message)) co_return std::move(*welcome);
    co_return fail(ErrorCode::kAgentProtocol, "greet gateway", "the first message is not a welcome");
  }
}

// ---- reading ----

asio::awaitable<Result<ByteVector>> GatewayLink::read_record(ByteStream& stream, wire::RecordType& type) {
  std::uint8_t header_bytes[wire::kRecordHeaderBytes];
  std::error_code error = co_await stream.read(asio::buffer(header_bytes));
  if (error) co_return fail(ErrorCode::kGatewayLost, "read record", error.message());
  const auto header = wire::read_record_header(header_bytes);
  if (!header) co_return fail(ErrorCode::kAgentProtocol, "read record", "the header of a record is malformed");
  ByteVector payload(header->payload_bytes);
  error = co_await stream.read(asio::buffer(payload));
  if (error) co_return fail(ErrorCode::kGatewayLost, "read record", error.message());
  type = header->type;
  bytes_received_ += wire::kRecordHeaderBytes + payload.size();
  last_received_ = Clock::now();
  co_return payload;
}

asio::awaitable<std::string> GatewayLink::read_records(ByteStream& stream) {
  while (true) {
    wire::RecordType type{};
    auto record = co_await read_record(stream, type);
    if (!record) {
      if (record.error().code == ErrorCode::kAgentProtocol) callbacks_.on_problem(record.error());
      co_return record.error().detail;
    }
    const std::string problem = type == wire::RecordType::kControl ? dispatch_control(*record) : dispatch_frame(std::move(*record));
    if (!problem.empty()) co_return problem;
    if (is_reading_paused_) co_await wait_while_paused();
    if (!close_reason_.empty()) co_return close_reason_;
  }
}

// Returns why the connection has to end, or nothing.
std::string GatewayLink::dispatch_control(ByteSpan payload) {
  auto message = parse_gateway_message(payload);
  if (!message) {
    callbacks_.on_problem(message.error());
    return message.error().to_string();
  }
  std::string problem;
  std::visit(
      [&](auto&& what) {
        using Kind = std::decay_t<decltype(what)>;
        if constexpr (std::is_same_v<Kind, Heartbeat>) {
          if (!what.is_reply) send(connections_, make_heartbeat({what.sequence, true}));
        } else if constexpr (std::is_same_v<Kind, KeyValue>) {
          store_.on_value(std::move(what));
        } else if constexpr (std::is_same_v<Kind, Goodbye>) {
          problem = "the gateway said goodbye: " + what.reason;
        } else if constexpr (std::is_same_v<Kind, Reject>) {
          callbacks_.on_problem(Error{ErrorCode::kGatewayRefused, "talk to gateway", what.detail});
          problem = "refused: " + what.detail;
          was_refused_ = true;
          // Coming back would displace the one that has displaced this one, and so on for ever.
          is_replaced_ = what.error_code == static_cast<std::uint32_t>(ErrorCode::kLinkReplaced);
        } else if constexpr (std::is_same_v<Kind, Welcome>) {
          problem = "a second welcome";
        } else {
          deliver(GatewayEvent(std::move(what)));
        }
      },
      std::move(*message));
  return problem;
}

std::string GatewayLink::dispatch_frame(ByteVector record) {
  if (record.size() < wire::kFrameEnvelopeBytes) return "a frame record without an envelope";
  const auto envelope = wire::read_frame_envelope(record.data());
  if (!envelope) return "a malformed frame envelope";
  deliver(FrameReceived{*envelope, std::move(record)});
  return {};
}

void GatewayLink::deliver(GatewayEvent&& event) {
  if (callbacks_.deliver(std::move(event)) > kInboundBytesMax) is_reading_paused_ = true;
}

asio::awaitable<void> GatewayLink::wait_while_paused() {
  while (is_reading_paused_ && close_reason_.empty() && !is_stopping_) {
    resume_timer_.expires_after(std::chrono::seconds(1));
    std::error_code ignored;
    co_await resume_timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  last_received_ = Clock::now();
}

void GatewayLink::resume_reading() {
  if (!is_reading_paused_.exchange(false)) return;
  asio::post(loop_, [this] { resume_timer_.cancel(); });
}

// TLS only: behind a Unix socket the kernel tells when the gateway is gone.
asio::awaitable<void> GatewayLink::keep_alive() {
  const std::uint64_t number = connections_;
  std::uint64_t sequence = 0;
  last_received_ = Clock::now();
  while (true) {
    heartbeat_timer_.expires_after(kHeartbeatInterval);
    std::error_code ignored;
    co_await heartbeat_timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    if (!is_connected_ || connections_ != number || is_stopping_) co_return;
    if (!is_reading_paused_ && Clock::now() - last_received_ > kHeartbeatInterval * kHeartbeatsMissedMax) {
      close_stream("the gateway has gone silent");
      co_return;
    }
    send(number, make_heartbeat({++sequence, false}));
  }
}

// ---- writing ----

bool GatewayLink::send(std::uint64_t connection, ByteVector record) {
  const std::lock_guard lock(mutex_);
  if (connection != connection_ || connection == 0) return false;
  enqueue_locked(std::move(record));
  return true;
}

void GatewayLink::enqueue(ByteVector record) {
  const std::lock_guard lock(mutex_);
  enqueue_locked(std::move(record));
}

void GatewayLink::enqueue_locked(ByteVector record) {
  queued_bytes_ += record.size();
  queue_.push_back(std::move(record));
  if (!is_write_posted_) {
    is_write_posted_ = true;
    asio::post(loop_, [this] {
      if (!is_writing_) write_queued();
    });
  }
}

bool GatewayLink::wait_for_room(std::uint64_t connection, TimePoint deadline) {
  std::unique_lock lock(mutex_);
  return room_.wait_until(lock, deadline, [&] { return queued_bytes_ < kOutboundBytesMax || connection_ != connection; }) &&
         connection_ == connection;
}

std::size_t GatewayLink::outbound_bytes() {
  const std::lock_guard lock(mutex_);
  return queued_bytes_;
}

void GatewayLink::request_drained_event() {
  const std::lock_guard lock(mutex_);
  wants_drained_event_ = true;
}

void GatewayLink::write_queued() {
  {
    const std::lock_guard lock(mutex_);
    is_write_posted_ = false;
    for (std::size_t count = 0; count < kWriteRecordsMax && !queue_.empty(); ++count) {
      writing_.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
  }
  if (writing_.empty()) return;
  std::vector<asio::const_buffer> buffers;
  for (const ByteVector& record : writing_) buffers.push_back(asio::buffer(record));
  is_writing_ = true;
  stream_->write(buffers, [this](std::error_code error) { on_written(error); });
}

void GatewayLink::on_written(std::error_code error) {
  is_writing_ = false;
  std::size_t written = 0;
  for (const ByteVector& record : writing_) written += record.size();
  writing_.clear();
  bool is_drained = false;
  {
    const std::lock_guard lock(mutex_);
    queued_bytes_ -= std::min(queued_bytes_, written);
    if (queued_bytes_ == 0) is_drained = std::exchange(wants_drained_event_, false);
    room_.notify_all();
  }
  if (error) {
    close_stream(error.message());
    resume_timer_.cancel();
    return;
  }
  bytes_sent_ += written;
  if (!close_reason_.empty()) {
    resume_timer_.cancel();
    return;
  }
  if (is_drained) deliver(QueueDrained{});
  if (!is_writing_) write_queued();
}

void GatewayLink::drop(std::uint64_t connection, std::string reason) {
  asio::post(loop_, [this, connection, reason = std::move(reason)] {
    if (connection == connections_ && is_connected_) close_stream(reason);
  });
}

void GatewayLink::drop_current(std::string reason) { drop(connections_, std::move(reason)); }

void GatewayLink::close_stream(std::string reason) {
  if (close_reason_.empty()) close_reason_ = std::move(reason);
  if (stream_) stream_->close();
  resume_timer_.cancel();
}

}  // namespace sluice::site_agent
