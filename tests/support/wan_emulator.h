#pragma once

// A WAN between sites on one machine, packet by packet: each site is a network namespace with one TUN device, and a thread of this process
// carries the packets between them as a PacketNetwork says (delay, rate, queue, loss, blackhole, shared up- and downlinks). What runs in a
// site uses the kernel's own TCP over it: slow start, retransmission, congestion control. All of it can be changed while running.
//
//   namespace 0                    this process                     namespace 1
//   process -- wan0 10.91.0.1 -- TUN --> PacketNetwork --> TUN -- wan0 10.91.0.2 -- process
//
// Needs root and /dev/net/tun: ask why_unavailable() first and skip. The namespaces have no names; they and their devices go with this
// object, or with the process however it ends.
// Threads: one of its own from start() on; every public method may be called from any thread. Its thread asks for real-time scheduling, so
// that packets are on time while the sites use all processors; without the right to it, it runs as any other.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/ids.h"
#include "base/result.h"
#include "tests/support/network_namespace.h"
#include "tests/support/packet_network.h"

namespace sluice::support {

struct WanEmulatorOptions {
  std::uint16_t sites = 2;
  std::uint64_t seed = 1;
  int mtu_bytes = 1500;
  // Upper limit of the kernel's own sizing of TCP buffers in the sites (tcp_rmem, tcp_wmem), as an operator of long links sets it.
  std::size_t socket_buffer_bytes_max = 64 * kMiB;
  // Its thread looks after packets at most this often, which bounds both its share of a processor and what it adds to a delay.
  Duration turn = std::chrono::microseconds(250);
};

struct EmulatorFigures {
  double cpu_seconds = 0.0;  // of its thread
  bool is_realtime = false;
  Duration lateness_max{};  // of a packet against its time
};

class WanEmulator {
 public:
  static std::optional<std::string> why_unavailable() { return NetworkNamespace::why_unavailable(); }
  // All paths start without delay, limit and loss.
  static Result<std::unique_ptr<WanEmulator>> start(const WanEmulatorOptions& options);
  ~WanEmulator();
  WanEmulator(const WanEmulator&) = delete;
  WanEmulator& operator=(const WanEmulator&) = delete;

  [[nodiscard]] std::uint16_t sites() const;
  [[nodiscard]] const NetworkNamespace& site(SiteId site) const;
  // "10.91.0.1".
  [[nodiscard]] static std::string address(SiteId site);

  void set_path(SiteId from, SiteId to, const PathShape& shape);
  void set_both(SiteId a, SiteId b, const PathShape& shape);
  // For the presets of wan_presets.h.
  void set_link(SiteId from, SiteId to, const LinkShape& link) { set_path(from, to, path_shape(link)); }
  void set_uplink(SiteId site, const LineShape& shape);
  void set_downlink(SiteId site, const LineShape& shape);
  // Nothing passes between the two, or between a site and all others, until it is lifted; the paths keep their other settings.
  void set_blackhole(SiteId from, SiteId to, bool is_blackhole);
  void isolate(SiteId site, bool is_isolated);

  [[nodiscard]] PathShape path(SiteId from, SiteId to) const;
  [[nodiscard]] PathCounters counters(SiteId from, SiteId to) const;
  [[nodiscard]] EmulatorFigures figures() const;

 private:
  class Impl;
  explicit WanEmulator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::support
