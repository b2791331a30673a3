#pragma once

// Limits of the configuration file: far above any real one, far below what could hurt.

#include <cstddef>

namespace sluice::gateway {

inline constexpr std::size_t kConfigBytesMax = 1024 * 1024;  // the file
inline constexpr std::size_t kConfigDepthMax = 16;           // nesting; the deepest key is at 4
inline constexpr std::size_t kConfigNodesMax = 10'000;       // scalars, lists and maps, all together
inline constexpr std::size_t kConfigValueBytesMax = 4096;    // one scalar after substitution
inline constexpr std::size_t kConfigProblemsMax = 50;        // reported from one file; a person corrects these first
inline constexpr std::size_t kSharedLinesMax = 256;          // of a peer's shared settings; ours are about 45
inline constexpr std::size_t kSocketPathBytesMax = 107;      // sockaddr_un: 108 with the final zero

}  // namespace sluice::gateway
