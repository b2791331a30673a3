#pragma once

// The socket calls of the gateway's connections. Every socket is non-blocking and close-on-exec. Any thread.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"
#include "gateway/internal/unique_fd.h"

namespace sluice::gateway::internal {

// Both fail with kListen.
Result<UniqueFd> listen_tcp(const std::string& host, std::uint16_t port);
// Mode 0600. A file that no process listens on any more is replaced; a file that is no socket, or has a listener, is an error.
Result<UniqueFd> listen_unix(const std::filesystem::path& path);

std::uint16_t local_port(int fd);
// "192.0.2.1:41234"; "unix" for a Unix socket.
std::string remote_name(int fd);
// The address alone, for counting connections by it.
std::string remote_address(int fd);
// User of the process at the other end of a Unix socket.
Result<uid_t> remote_user(int fd);

struct TcpOptions {
  std::chrono::milliseconds user_timeout{0};  // unacknowledged data ends the connection after this; 0 = the system's
  std::string congestion;                     // empty = the system's; one that the kernel lacks is ignored
  int buffer_bytes = 0;                       // SO_SNDBUF and SO_RCVBUF; 0 = the system's own sizing
  int not_sent_bytes = 0;                     // TCP_NOTSENT_LOWAT; 0 = the system's
  std::uint64_t pacing_bytes = 0;             // most that the kernel sends in a second; 0 = no limit
};
// Whether the kernel has this congestion control, or takes it in on request.
bool has_congestion_control(const std::string& name);
// Of new sockets.
std::string default_congestion_control();
// TCP_NODELAY and the options. A refused option is no error: the connection works without it.
void tune_tcp(int fd, const TcpOptions& options);

}  // namespace sluice::gateway::internal
