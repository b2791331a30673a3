// One thread, one io_context. A connection has two pipes. A pipe reads from its source while its link has room, stamps what it read with
// the time at which the far end may see it (LinkClock), and keeps it as segments; a common timer wakes when the next segment is due and
// hands all due segments of a pipe to one gathered write. The timer never fires twice within kTick, so that at high rates one turn moves
// many segments, while a lone message on an idle link is delivered at its time.
//
// Cost: one read, one copy, one gathered write per tick and pipe. Memory per pipe: what is on the way (rate times delay) plus the queue.
// Back pressure: a pipe stops reading when the link's queue is full, when a blackhole is set, or when the receiver leaves too much unread.
#include "tests/support/wan_relay.h"

#include <netinet/tcp.h>

#include <algorithm>
#include <asio.hpp>
#include <deque>
#include <future>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "base/assert.h"

namespace sluice::support {
namespace {

using asio::ip::tcp;

constexpr Duration kTick = std::chrono::milliseconds(1);
constexpr std::size_t kReadBytes = 256 * kKiB;
constexpr std::size_t kReadBytesLimited = 64 * kKiB;  // connections of a limited link take turns in pieces of this size
constexpr int kSocketBufferBytes = static_cast<int>(256 * kKiB);
constexpr std::size_t kUnreadBytesMax = 16 * kMiB;  // due, but not yet taken by the receiver
constexpr std::size_t kGatherMax = 64;
constexpr Duration kDialRetry = std::chrono::milliseconds(5);

struct Segment {
  std::vector<std::byte> bytes;
  TimePoint due;
};

// How a pipe ends: the source closed in good order, or broke.
enum class End { kNone, kClosed, kBroken };

struct Link {
  Link(PacedLine* egress) : clock(LinkShape{}, egress) {}  // NOLINT: built in place only
  LinkClock clock;
  LinkCounters counters;
};

}  // namespace

class WanRelay::Impl {
 public:
  explicit Impl(std::uint16_t sites) : sites_(sites), egress_(sites), timer_(io_) {
    SLUICE_ASSERT(sites > 0 && sites <= kSitesMax, "{} sites", sites);
    for (std::uint16_t from = 0; from < sites; ++from) {
      for (std::uint16_t to = 0; to < sites; ++to) links_.emplace_back(std::make_unique<Link>(&egress_[from]));
    }
  }

  class Connection;
  struct Route {
    Route(asio::io_context& io, SiteId from_site, SiteId to_site, std::uint16_t port)
        : acceptor(io), from(from_site), to(to_site), target_port(port) {}
    tcp::acceptor acceptor;
    SiteId from;
    SiteId to;
    std::uint16_t target_port;
  };

  Link& link(SiteId from, SiteId to) {
    SLUICE_ASSERT(from.value < sites_ && to.value < sites_ && from != to, "link {} -> {} of {} sites", from, to, sites_);
    return *links_[static_cast<std::size_t>(from.value) * sites_ + to.value];
  }

  Result<std::uint16_t> add_route(SiteId from, SiteId to, std::uint16_t target_port, std::uint16_t listen_port);
  void accept(Route& route);
  void start();
  void stop();
  // The relay's thread: the timer of all pipes.
  void wake_at(TimePoint due);
  void on_tick();

  // Runs `work` on the relay's thread and waits; inline when the thread is not running.
  template <typename Work>
  auto call(Work work) {
    if (!thread_.joinable()) return work();
    std::packaged_task<decltype(work())()> task(std::move(work));
    auto done = task.get_future();
    asio::post(io_, [&task] { task(); });
    return done.get();
  }

