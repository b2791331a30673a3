#pragma once

// Bounds on what the topology readers take: files come from people and may be anything.

#include <cstddef>

namespace sluice::topology {

// The largest real file known is 1 MB (a fabric listing); one machine's XML stays below 64 KB; a saved graph of 10,000 GPUs takes 10 MB.
inline constexpr std::size_t kFileBytesMax = std::size_t{64} * 1024 * 1024;
inline constexpr std::size_t kXmlElementsMax = 100'000;
// NCCL nests cpu, up to eight bridges, gpu, nvlink; hwloc nests caches and bridges.
inline constexpr std::size_t kXmlDepthMax = 64;
// NCCL takes 16; RCCL and newer versions write more.
inline constexpr std::size_t kXmlAttributesMax = 32;
// GPUs and NICs of one machine. The largest known has 16 and 18; every pair becomes a link, so the square counts.
inline constexpr std::size_t kEndpointsMax = 512;
// Lines of a pasted text that are looked at, and of a fabric listing (one for each port of the network).
inline constexpr std::size_t kTextLinesMax = 50'000;
inline constexpr std::size_t kFabricLinesMax = 2'000'000;
// Problems of one file that are kept; a broken file repeats itself.
inline constexpr std::size_t kProblemsMax = 200;

// A description of switches and blocks of a large cluster is below 1 MB. The parser takes about 100 ns for each byte.
inline constexpr std::size_t kYamlBytesMax = std::size_t{4} * 1024 * 1024;
inline constexpr std::size_t kYamlValuesMax = 400'000;
inline constexpr std::size_t kYamlDepthMax = 32;
inline constexpr std::size_t kYamlDocumentsMax = 10'000;
inline constexpr std::size_t kJsonDepthMax = 32;

// Nodes, switches and groups that one file may name; "node[1-999999999]" is nine bytes.
inline constexpr std::size_t kNodesMax = 100'000;
// GPUs and links of a whole site. The largest training site known has 100,000 GPUs.
inline constexpr std::size_t kSiteDevicesMax = 4'000'000;
inline constexpr std::size_t kSiteLinksMax = 16'000'000;
inline constexpr std::size_t kClusterGpusMax = 200'000;
// A dimension of a cluster description in which every pair gets its own link; a larger one is joined by a device in the middle.
inline constexpr std::size_t kPairedDimensionMax = 64;

}  // namespace sluice::topology
