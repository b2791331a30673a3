#pragma once

// A replay file: the frames of one committed update, for sites that missed the round (docs/reference/journal.md).
//     frames, one behind the other; table with one 32-byte entry a chunk; 48-byte trailer
// Each part carries its own hash, so that one chunk is read and checked with two short reads and no part of the file has to stay in memory.
// Not flushed: a file that a power loss mangled fails its checks and is thrown away. No state, any thread.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"

namespace sluice::gateway {

struct ReplayInfo {
  RoundId round;
  SiteSet counted;
  std::uint32_t chunks = 0;
  std::uint64_t file_bytes = 0;
};

// "update-<round>.frames".
std::filesystem::path replay_file_name(RoundId round);
// Nothing when the name is not of that form.
std::optional<RoundId> parse_replay_file_name(const std::filesystem::path& name);
// What a replay file takes beyond its frames.
std::uint64_t replay_overhead_bytes(std::uint32_t chunks);

// Writes the file under a temporary name and renames it. `frame_of` gives the frames in ascending order of chunks; its errors end the
// writing.
Status write_replay_file(const std::filesystem::path& directory, RoundId round, SiteSet counted, std::uint32_t chunks,
                         const std::function<Result<std::shared_ptr<const ByteVector>>(ChunkId)>& frame_of);
// Checks trailer and length. kSpoolCorrupt, kNotFound.
Result<ReplayInfo> read_replay_info(const std::filesystem::path& path);
// Reads and checks one frame. kSpoolCorrupt, kNotFound (no such file, or no such chunk in it).
Result<ByteVector> read_replay_frame(const std::filesystem::path& path, const ReplayInfo& info, ChunkId chunk);

}  // namespace sluice::gateway
