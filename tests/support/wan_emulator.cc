#include "tests/support/wan_emulator.h"

// One thread: wait until a packet comes or one is due, take what has come, hand over what is due. Large TCP packets (up to 64 KiB) come
// and go whole where nothing is lost, so that a Gbit/s is some thousands of system calls a second.

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/assert.h"

namespace sluice::support {
namespace {

constexpr std::uint32_t kNetwork = 0x0A5B0000U;  // 10.91.0.0; only ever seen inside the namespaces
constexpr std::size_t kPacketBytesMax = 65'600;
constexpr int kReadsPerTurn = 64;  // of each site; then what is due goes out
constexpr int kRealtimePriority = 10;

std::uint32_t address_of(SiteId site) { return kNetwork + site.value + 1U; }

double thread_cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

bool become_realtime() {
  ::prctl(PR_SET_TIMERSLACK, 1UL);
  sched_param parameters{};
  parameters.sched_priority = kRealtimePriority;
  return ::sched_setscheduler(0, SCHED_FIFO, &parameters) == 0;
}

}  // namespace

class WanEmulator::Impl {
 public:
  explicit Impl(const WanEmulatorOptions& options)
      : turn_(options.turn), network_(options.sites, options.seed), scratch_(kPacketBytesMax) {}
  ~Impl() {
    stop_.store(true);
    wake();
    if (thread_.joinable()) thread_.join();
    for (const TunDevice& device : devices_) ::close(device.fd);
    if (wake_fd_ >= 0) ::close(wake_fd_);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status make_sites(const WanEmulatorOptions& options) {
    wake_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_fd_ < 0) return fail(ErrorCode::kUnavailable, "make network", std::strerror(errno));
    const std::string tail = fmt::format("{}", options.socket_buffer_bytes_max);
    for (std::uint16_t site = 0; site < options.sites; ++site) {
      SLUICE_TRY(auto space, NetworkNamespace::create());
      SLUICE_CHECK_OK(space.set_sysctl("ipv4/tcp_rmem", "4096 131072 " + tail));
      SLUICE_CHECK_OK(space.set_sysctl("ipv4/tcp_wmem", "4096 65536 " + tail));
      // What an earlier connection learned of the path would make one run depend on the one before.
      SLUICE_CHECK_OK(space.set_sysctl("ipv4/tcp_no_metrics_save", "1"));
      SLUICE_TRY(const TunDevice device, open_tun(space, address_of(SiteId(site)), options.mtu_bytes));
      devices_.push_back(device);
      sites_.push_back(std::move(space));
    }
    return {};
  }
  void run() {
    thread_ = std::thread([this] { carry(); });
  }

  // Changes or reads the network between two turns of the thread.
  template <typename Work>
  auto with_network(Work&& work) {
    const std::lock_guard lock(mutex_);
    return work(network_);
  }
  [[nodiscard]] const std::vector<NetworkNamespace>& sites() const { return sites_; }
  [[nodiscard]] EmulatorFigures figures() const { return {cpu_seconds_.load(), is_realtime_.load(), Duration(lateness_max_.load())}; }

 private:
  void wake() const {
    const std::uint64_t one = 1;
    if (wake_fd_ >= 0) (void)!::write(wake_fd_, &one, sizeof one);
  }

  void carry() {
    is_realtime_ = become_realtime();
    std::vector<pollfd> waiting;
    for (const TunDevice& device : devices_) waiting.push_back({device.fd, POLLIN, 0});
    waiting.push_back({wake_fd_, POLLIN, 0});
    while (!stop_.load()) {
      wait(waiting);
      const std::lock_guard lock(mutex_);
      for (std::uint16_t site = 0; site < devices_.size(); ++site) {
        if ((waiting[site].revents & POLLIN) != 0) take_from(SiteId(site));
      }
      hand_over(Clock::now());
      cpu_seconds_ = thread_cpu_seconds();
    }
  }

  static void poll_until(std::vector<pollfd>& waiting, std::optional<TimePoint> until) {
    timespec timeout{};
    if (until) {
      const auto left = std::max(Duration::zero(), *until - Clock::now());
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
      timeout.tv_sec = seconds.count();
      timeout.tv_nsec = static_cast<long>(std::chrono::nanoseconds(left - seconds).count());
    }
    ::ppoll(waiting.data(), waiting.size(), until ? &timeout : nullptr, nullptr);
  }

  // Returns when a packet has come or is due, and a turn after the last time.
  void wait(std::vector<pollfd>& waiting) {
    std::vector<pollfd> nothing;
    if (Clock::now() < next_turn_at_) poll_until(nothing, next_turn_at_);
    std::optional<TimePoint> due;
    {
      const std::lock_guard lock(mutex_);
      due = network_.next_deadline();
    }
    poll_until(waiting, due);
    next_turn_at_ = Clock::now() + turn_;
  }

