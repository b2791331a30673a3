#pragma once

// FileSizeLimit: while it lives, no file of this process grows past a size; the kernel cuts a longer write short and refuses the rest, as
// it does on a full disk. For the whole process: not beside other threads that write files.

#include <sys/resource.h>

#include <csignal>
#include <cstdint>

#include "base/assert.h"

namespace sluice::test_support {

class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::uint64_t bytes) {
    previous_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    SLUICE_ASSERT(::getrlimit(RLIMIT_FSIZE, &previous_) == 0);
    rlimit limited = previous_;
    limited.rlim_cur = bytes;
    SLUICE_ASSERT(::setrlimit(RLIMIT_FSIZE, &limited) == 0);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &previous_);
    std::signal(SIGXFSZ, previous_handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit previous_{};
  void (*previous_handler_)(int) = nullptr;
};

}  // namespace sluice::test_support
