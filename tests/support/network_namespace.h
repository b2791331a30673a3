#pragma once

// A network namespace of its own: a machine's view of interfaces, addresses, ports and sockets. It has no name; it lives as long as this
// object, a process in it or a device of it, so nothing is left when a test crashes. Linux, needs CAP_SYS_ADMIN and CAP_NET_ADMIN.
// Threads: const methods from any thread.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"

namespace sluice::support {

class NetworkNamespace {
 public:
  // Why none can be made here; nothing when it can.
  static std::optional<std::string> why_unavailable();
  // With its loopback interface up. kUnavailable.
  static Result<NetworkNamespace> create();
  NetworkNamespace(NetworkNamespace&& other) noexcept;
  NetworkNamespace& operator=(NetworkNamespace&& other) noexcept;
  NetworkNamespace(const NetworkNamespace&) = delete;
  NetworkNamespace& operator=(const NetworkNamespace&) = delete;
  ~NetworkNamespace();

  // For setns() and ChildOptions::network.
  [[nodiscard]] int fd() const { return fd_; }
  // Runs `work` to its end on a thread that is in the namespace: sockets that it opens are there, and stay there.
  void run(const std::function<void()>& work) const;

  // A setting of the namespace, as in "ipv4/tcp_rmem".
  Status set_sysctl(const std::string& name, const std::string& value) const;

 private:
  explicit NetworkNamespace(int fd) : fd_(fd) {}
  int fd_ = -1;
};

// The near end of a device whose packets come to this process. IPv4 only; packets are read and written with a virtio_net_hdr in front.
struct TunDevice {
  int fd = -1;  // non-blocking; the caller closes it, which removes the device
};
// Makes the device "wan0" in the namespace, up, with this address (host byte order) in a network of 24 bits. kUnavailable.
Result<TunDevice> open_tun(const NetworkNamespace& where, std::uint32_t address, int mtu_bytes);

}  // namespace sluice::support
