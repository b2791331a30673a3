#pragma once

// A WAN between sites on one machine, in user space and without root: TCP connections from site i to site j go through a relay port that
// holds their bytes back as LinkShape i -> j says, and the answers as j -> i says. All connections of a directed pair share its rate and
// queue; all pairs of a site may share an egress rate. Setting up a connection costs one round trip, as SYN and SYN-ACK would. There is no
// loss and no slow start: what is emulated is a path whose TCP has reached its rate. Timing is good to about 1 ms.
//
// Threads: one of its own carries all traffic between start() and stop(); every public method may be called from any other thread.
// Ownership: the relay owns its sockets and closes them in stop() and in the destructor. Errors: sockets that cannot be bound are returned;
// a target that refuses or breaks closes the dialler's connection one delay later.

#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "tests/support/link_clock.h"

namespace sluice::support {

// Payload bytes of the TCP connections over one directed pair since the start.
struct LinkCounters {
  std::uint64_t bytes_entered = 0;    // taken from the sender
  std::uint64_t bytes_delivered = 0;  // given to the receiver
  std::uint64_t connections = 0;      // dialled from `from`
};

class WanRelay {
 public:
  // `sites` is at most kSitesMax. All links start without delay and limit.
  explicit WanRelay(std::uint16_t sites);
  ~WanRelay();
  WanRelay(const WanRelay&) = delete;
  WanRelay& operator=(const WanRelay&) = delete;

  // Site `from` reaches 127.0.0.1:`target_port` of site `to` through the returned port; `listen_port` 0 picks a free one.
  // Before or after start(). Several routes for a pair share its link.
  Result<std::uint16_t> add_route(SiteId from, SiteId to, std::uint16_t target_port, std::uint16_t listen_port = 0);

  void start();
  // Ends the thread and closes everything. May be called twice.
  void stop();

  // Holds for bytes that enter from now on; bytes already on their way keep their time. Lifting a blackhole lets held bytes go on.
  void set_link(SiteId from, SiteId to, const LinkShape& shape);
  // All pairs that leave `from` share this rate. 0 = no common limit.
  void set_egress_rate(SiteId from, BitsPerSecond rate);
  [[nodiscard]] LinkCounters counters(SiteId from, SiteId to) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::support
