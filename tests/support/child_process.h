#pragma once

// A child process of a test or benchmark with pipes to its stdin and stdout, ended by pid. Not thread-safe. The destructor kills what is
// left: nothing that was started outlives its owner.

#include <sys/resource.h>
#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice::support {

struct ChildOptions {
  std::vector<std::string> arguments;              // arguments[0] is the program
  std::map<std::string, std::string> environment;  // added to the parent's
  std::string stderr_file;                         // appended to; empty: the parent's stderr
  int network = -1;                                // descriptor of the network namespace to run in; -1: the parent's
};

class ChildProcess {
 public:
  static Result<ChildProcess> start(const ChildOptions& options);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess();

  [[nodiscard]] pid_t pid() const { return pid_; }
  // Next line of its stdout, without the newline. kTimeout, or kUnavailable when it closed its stdout.
  Result<std::string> read_line(std::chrono::milliseconds timeout);
  // Writes to its stdin. kUnavailable when it is gone.
  Status write(const std::string& text);
  void signal(int number) const;
  // Waits for its end; exit status, or 128 + signal. kTimeout.
  Result<int> wait(std::chrono::milliseconds timeout);
  [[nodiscard]] bool is_running();
  // Processor time, user and system, of a child that has ended.
  [[nodiscard]] double cpu_seconds() const { return cpu_seconds_; }

 private:
  ChildProcess() = default;
  void close_pipes();
  bool reap(int flags);

  pid_t pid_ = -1;
  int to_child_ = -1;
  int from_child_ = -1;
  std::string buffered_;
  std::optional<int> status_;
  double cpu_seconds_ = 0.0;
};

// A TCP port of 127.0.0.1 that was free a moment ago.
std::uint16_t free_port();

}  // namespace sluice::support