  void take_from(SiteId from) {
    for (int count = 0; count < kReadsPerTurn; ++count) {
      WanPacket packet;
      std::array<iovec, 2> parts{{{&packet.offload, sizeof packet.offload}, {scratch_.data(), scratch_.size()}}};
      const ssize_t bytes = ::readv(devices_[from.value].fd, parts.data(), parts.size());
      if (bytes <= static_cast<ssize_t>(sizeof packet.offload)) return;
      packet.ip.assign(scratch_.begin(), scratch_.begin() + (bytes - static_cast<ssize_t>(sizeof packet.offload)));
      PacketAddresses addresses;
      if (!read_addresses(packet.ip, addresses)) continue;  // IPv6 of a new interface
      const std::uint32_t to = addresses.destination - address_of(SiteId(0));
      if (to >= devices_.size() || to == from.value) continue;
      network_.send(from, SiteId(static_cast<std::uint16_t>(to)), std::move(packet), Clock::now());
    }
  }

  void hand_over(TimePoint now) {
    if (const auto due = network_.next_deadline(); due && now > *due) {
      lateness_max_ = std::max(lateness_max_.load(), (now - *due).count());
    }
    network_.deliver_due(now, [this](SiteId to, const WanPacket& packet) {
      OffloadHeader offload = packet.offload;
      std::array<iovec, 2> parts{{{&offload, sizeof offload}, {const_cast<std::uint8_t*>(packet.ip.data()), packet.ip.size()}}};
      // A packet that the receiving kernel has no room for is lost, as on any machine.
      (void)!::writev(devices_[to.value].fd, parts.data(), parts.size());
    });
  }

  const Duration turn_;
  TimePoint next_turn_at_{};
  std::vector<NetworkNamespace> sites_;
  std::vector<TunDevice> devices_;
  int wake_fd_ = -1;
  mutable std::mutex mutex_;
  PacketNetwork network_;
  ByteVector scratch_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> is_realtime_{false};
  std::atomic<double> cpu_seconds_{0.0};
  std::atomic<Duration::rep> lateness_max_{0};
};

WanEmulator::WanEmulator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WanEmulator::~WanEmulator() = default;

Result<std::unique_ptr<WanEmulator>> WanEmulator::start(const WanEmulatorOptions& options) {
  SLUICE_ASSERT(options.sites >= 2 && options.sites <= kSitesMax, "{} sites", options.sites);
  auto impl = std::make_unique<Impl>(options);
  SLUICE_CHECK_OK(impl->make_sites(options));
  impl->run();
  return std::unique_ptr<WanEmulator>(new WanEmulator(std::move(impl)));
}

std::uint16_t WanEmulator::sites() const { return static_cast<std::uint16_t>(impl_->sites().size()); }
const NetworkNamespace& WanEmulator::site(SiteId site) const { return impl_->sites().at(site.value); }

std::string WanEmulator::address(SiteId site) {
  const std::uint32_t address = address_of(site);
  return fmt::format("{}.{}.{}.{}", address >> 24U, (address >> 16U) & 0xFFU, (address >> 8U) & 0xFFU, address & 0xFFU);
}

void WanEmulator::set_path(SiteId from, SiteId to, const PathShape& shape) {
  impl_->with_network([&](PacketNetwork& network) { network.set_path(from, to, shape); });
}
void WanEmulator::set_both(SiteId a, SiteId b, const PathShape& shape) {
  impl_->with_network([&](PacketNetwork& network) {
    network.set_path(a, b, shape);
    network.set_path(b, a, shape);
  });
}
void WanEmulator::set_uplink(SiteId site, const LineShape& shape) {
  impl_->with_network([&](PacketNetwork& network) { network.set_uplink(site, shape); });
}
void WanEmulator::set_downlink(SiteId site, const LineShape& shape) {
  impl_->with_network([&](PacketNetwork& network) { network.set_downlink(site, shape); });
}

void WanEmulator::set_blackhole(SiteId from, SiteId to, bool is_blackhole) {
  impl_->with_network([&](PacketNetwork& network) {
    PathShape shape = network.path(from, to);
    shape.is_blackhole = is_blackhole;
    network.set_path(from, to, shape);
  });
}
void WanEmulator::isolate(SiteId site, bool is_isolated) {
  for (std::uint16_t other = 0; other < sites(); ++other) {
    if (SiteId(other) == site) continue;
    set_blackhole(site, SiteId(other), is_isolated);
    set_blackhole(SiteId(other), site, is_isolated);
  }
}

PathShape WanEmulator::path(SiteId from, SiteId to) const {
  return impl_->with_network([&](PacketNetwork& network) { return network.path(from, to); });
}
PathCounters WanEmulator::counters(SiteId from, SiteId to) const {
  return impl_->with_network([&](PacketNetwork& network) { return network.counters(from, to); });
}
EmulatorFigures WanEmulator::figures() const { return impl_->figures(); }

}  // namespace sluice::support