  std::uint16_t sites_;
  std::vector<PacedLine> egress_;
  std::vector<std::unique_ptr<Link>> links_;
  asio::io_context io_;
  asio::steady_timer timer_;
  std::optional<TimePoint> timer_due_;
  TimePoint last_tick_{};
  std::vector<std::unique_ptr<Route>> routes_;
  std::set<std::shared_ptr<Connection>> connections_;
  std::thread thread_;
};

// Two sockets and the two pipes between them. Lives while a pipe is open; every handler holds a reference.
class WanRelay::Impl::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Impl& relay, tcp::socket dialler, Route& route)
      : relay_(relay),
        dialler_(std::move(dialler)),
        target_(relay.io_),
        setup_(relay.io_),
        target_port_(route.target_port),
        forward_{relay.link(route.from, route.to), dialler_, target_},
        backward_{relay.link(route.to, route.from), target_, dialler_} {
    ++forward_.link.counters.connections;
  }

  // SYN on its way, target dialled, SYN-ACK on its way, then bytes.
  void open() {
    tune(dialler_);
    after(forward_.link.clock.shape().delay, [self = shared_from_this()] { self->dial(); });
  }

  // Moves what is due and reads where there is room. Returns when to come back, if at all.
  std::optional<TimePoint> turn(TimePoint now) {
    if (!is_open_) return std::nullopt;
    std::optional<TimePoint> next;
    for (Pipe* pipe : {&backward_, &forward_}) {
      write(*pipe, now);
      const auto wait = read(*pipe, now);
      for (const auto& time : {next_due(*pipe), wait}) {
        if (time && (!next || *time < *next)) next = time;
      }
    }
    return next;
  }

  void close() {
    is_open_ = false;
    asio::error_code ignored;
    setup_.cancel();
    dialler_.close(ignored);
    target_.close(ignored);
  }

 private:
  struct Pipe {
    Link& link;
    tcp::socket& source;
    tcp::socket& sink;
    std::deque<Segment> segments{};
    std::size_t held_bytes = 0;
    std::size_t in_write = 0;  // segments that the running write covers
    bool is_reading = false;
    bool is_open = false;  // both ends connected and the round trip of the set-up over
    End end = End::kNone;
    TimePoint end_due{};
    bool is_finished = false;  // the end was passed on to the sink
    std::vector<std::byte> scratch{};
  };

  static void tune(tcp::socket& socket) {
    asio::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    socket.set_option(asio::socket_base::send_buffer_size(kSocketBufferBytes), ignored);
    socket.non_blocking(true, ignored);
  }

  template <typename Then>
  void after(Duration delay, Then then) {
    setup_.expires_after(delay);
    setup_.async_wait([then = std::move(then)](asio::error_code error) {
      if (!error) then();
    });
  }

  void dial() {
    if (!is_open_) return;
    if (forward_.link.clock.shape().is_blackhole || backward_.link.clock.shape().is_blackhole) {
      if (is_dialler_gone()) return break_off();
      return after(kDialRetry, [self = shared_from_this()] { self->dial(); });  // until the path is back or the dialler gives up
    }
    asio::error_code ignored;
    target_.open(tcp::v4(), ignored);
    target_.set_option(asio::socket_base::receive_buffer_size(kSocketBufferBytes), ignored);
    const tcp::endpoint target(asio::ip::address_v4::loopback(), target_port_);
    target_.async_connect(target, [self = shared_from_this()](asio::error_code error) {
      if (error) return self->after(self->backward_.link.clock.shape().delay, [self] { self->break_off(); });
      tune(self->target_);
      self->backward_.is_open = true;
      self->after(self->backward_.link.clock.shape().delay, [self] {
        self->forward_.is_open = true;
        self->relay_.wake_at(Clock::now());
      });
      self->relay_.wake_at(Clock::now());
    });
  }

  // True once the dialler has closed its end. Asks the kernel, since what it sent before may still lie unread in front of its FIN.
  bool is_dialler_gone() {
    tcp_info info{};
    socklen_t length = sizeof(info);
    if (getsockopt(dialler_.native_handle(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return true;
    return info.tcpi_state != TCP_ESTABLISHED;
  }

  // Starts a read when the pipe wants bytes and the link has room. Returns when room is expected otherwise.
  std::optional<TimePoint> read(Pipe& pipe, TimePoint now) {
    if (!pipe.is_open || pipe.is_reading || pipe.end != End::kNone || pipe.link.clock.shape().is_blackhole) return std::nullopt;
    if (unread(pipe, now) > kUnreadBytesMax) return std::nullopt;  // the end of the running write comes back here
    const std::size_t room = pipe.link.clock.room(now);
    if (room == 0) return pipe.link.clock.room_at(now);
    const std::size_t wanted = pipe.link.clock.is_limited() ? std::min(room, kReadBytesLimited) : kReadBytes;
    pipe.scratch.resize(kReadBytes);
    pipe.is_reading = true;
    pipe.source.async_read_some(asio::buffer(pipe.scratch.data(), wanted),
                                [self = shared_from_this(), &pipe](asio::error_code error, std::size_t bytes) {
                                  pipe.is_reading = false;
                                  if (self->is_open_) self->on_read(pipe, error, bytes);
                                });
    return std::nullopt;
  }

  void on_read(Pipe& pipe, asio::error_code error, std::size_t bytes) {
    const TimePoint now = Clock::now();
    pipe.link.counters.bytes_entered += bytes;
    const std::size_t piece = pipe.link.clock.segment_bytes(kTick);
    for (std::size_t offset = 0; offset < bytes; offset += piece) {
      const auto first = pipe.scratch.begin() + static_cast<std::ptrdiff_t>(offset);
      const std::size_t length = std::min(piece, bytes - offset);
      pipe.segments.push_back(Segment{{first, first + static_cast<std::ptrdiff_t>(length)}, pipe.link.clock.admit(length, now)});
      pipe.held_bytes += length;
    }
    if (error) {
      pipe.end = error == asio::error::eof ? End::kClosed : End::kBroken;
      pipe.end_due = std::max(now + pipe.link.clock.shape().delay, pipe.segments.empty() ? TimePoint{} : pipe.segments.back().due);
    }
    const auto room_at = read(pipe, now);
    if (room_at) relay_.wake_at(*room_at);
    if (const auto due = next_due(pipe)) relay_.wake_at(*due);
  }

  void write(Pipe& pipe, TimePoint now) {
    if (pipe.in_write > 0 || pipe.is_finished || !pipe.sink.is_open() || pipe.link.clock.shape().is_blackhole) return;
    std::vector<asio::const_buffer> due;
    while (due.size() < std::min(kGatherMax, pipe.segments.size()) && pipe.segments[due.size()].due <= now) {
      due.emplace_back(asio::buffer(pipe.segments[due.size()].bytes));
    }
    if (due.empty()) {
      if (pipe.segments.empty() && pipe.end != End::kNone && pipe.end_due <= now) finish(pipe);
      return;
    }
    pipe.in_write = due.size();
    asio::async_write(pipe.sink, due, [self = shared_from_this(), &pipe](asio::error_code error, std::size_t bytes) {
      pipe.link.counters.bytes_delivered += bytes;
      if (self->is_open_) self->on_written(pipe, error);
    });
  }

  void on_written(Pipe& pipe, asio::error_code error) {
    for (; pipe.in_write > 0; --pipe.in_write) {
      pipe.held_bytes -= pipe.segments.front().bytes.size();
      pipe.segments.pop_front();
    }
    if (error) {  // the sink is gone; its own pipe tells the source one delay later
      pipe.segments.clear();
      pipe.held_bytes = 0;
      pipe.is_finished = true;
      if (pipe.end == End::kNone) pipe.end = End::kBroken;
    }
    relay_.wake_at(Clock::now());
  }

  void finish(Pipe& pipe) {
    pipe.is_finished = true;
    asio::error_code ignored;
    if (pipe.end == End::kBroken) return break_off();
    pipe.sink.shutdown(tcp::socket::shutdown_send, ignored);
    if (forward_.is_finished && backward_.is_finished) {
      close();
      relay_.connections_.erase(shared_from_this());
    }
  }

  // Resets both ends.
  void break_off() {
    asio::error_code ignored;
    for (tcp::socket* socket : {&dialler_, &target_}) {
      if (socket->is_open()) socket->set_option(asio::socket_base::linger(true, 0), ignored);
    }
    close();
    relay_.connections_.erase(shared_from_this());
  }

  // Bytes that the receiver could have had already.
  static std::size_t unread(const Pipe& pipe, TimePoint now) {
    if (pipe.held_bytes <= kUnreadBytesMax || pipe.segments.front().due > now) return 0;
    std::size_t bytes = 0;
    for (const Segment& segment : pipe.segments) {
      if (segment.due > now || bytes > kUnreadBytesMax) break;
      bytes += segment.bytes.size();
    }
    return bytes;
  }

  static std::optional<TimePoint> next_due(const Pipe& pipe) {
    if (pipe.in_write > 0 || pipe.is_finished || pipe.link.clock.shape().is_blackhole) return std::nullopt;
    if (!pipe.segments.empty()) return pipe.segments.front().due;
    if (pipe.end != End::kNone) return pipe.end_due;
    return std::nullopt;
  }

  Impl& relay_;
  tcp::socket dialler_;
  tcp::socket target_;
  asio::steady_timer setup_;
  std::uint16_t target_port_;
  bool is_open_ = true;
  Pipe forward_;
  Pipe backward_;
};

Result<std::uint16_t> WanRelay::Impl::add_route(SiteId from, SiteId to, std::uint16_t target_port, std::uint16_t listen_port) {
  link(from, to);  // checks the pair
  auto route = std::make_unique<Route>(io_, from, to, target_port);
  asio::error_code error;
  route->acceptor.open(tcp::v4(), error);
  if (!error) route->acceptor.set_option(asio::socket_base::reuse_address(true), error);
  // Accepted sockets inherit it: what a sender may put into the kernel beyond the link's own queue.
  if (!error) route->acceptor.set_option(asio::socket_base::receive_buffer_size(kSocketBufferBytes), error);
  if (!error) route->acceptor.bind(tcp::endpoint(asio::ip::address_v4::loopback(), listen_port), error);
  if (!error) route->acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return fail(ErrorCode::kUnavailable, "listen for the WAN relay", error.message());
  const std::uint16_t port = route->acceptor.local_endpoint().port();
  accept(*route);
  routes_.push_back(std::move(route));
  return port;
}

void WanRelay::Impl::accept(Route& route) {
  route.acceptor.async_accept([this, &route](asio::error_code error, tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (!error) {
      auto connection = std::make_shared<Connection>(*this, std::move(socket), route);
      connections_.insert(connection);
      connection->open();
    }
    accept(route);
  });
}

void WanRelay::Impl::start() {
  if (thread_.joinable()) return;
  io_.restart();
  thread_ = std::thread([this] {
    const auto keep = asio::make_work_guard(io_);
    io_.run();
  });
}

void WanRelay::Impl::stop() {
  call([this] {
    asio::error_code ignored;
    for (auto& route : routes_) route->acceptor.close(ignored);
    for (const auto& connection : connections_) connection->close();
    connections_.clear();
    timer_.cancel();
  });
  if (!thread_.joinable()) return;
  io_.stop();
  thread_.join();
}

void WanRelay::Impl::wake_at(TimePoint due) {
  due = std::max(due, last_tick_ + kTick);
  if (timer_due_ && *timer_due_ <= due) return;
  timer_due_ = due;
  timer_.expires_at(due);
  timer_.async_wait([this](asio::error_code error) {
    if (!error) on_tick();
  });
}

void WanRelay::Impl::on_tick() {
  timer_due_.reset();
  last_tick_ = Clock::now();
  std::optional<TimePoint> next;
  const std::vector<std::shared_ptr<Connection>> turn(connections_.begin(), connections_.end());  // a turn may end connections
  for (const auto& connection : turn) {
    const auto due = connection->turn(last_tick_);
    if (due && (!next || *due < *next)) next = due;
  }
  if (next) wake_at(*next);
}

WanRelay::WanRelay(std::uint16_t sites) : impl_(std::make_unique<Impl>(sites)) {}
WanRelay::~WanRelay() { stop(); }
void WanRelay::start() { impl_->start(); }
void WanRelay::stop() { impl_->stop(); }

Result<std::uint16_t> WanRelay::add_route(SiteId from, SiteId to, std::uint16_t target_port, std::uint16_t listen_port) {
  return impl_->call([&] { return impl_->add_route(from, to, target_port, listen_port); });
}

void WanRelay::set_link(SiteId from, SiteId to, const LinkShape& shape) {
  impl_->call([&] {
    impl_->link(from, to).clock.set_shape(shape);
    impl_->wake_at(Clock::now());
  });
}

void WanRelay::set_egress_rate(SiteId from, BitsPerSecond rate) {
  impl_->call([&] { impl_->egress_.at(from.value).set_rate(rate); });
}

LinkCounters WanRelay::counters(SiteId from, SiteId to) const {
  return impl_->call([&] { return impl_->link(from, to).counters; });
}

}  // namespace sluice::support
