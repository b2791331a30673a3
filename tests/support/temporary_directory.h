#pragma once

// TemporaryDirectory: an empty directory of its own for each test, removed with everything in it at the end of its scope.

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "base/assert.h"

namespace sluice::test_support {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "sluice-test-XXXXXX").string();
    SLUICE_ASSERT(::mkdtemp(pattern.data()) != nullptr, "{}", pattern);
    path_ = pattern;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace sluice::test_support
