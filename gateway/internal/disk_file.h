#pragma once

// DiskFile: a file descriptor with its path, closed at the end of its scope; every failure is an Error that says which call on which file
// and why. No space, quota or file size left is kDiskFull, anything else kDiskFailed. Reads and writes name their offset, so that several
// threads may use one file at different places. Nothing here is buffered in the process.

#include <cstdint>
#include <filesystem>
#include <span>

#include "base/bytes.h"
#include "base/result.h"

namespace sluice::gateway {

enum class OpenMode : std::uint8_t {
  kRead,
  kReadWrite,  // made when missing
  kReplace,    // emptied when it is there
};

class DiskFile {
 public:
  // kNotFound when kRead and it does not exist. New files can be read by their owner only.
  static Result<DiskFile> open(const std::filesystem::path& path, OpenMode mode);
  // A file without a name in `directory`: gone with its descriptor, whatever ends the process.
  static Result<DiskFile> open_unnamed(const std::filesystem::path& directory);
  DiskFile(DiskFile&& other) noexcept;
  DiskFile& operator=(DiskFile&& other) noexcept;
  ~DiskFile();

  // Fills `into` unless the file ends before; returns how much was read.
  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::uint8_t> into) const;
  // All or an error; after an error some of it may have been written.
  Status write_at(std::uint64_t offset, ByteSpan bytes);
  // For files that are written once and rarely read: begins to bring the range to the disk, without waiting for it, ...
  void start_writeback(std::uint64_t offset, std::uint64_t bytes) const;
  // ... and gives back the memory in which the system holds what is on the disk by now. Both are requests: contents never depend on them.
  void drop_cached(std::uint64_t offset, std::uint64_t bytes) const;
  Status truncate(std::uint64_t bytes);
  Status sync();  // contents and size, not the directory entry
  [[nodiscard]] Result<std::uint64_t> size() const;
  // Gives the file another name, in place of any file that has it. Not durable before sync_directory().
  Status rename_to(const std::filesystem::path& path);
  // Takes the whole-file lock without waiting; false when another open file has it. Ends with the descriptor.
  Result<bool> try_lock();
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  DiskFile(int descriptor, std::filesystem::path path);
  [[nodiscard]] Error error(const char* call) const;
  int descriptor_ = -1;
  std::filesystem::path path_;
};

// The whole file; kLimitExceeded when it is longer than `bytes_max`.
Result<ByteVector> read_file(const std::filesystem::path& path, std::uint64_t bytes_max);
// A directory that is made is the owner's only; one that is there stays as it is.
Status make_directories(const std::filesystem::path& path);
// Removing a file that is not there is no error.
Status remove_file(const std::filesystem::path& path);
// Makes creations, renames and removals in the directory durable.
Status sync_directory(const std::filesystem::path& path);

}  // namespace sluice::gateway
