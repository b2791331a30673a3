#include "gateway/internal/sockets.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "gateway/limits.h"

namespace sluice::gateway::internal {
namespace {

std::string errno_text() { return std::strerror(errno); }

void set_option(int fd, int level, int option, int value) {
  // Tuning only: see tune_tcp.
  (void)::setsockopt(fd, level, option, &value, sizeof value);
}

struct AddressText {
  std::string host;
  std::uint16_t port = 0;
  int family = AF_UNSPEC;
};

AddressText address_text(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.ss_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof in);
    ::inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
    return {text, ntohs(in.sin_port), AF_INET};
  }
  if (address.ss_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, &address, sizeof in);
    ::inet_ntop(AF_INET6, &in.sin6_addr, text, sizeof text);
    return {text, ntohs(in.sin6_port), AF_INET6};
  }
  return {"unix", 0, AF_UNIX};
}

AddressText remote_text(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return {"unknown", 0, AF_UNSPEC};
  return address_text(address);
}

Result<UniqueFd> bind_and_listen(const addrinfo& candidate) {
  UniqueFd fd(::socket(candidate.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return fail(ErrorCode::kListen, "open socket", errno_text());
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(fd.get(), candidate.ai_addr, candidate.ai_addrlen) != 0 || ::listen(fd.get(), kListenBacklog) != 0) {
    return fail(ErrorCode::kListen, "listen", errno_text());
  }
  return fd;
}

// Whether a process accepts connections on the socket file.
bool is_served(const sockaddr_un& address) {
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!probe.is_open()) return true;
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return true;
  return errno != ECONNREFUSED && errno != ENOENT;
}

}  // namespace

Result<UniqueFd> listen_tcp(const std::string& host, std::uint16_t port) {
  const std::string where = fmt::format("{}:{}", host, port);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0) return fail(ErrorCode::kListen, "listen", fmt::format("{}: {}", where, ::gai_strerror(code)));
  Result<UniqueFd> result = fail(ErrorCode::kListen, "listen", "no address");
  for (const addrinfo* candidate = found; candidate != nullptr; candidate = candidate->ai_next) {
    result = bind_and_listen(*candidate);
    if (result) break;
  }
  ::freeaddrinfo(found);
  if (!result) return fail(ErrorCode::kListen, "listen", fmt::format("{}: {}", where, result.error().detail));
  return result;
}

Result<UniqueFd> listen_unix(const std::filesystem::path& path) {
  const auto refuse = [&](const std::string& why) { return fail(ErrorCode::kListen, "listen", fmt::format("{}: {}", path.string(), why)); };
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.native().size() >= sizeof address.sun_path) {
    return refuse(fmt::format("a socket path has at most {} bytes", sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.c_str(), path.native().size());
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode)) return refuse("exists and is no socket");
    if (is_served(address)) return refuse("another process serves it");
    if (::unlink(path.c_str()) != 0) return refuse(errno_text());
  }
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return refuse(errno_text());
  // The mode is set on the descriptor before the file exists, so that there is no moment at which others could connect.
  if (::fchmod(fd.get(), 0600) != 0) return refuse(errno_text());
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return refuse(errno_text());
  if (::chmod(path.c_str(), 0600) != 0 || ::listen(fd.get(), kListenBacklog) != 0) return refuse(errno_text());
  return fd;
}

std::uint16_t local_port(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return address_text(address).port;
}

std::string remote_name(int fd) {
  const AddressText text = remote_text(fd);
  if (text.family == AF_INET6) return fmt::format("[{}]:{}", text.host, text.port);
  if (text.family == AF_INET) return fmt::format("{}:{}", text.host, text.port);
  return text.host;
}

std::string remote_address(int fd) { return remote_text(fd).host; }

Result<uid_t> remote_user(int fd) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return fail(ErrorCode::kUnavailable, "read peer credentials", errno_text());
  }
  return credentials.uid;
}

bool has_congestion_control(const std::string& name) {
  const UniqueFd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return probe.is_open() &&
         ::setsockopt(probe.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0;
}

std::string default_congestion_control() {
  const UniqueFd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  char name[32] = {};
  socklen_t length = sizeof name - 1;
  if (!probe.is_open() || ::getsockopt(probe.get(), IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0) return "unknown";
  return name;
}

void tune_tcp(int fd, const TcpOptions& options) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  if (options.user_timeout.count() > 0) set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(options.user_timeout.count()));
  if (options.not_sent_bytes > 0) set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, options.not_sent_bytes);
  if (options.buffer_bytes > 0) {
    set_option(fd, SOL_SOCKET, SO_SNDBUF, options.buffer_bytes);
    set_option(fd, SOL_SOCKET, SO_RCVBUF, options.buffer_bytes);
  }
  if (options.pacing_bytes > 0) {
    (void)::setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &options.pacing_bytes, sizeof options.pacing_bytes);
  }
  if (!options.congestion.empty()) {
    (void)::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, options.congestion.data(), static_cast<socklen_t>(options.congestion.size()));
  }
}

}  // namespace sluice::gateway::internal
