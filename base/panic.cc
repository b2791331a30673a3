#include "base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace sluice {

void panic(const char* file, int line, const std::string& message) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, message.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace sluice
