#pragma once

// Bounds on what the topology readers take: files come from people and may be anything.

#include <cstddef>

namespace sluice::topology {

// The largest real file known is 1 MB (a fabric listing); one machine's XML stays below 64 KB.
inline constexpr std::size_t kFileBytesMax = std::size_t{16} * 1024 * 1024;
inline constexpr std::size_t kXmlElementsMax = 100'000;
// NCCL nests cpu, up to eight bridges, gpu, nvlink.
inline constexpr std::size_t kXmlDepthMax = 64;
// NCCL takes 16; RCCL and newer versions write more.
inline constexpr std::size_t kXmlAttributesMax = 32;
// GPUs and NICs of one machine. The largest known has 16 and 18; every pair becomes a link, so the square counts.
inline constexpr std::size_t kEndpointsMax = 512;
// Lines of a pasted text that are looked at.
inline constexpr std::size_t kTextLinesMax = 50'000;
// Problems of one file that are kept; a broken file repeats itself.
inline constexpr std::size_t kProblemsMax = 200;

}  // namespace sluice::topology
