#include "gateway/internal/tcp_sample.h"

// The kernel's own header: the C library's tcp_info ends before the fields used here. The two headers exclude each other.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>

namespace sluice::gateway::internal {

std::optional<TcpSample> read_tcp_sample(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (fd < 0 || ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
  TcpSample sample;
  sample.rtt = std::chrono::microseconds(info.tcpi_rtt);
  sample.segments_resent = info.tcpi_total_retrans;
  sample.held_bytes = std::uint64_t{info.tcpi_sacked} * info.tcpi_snd_mss;
  const std::uint64_t settled = std::uint64_t{info.tcpi_sacked} + info.tcpi_lost;
  const std::uint64_t sent = std::uint64_t{info.tcpi_unacked} + info.tcpi_retrans;
  sample.in_flight_bytes = (sent - std::min(settled, sent)) * info.tcpi_snd_mss;
  // Older kernels give a shorter structure.
  if (length >= offsetof(tcp_info, tcpi_data_segs_out) + sizeof info.tcpi_data_segs_out) {
    sample.segments_sent = info.tcpi_data_segs_out;
    sample.unsent_bytes = info.tcpi_notsent_bytes;
    sample.rtt_min = std::chrono::microseconds(info.tcpi_min_rtt);
    sample.received_bytes = info.tcpi_bytes_received;
  }
  if (length >= offsetof(tcp_info, tcpi_bytes_retrans) + sizeof info.tcpi_bytes_retrans) {
    sample.sent_bytes = info.tcpi_bytes_sent - info.tcpi_bytes_retrans;
  }
  return sample;
}

}  // namespace sluice::gateway::internal
