#include "tests/support/child_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/clock.h"

extern char** environ;  // NOLINT: POSIX

namespace sluice::support {
namespace {

std::vector<std::string> merged_environment(const std::map<std::string, std::string>& added) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    if (!added.contains(text.substr(0, text.find('=')))) result.push_back(text);
  }
  for (const auto& [name, value] : added) result.push_back(fmt::format("{}={}", name, value));
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

Result<ChildProcess> ChildProcess::start(const ChildOptions& options) {
  int in[2];
  int out[2];
  if (::pipe2(in, O_CLOEXEC) != 0) return fail(ErrorCode::kInternal, "start child", std::strerror(errno));
  if (::pipe2(out, O_CLOEXEC) != 0) return fail(ErrorCode::kInternal, "start child", std::strerror(errno));
  std::vector<std::string> arguments = options.arguments;
  std::vector<std::string> environment = merged_environment(options.environment);
  std::vector<char*> argument_pointers = pointers(arguments);
  std::vector<char*> environment_pointers = pointers(environment);
  const pid_t pid = ::fork();
  if (pid < 0) return fail(ErrorCode::kInternal, "start child", std::strerror(errno));
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is killed leaves nothing behind
    if (options.network >= 0 && ::setns(options.network, CLONE_NEWNET) != 0) ::_exit(126);
    ::dup2(in[0], STDIN_FILENO);
    ::dup2(out[1], STDOUT_FILENO);
    if (!options.stderr_file.empty()) {
      const int file = ::open(options.stderr_file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
      if (file >= 0) ::dup2(file, STDERR_FILENO);
    }
    // Sockets of the parent that were not opened with SOCK_CLOEXEC would stay open here after the parent has closed them.
    ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    ::execve(argument_pointers[0], argument_pointers.data(), environment_pointers.data());
    ::_exit(127);
  }
  ::close(in[0]);
  ::close(out[1]);
  ChildProcess child;
  child.pid_ = pid;
  child.to_child_ = in[1];
  child.from_child_ = out[0];
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept { *this = std::move(other); }

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(to_child_, other.to_child_);
  std::swap(from_child_, other.from_child_);
  std::swap(buffered_, other.buffered_);
  std::swap(status_, other.status_);
  std::swap(cpu_seconds_, other.cpu_seconds_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0 && !status_) {
    ::kill(pid_, SIGKILL);
    reap(0);
  }
  close_pipes();
}

void ChildProcess::close_pipes() {
  if (to_child_ >= 0) ::close(std::exchange(to_child_, -1));
  if (from_child_ >= 0) ::close(std::exchange(from_child_, -1));
}

bool ChildProcess::reap(int flags) {
  if (status_) return true;
  int status = 0;
  struct rusage usage {};
  if (::wait4(pid_, &status, flags, &usage) != pid_) return false;
  status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6; };
  cpu_seconds_ = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  return true;
}

bool ChildProcess::is_running() { return !reap(WNOHANG); }

Result<std::string> ChildProcess::read_line(std::chrono::milliseconds timeout) {
  const TimePoint deadline = Clock::now() + timeout;
  while (true) {
    if (const std::size_t end = buffered_.find('\n'); end != std::string::npos) {
      std::string line = buffered_.substr(0, end);
      buffered_.erase(0, end + 1);
      return line;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd waiting{from_child_, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&waiting, 1, static_cast<int>(left.count())) == 0) {
      return fail(ErrorCode::kTimeout, "read from child", fmt::format("process {} said nothing for {} ms", pid_, timeout.count()));
    }
    char bytes[4096];
    const ssize_t count = ::read(from_child_, bytes, sizeof bytes);
    if (count <= 0) return fail(ErrorCode::kUnavailable, "read from child", fmt::format("process {} closed its output", pid_));
    buffered_.append(bytes, static_cast<std::size_t>(count));
  }
}

Status ChildProcess::write(const std::string& text) {
  const ssize_t count = ::write(to_child_, text.data(), text.size());
  if (count != static_cast<ssize_t>(text.size())) return fail(ErrorCode::kUnavailable, "write to child", std::strerror(errno));
  return {};
}

void ChildProcess::signal(int number) const {
  if (pid_ > 0 && !status_) ::kill(pid_, number);
}

Result<int> ChildProcess::wait(std::chrono::milliseconds timeout) {
  const TimePoint deadline = Clock::now() + timeout;
  while (!reap(WNOHANG)) {
    if (Clock::now() >= deadline) return fail(ErrorCode::kTimeout, "wait for child", fmt::format("process {} has not ended", pid_));
    // Its stdout closes when it ends, which wakes this up; what it still says is kept.
    pollfd waiting{from_child_, POLLIN, 0};
    ::poll(&waiting, 1, 10);
    char bytes[4096];
    if ((waiting.revents & POLLIN) != 0) {
      const ssize_t count = ::read(from_child_, bytes, sizeof bytes);
      if (count > 0) buffered_.append(bytes, static_cast<std::size_t>(count));
    }
  }
  return *status_;
}

std::uint16_t free_port() {
  // Below the ports that the system hands to outgoing connections: nobody takes one between this call and its use but for a fixed reason.
  constexpr unsigned kFirst = 10'000;
  constexpr unsigned kCount = 22'000;
  static std::atomic<unsigned> calls{static_cast<unsigned>(::getpid()) * 97U};
  for (unsigned attempt = 0; attempt < kCount; ++attempt) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const auto port = static_cast<std::uint16_t>(kFirst + calls.fetch_add(1) % kCount);
    address.sin_port = htons(port);
    const bool is_bound = ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    ::close(socket);
    if (is_bound) return port;
  }
  return 0;
}

}  // namespace sluice::support
