#pragma once

// What the kernel tells of one TCP connection. Any thread that may use the descriptor.

#include <chrono>
#include <cstdint>
#include <optional>

namespace sluice::gateway::internal {

struct TcpSample {
  std::uint64_t segments_sent = 0;    // with data, since the connection began
  std::uint64_t segments_resent = 0;  // of those, sent again
  std::uint32_t unsent_bytes = 0;     // given to the kernel and not yet on the wire
  std::chrono::microseconds rtt{};    // smoothed; 0 = not measured
};

// Nothing for what is no TCP socket.
std::optional<TcpSample> read_tcp_sample(int fd);

}  // namespace sluice::gateway::internal
