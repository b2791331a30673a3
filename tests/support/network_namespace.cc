#include "tests/support/network_namespace.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/assert.h"

namespace sluice::support {
namespace {

constexpr const char* kDeviceName = "wan0";
constexpr int kDeviceQueuePackets = 10'000;  // what waits while this process is not running; 500 by default

tl::unexpected<Error> unavailable(const std::string& what) {
  return fail(ErrorCode::kUnavailable, "make network", fmt::format("{}: {}", what, std::strerror(errno)));
}

// A socket for ioctls on interfaces of the calling thread's namespace.
class InterfaceControl {
 public:
  InterfaceControl() : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {}
  ~InterfaceControl() {
    if (socket_ >= 0) ::close(socket_);
  }
  InterfaceControl(const InterfaceControl&) = delete;
  InterfaceControl& operator=(const InterfaceControl&) = delete;

  Status call(unsigned long request, const char* what, const char* device, const std::function<void(ifreq&)>& fill) const {
    ifreq interface {};
    std::strncpy(interface.ifr_name, device, IFNAMSIZ - 1);
    fill(interface);
    if (::ioctl(socket_, request, &interface) != 0) return unavailable(fmt::format("{} of {}", what, device));
    return {};
  }
  Status bring_up(const char* device) const {
    return call(SIOCSIFFLAGS, "state", device, [](ifreq& interface) { interface.ifr_flags = IFF_UP | IFF_RUNNING; });
  }
  Status set_address(unsigned long request, const char* what, std::uint32_t address) const {
    return call(request, what, kDeviceName, [address](ifreq& interface) {
      sockaddr_in value{};
      value.sin_family = AF_INET;
      value.sin_addr.s_addr = htonl(address);
      std::memcpy(&interface.ifr_addr, &value, sizeof value);
    });
  }

 private:
  int socket_;
};

Result<TunDevice> open_device() {
  const int fd = ::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return unavailable("/dev/net/tun");
  ifreq interface {};
  std::strncpy(interface.ifr_name, kDeviceName, IFNAMSIZ - 1);
  interface.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
  // Checksums and the cutting of large TCP packets are left undone: inside one machine nobody needs them.
  const bool is_ready = ::ioctl(fd, TUNSETIFF, &interface) == 0 && ::ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) == 0;
  if (!is_ready) {
    const auto error = unavailable("TUN device");
    ::close(fd);
    return error;
  }
  return TunDevice{fd};
}

Status configure_device(std::uint32_t address, int mtu_bytes) {
  const InterfaceControl control;
  SLUICE_CHECK_OK(control.set_address(SIOCSIFADDR, "address", address));
  SLUICE_CHECK_OK(control.set_address(SIOCSIFNETMASK, "network", 0xFFFFFF00U));
  SLUICE_CHECK_OK(control.call(SIOCSIFMTU, "MTU", kDeviceName, [mtu_bytes](ifreq& each) { each.ifr_mtu = mtu_bytes; }));
  SLUICE_CHECK_OK(control.call(SIOCSIFTXQLEN, "queue", kDeviceName, [](ifreq& each) { each.ifr_qlen = kDeviceQueuePackets; }));
  return control.bring_up(kDeviceName);
}

Status write_file(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return unavailable(path);
  const ssize_t written = ::write(fd, text.data(), text.size());
  Status status;
  if (written != static_cast<ssize_t>(text.size())) status = unavailable(fmt::format("{} = {}", path, text));
  ::close(fd);
  return status;
}

}  // namespace

std::optional<std::string> NetworkNamespace::why_unavailable() {
  const auto made = create();
  if (!made) return made.error().detail;
  std::optional<std::string> reason;
  made->run([&reason] {
    const auto device = open_device();
    if (device) {
      ::close(device->fd);
    } else {
      reason = device.error().detail;
    }
  });
  return reason;
}

Result<NetworkNamespace> NetworkNamespace::create() {
  Result<NetworkNamespace> made = fail(ErrorCode::kUnavailable, "make network", "");
  std::thread([&made] {
    if (::unshare(CLONE_NEWNET) != 0) {
      made = unavailable("network namespace (needs root: CAP_SYS_ADMIN, CAP_NET_ADMIN)");
      return;
    }
    const int fd = ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      made = unavailable("network namespace");
      return;
    }
    made = NetworkNamespace(fd);
    if (const Status up = InterfaceControl().bring_up("lo"); !up) made = fail(up.error());
  }).join();
  return made;
}

NetworkNamespace::NetworkNamespace(NetworkNamespace&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
NetworkNamespace& NetworkNamespace::operator=(NetworkNamespace&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
NetworkNamespace::~NetworkNamespace() {
  if (fd_ >= 0) ::close(fd_);
}

void NetworkNamespace::run(const std::function<void()>& work) const {
  std::thread([this, &work] {
    const bool is_inside = ::setns(fd_, CLONE_NEWNET) == 0;
    SLUICE_ASSERT(is_inside, "setns: {}", std::strerror(errno));
    work();
  }).join();
}

Status NetworkNamespace::set_sysctl(const std::string& name, const std::string& value) const {
  Status status;
  // /proc/sys/net shows the namespace of the thread that opens it.
  run([&] { status = write_file("/proc/sys/net/" + name, value); });
  return status;
}

Result<TunDevice> open_tun(const NetworkNamespace& where, std::uint32_t address, int mtu_bytes) {
  Result<TunDevice> device = fail(ErrorCode::kUnavailable, "make network", "");
  where.run([&] {
    device = open_device();
    if (!device) return;
    if (const Status configured = configure_device(address, mtu_bytes); !configured) {
      ::close(device->fd);
      device = fail(configured.error());
    }
  });
  return device;
}

}  // namespace sluice::support
