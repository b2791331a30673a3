#pragma once

// Journal: the committed and aborted rounds of this gateway, in an append-only file of the state directory that survives kill -9 and power
// loss. Format: docs/reference/journal.md. What a record means is the caller's affair: it is a byte vector (a wire::RoundRecord).
// Move-only, not thread-safe: one thread at a time, and not the loop when `kDurable` appends would hold it up (a flush takes 0.1 to 20 ms).
// Owns the directory's lock: a second gateway on the same directory is refused.

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace sluice::gateway {

struct JournalOptions {
  std::uint64_t compact_above_bytes = 4ULL * 1024 * 1024;  // a longer file is rewritten with the records that are kept
  std::size_t keep_records = 2048;                         // the newest; older ones go at the next compaction
  // Asked when the disk is full: makes room and returns true, or false when there is nothing left to give. May be empty.
  std::function<bool()> make_room = {};
};

inline constexpr std::size_t kJournalRecordBytesMax = 1024 * 1024;  // a RoundRecord takes some 300

enum class Durability : std::uint8_t {
  kBuffered,  // survives the end of the process, not of the machine
  kDurable,   // on the disk when append() returns
};

class Journal {
 public:
  // Makes the directory when missing, locks it, reads and checks the file, cuts off a record that a crash left half-written (warning()).
  // kJournalLocked: another process has the directory. kJournalCorrupt: damage that no crash explains; the message names the offset and
  // what to do. kDiskFull, kDiskFailed.
  static Result<Journal> open(const std::filesystem::path& directory, JournalOptions options = {});
  Journal(Journal&&) noexcept;
  Journal& operator=(Journal&&) noexcept;
  ~Journal();

  // Adds one record after all others. On kDiskFull the file is as before and a later append works once there is room. After kDiskFailed
  // (the disk itself) every append fails until the process starts again: what reached the disk is not known.
  // REQUIRES: 1 .. kJournalRecordBytesMax bytes.
  Status append(ByteSpan payload, Durability durability);
  // Makes all earlier records durable.
  Status sync();

  // The newest keep_records, oldest first: those recovered and those appended since.
  [[nodiscard]] const std::deque<ByteVector>& records() const;
  // What recovery had to drop, in words for the log; empty when the file was whole.
  [[nodiscard]] const std::string& warning() const;
  // Starts of a gateway on this directory, this one included: 1 at the first. Durable before open() returns, so no two starts share it.
  [[nodiscard]] std::uint64_t boot_count() const;

  struct Stats {
    std::uint64_t file_bytes = 0;
    std::uint64_t appends = 0;
    std::uint64_t syncs = 0;
    std::uint64_t compactions = 0;
    double last_sync_seconds = 0.0;
  };
  [[nodiscard]] const Stats& stats() const;

 private:
  struct Impl;
  explicit Journal(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::gateway
