#include "gateway/wan_prober.h"

#include <algorithm>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "base/units.h"

namespace sluice::gateway {
namespace {

enum Kind : std::uint32_t { kAsk = 1, kGranted = 2, kRefused = 3, kEnded = 4 };

constexpr std::size_t kFrameBytes = 64 * kKiB;
constexpr std::size_t kBacklogBytesMin = 1 * kMiB;
constexpr std::size_t kBacklogBytesMax = 32 * kMiB;
// What waits is kept above what leaves in so many fill intervals: more than leaves between two looks at the link, or the link counts as
// idle.
constexpr std::size_t kBacklogIntervals = 32;
constexpr std::chrono::milliseconds kFillInterval{10};
constexpr std::chrono::seconds kAnswerTimeout{5};
// What a peer may ask for; a longer probe ends here.
constexpr std::chrono::minutes kWindowMax{1};

}  // namespace

WanProber::WanProber(asio::io_context& loop, std::chrono::milliseconds window, WanProberHooks hooks)
    : window_(window), hooks_(std::move(hooks)), timer_(loop) {}

Status WanProber::start(SiteId peer, TimePoint now, std::uint64_t bytes_max) {
  const auto refuse = [this, peer](const char* why) {
    if (!running_) {
      text_ = fmt::format("site {} is not probed: {}", peer, why);
      ++ended_;
      was_complete_ = false;
    }
    return fail(ErrorCode::kUnavailable, "probe link", why);
  };
  if (running_) return refuse("another probe of this site runs");
  if (serving_ && now < serving_->ends_at) return refuse("a probe of another site runs to here");
  if (hooks_.is_round_running()) return refuse("a round runs");
  wire::PeerMessage message;
  message.mutable_probe()->set_kind(kAsk);
  message.mutable_probe()->set_id(next_id_);
  message.mutable_probe()->set_window_us(static_cast<std::uint64_t>(std::chrono::microseconds(window_).count()));
  message.mutable_probe()->set_bytes_max(bytes_max);
  running_ = Running{peer, next_id_++, false, now + kAnswerTimeout, 0, bytes_max, kBacklogBytesMin, 0};
  text_ = fmt::format("asking site {}", peer);
  arm();
  if (hooks_.send(peer, message)) return {};
  timer_.cancel();
  running_.reset();
  return refuse("the link is down");
}

std::uint64_t WanProber::expected_bytes(double rate) const {
  const double bytes = rate / 8.0 * std::chrono::duration<double>(window_).count();
  return static_cast<std::uint64_t>(std::min(bytes, static_cast<double>(kProbeBytesMax)));
}

void WanProber::answer(SiteId to, std::uint64_t id, std::uint32_t kind, const std::string& reason) {
  wire::PeerMessage message;
  message.mutable_probe()->set_kind(kind);
  message.mutable_probe()->set_id(id);
  message.mutable_probe()->set_reason(reason);
  hooks_.send(to, message);
}

Status WanProber::on_message(SiteId from, const wire::Probe& message, TimePoint now) {
  switch (message.kind()) {
    case kAsk: {
      if (serving_ && now >= serving_->ends_at) serving_.reset();
      const bool is_busy = running_ || serving_ || hooks_.is_round_running();
      if (is_busy) {
        answer(from, message.id(), kRefused, "busy");
        return {};
      }
      const auto asked = std::chrono::microseconds(std::min<std::uint64_t>(message.window_us(), 60'000'000));
      serving_ = Serving{from, message.id(), now + std::min<Duration>(asked, kWindowMax) + kAnswerTimeout};
      answer(from, message.id(), kGranted, "");
      return {};
    }
    case kGranted:
      if (!running_ || running_->peer != from || running_->id != message.id() || running_->is_granted) return {};
      running_->is_granted = true;
      running_->ends_at = now + window_;
      text_ = fmt::format("probing site {}", from);
      hooks_.set_probing(from, true);
      fill(now);
      return {};
    case kRefused:
      if (running_ && running_->peer == from && running_->id == message.id()) {
        end(fmt::format("site {} refused: {}", from, message.reason().substr(0, 100)), topology::ProbeEnd::kRefused);
      }
      return {};
    case kEnded:
      if (serving_ && serving_->peer == from && serving_->id == message.id()) serving_.reset();
      return {};
    default:
      return fail(ErrorCode::kWireBadMessage, "read probe message", fmt::format("kind {}", message.kind()));
  }
}

void WanProber::fill(TimePoint now) {
  if (!running_) return;
  const bool is_spent = running_->bytes >= running_->bytes_max && hooks_.queued_bytes(running_->peer) == 0;
  if (now >= running_->ends_at || is_spent) {
    if (!running_->is_granted) return end(fmt::format("site {} did not answer", running_->peer), topology::ProbeEnd::kRefused);
    end(fmt::format("site {}: {:.1f} MB sent", running_->peer, static_cast<double>(running_->bytes) / 1e6), topology::ProbeEnd::kComplete);
    return;
  }
  if (running_->is_granted) {
    if (!payload_) {
      std::mt19937_64 random(1);
      auto bytes = std::make_shared<ByteVector>(kFrameBytes);
      std::generate(bytes->begin(), bytes->end(), [&random] { return static_cast<std::uint8_t>(random()); });
      payload_ = std::move(bytes);
    }
    std::size_t queued = hooks_.queued_bytes(running_->peer);
    const std::size_t drained = running_->filled_bytes - std::min(queued, running_->filled_bytes);
    running_->backlog = std::min(std::max(running_->backlog, kBacklogIntervals * drained), kBacklogBytesMax);
    wire::FrameEnvelope envelope;
    envelope.role = static_cast<std::uint16_t>(wire::FrameRole::kProbe);
    while (queued < running_->backlog && running_->bytes < running_->bytes_max) {
      if (!hooks_.send_frame(running_->peer, FrameRecord{envelope, payload_})) break;
      queued += kFrameBytes;
      running_->bytes += kFrameBytes;
    }
    running_->filled_bytes = queued;
  }
  arm();
}

void WanProber::arm() {
  timer_.expires_after(kFillInterval);
  timer_.async_wait([this](const asio::error_code& error) {
    if (!error) fill(Clock::now());
  });
}

void WanProber::end(const std::string& text, topology::ProbeEnd how) {
  timer_.cancel();
  const Running ended = *std::exchange(running_, std::nullopt);
  if (ended.is_granted) {
    hooks_.discard_queued(ended.peer);
    hooks_.set_probing(ended.peer, false);
    answer(ended.peer, ended.id, kEnded, "");
  }
  text_ = text;
  ++ended_;
  was_complete_ = how == topology::ProbeEnd::kComplete;
  if (hooks_.ended) hooks_.ended(ended.peer, how);
}

void WanProber::on_round_opened() {
  if (!running_) return;
  end(fmt::format("site {}: given up for a round after {:.1f} MB", running_->peer, static_cast<double>(running_->bytes) / 1e6),
      topology::ProbeEnd::kInterrupted);
}

void WanProber::on_peer_down(SiteId peer) {
  if (running_ && running_->peer == peer) end(fmt::format("site {}: the link went down", peer), topology::ProbeEnd::kInterrupted);
  if (serving_ && serving_->peer == peer) serving_.reset();
}

void WanProber::stop() {
  timer_.cancel();
  running_.reset();
  serving_.reset();
}

}  // namespace sluice::gateway
