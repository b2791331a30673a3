#pragma once

// A replay file: the frames of one committed update, for sites that missed the round (docs/reference/journal.md).
//     frames, one behind the other; table with one 32-byte entry a chunk; 48-byte trailer
// Each part carries its own hash, so that one chunk is read and checked with two short reads and no part of the file has to stay in memory.
// Not flushed: a file that a power loss mangled fails its checks and is thrown away. No state, any thread.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "gateway/internal/disk_file.h"

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
// Whether the name is one of a file that a ReplayWriter had not finished.
bool is_temporary_replay_file(const std::filesystem::path& path);
// What a replay file takes beyond its frames.
std::uint64_t replay_overhead_bytes(std::uint32_t chunks);

// A replay file in the making, under a temporary name until finish(): frames may come in any order, so that a round's update is on the disk
// by the time its last frame has come. Unfinished, it is removed with the object. Not thread-safe, except that write() of different places
// may run at once.
class ReplayWriter {
 public:
  static Result<ReplayWriter> open(const std::filesystem::path& directory, RoundId round, SiteSet counted);
  ReplayWriter(ReplayWriter&& other) noexcept;
  ReplayWriter& operator=(ReplayWriter&& other) noexcept;
  ~ReplayWriter();

  // Where the frame goes: a place of its own behind all others. A chunk that comes again takes the place of the earlier one in the table.
  std::uint64_t reserve(std::uint64_t bytes);
  Status write(std::uint64_t offset, ByteSpan frame);
  void enter(ChunkId chunk, std::uint64_t offset, std::uint32_t length, std::uint64_t frame_hash);
  // Whether every chunk below `chunks`, and no other, is entered.
  [[nodiscard]] bool is_complete(std::uint32_t chunks) const;
  // Table and trailer, then the final name. REQUIRES: is_complete(chunks).
  Result<ReplayInfo> finish(std::uint32_t chunks);

  // Takes the name away at once: writes in progress go to a file that ends with them.
  void abandon() const;

  [[nodiscard]] RoundId round() const { return round_; }
  [[nodiscard]] SiteSet counted() const { return counted_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }  // of frames

 private:
  struct Entry {
    std::uint64_t offset = 0;
    std::uint32_t length = 0;
    std::uint64_t frame_hash = 0;
  };

  ReplayWriter(DiskFile file, RoundId round, SiteSet counted);

  std::optional<DiskFile> file_;  // until finish()
  RoundId round_;
  SiteSet counted_;
  std::map<std::uint32_t, Entry> entries_;
  std::uint64_t bytes_ = 0;
};

// Writes all frames at once. `frame_of` gives them in ascending order of chunks; its errors end the writing.
Result<ReplayInfo> write_replay_file(const std::filesystem::path& directory, RoundId round, SiteSet counted, std::uint32_t chunks,
                                     const std::function<Result<std::shared_ptr<const ByteVector>>(ChunkId)>& frame_of);
// Checks trailer and length. kSpoolCorrupt, kNotFound.
Result<ReplayInfo> read_replay_info(const std::filesystem::path& path);
// Reads and checks one frame. kSpoolCorrupt, kNotFound (no such file, or no such chunk in it).
Result<ByteVector> read_replay_frame(const std::filesystem::path& path, const ReplayInfo& info, ChunkId chunk);

}  // namespace sluice::gateway
