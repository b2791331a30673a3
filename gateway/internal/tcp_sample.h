#pragma once

// What the kernel tells of one TCP connection. Any thread that may use the descriptor.

#include <chrono>
#include <cstdint>
#include <optional>

namespace sluice::gateway::internal {

struct TcpSample {
  std::uint64_t segments_sent = 0;      // with data, since the connection began
  std::uint64_t segments_resent = 0;    // of those, sent again
  std::uint64_t sent_bytes = 0;         // on the wire since the connection began, each once
  std::uint64_t received_bytes = 0;     // in order, since the connection began, whether they have been read or not
  std::uint32_t unsent_bytes = 0;       // given to the kernel and not yet on the wire
  std::uint64_t held_bytes = 0;         // at the far end behind a lost segment: acknowledged one by one, not yet for its reader
  std::chrono::microseconds rtt{};      // smoothed; 0 = not measured
  std::chrono::microseconds rtt_min{};  // of the last minutes, before queues; 0 = not measured
  std::uint64_t in_flight_bytes = 0;    // on the wire, neither acknowledged nor taken for lost
};

// Nothing for what is no TCP socket.
std::optional<TcpSample> read_tcp_sample(int fd);

}  // namespace sluice::gateway::internal
