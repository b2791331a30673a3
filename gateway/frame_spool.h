#pragma once

// FrameSpool: the frames of the rounds in progress, and the committed updates of the last rounds for sites that missed them, within fixed
// budgets of memory and disk. Frames stay in memory while they fit; the rest goes to a file per round that is unlinked from the start and
// so never outlives the process. promote() turns an update into a replay file (update-<round>.frames) that does: it is checked when it is
// found again at the start and on each read, and is not flushed, because a peer's copy replaces a lost one.
// Any thread: every function locks for its own short work; file contents are read and written outside the lock. Holds no timers.
// Errors: kNotFound, kDiskFull (also: the disk budget), kDiskFailed, kSpoolCorrupt.

#include <compare>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "proto/record.h"

namespace sluice::gateway {

using FrameBytes = std::shared_ptr<const ByteVector>;

// Which frame: a contribution has the site that contributes and no `counted`; an update has `counted` and no site.
struct FrameKey {
  RoundId round;
  wire::FrameRole role = wire::FrameRole::kContribution;
  SiteId site;
  SiteSet counted;
  ChunkId chunk;
  auto operator<=>(const FrameKey&) const = default;
};

struct SpoolOptions {
  std::filesystem::path directory;     // made when missing
  std::uint64_t memory_bytes_max = 0;  // frames held in memory
  std::uint64_t disk_bytes_max = 0;    // overflow and replay files together
  std::size_t keep_rounds = 64;        // replay files kept
};

class FrameSpool {
 public:
  // Finds the replay files of earlier runs and checks their ends; damaged ones are removed (warnings()). Removes half-written ones.
  static Result<FrameSpool> open(SpoolOptions options);
  FrameSpool(FrameSpool&&) noexcept;
  FrameSpool& operator=(FrameSpool&&) noexcept;
  ~FrameSpool();
  [[nodiscard]] const std::vector<std::string>& warnings() const;

  // ---- frames of rounds in progress ----
  // Replaces a frame with the same key. When neither memory nor disk has room (old replay files make way first): kDiskFull.
  Status put(const FrameKey& key, FrameBytes bytes);
  Status put(const FrameKey& key, ByteVector bytes);
  [[nodiscard]] Result<FrameBytes> get(const FrameKey& key) const;
  [[nodiscard]] bool has(const FrameKey& key) const;
  // Forgets the frames of the round in progress, wherever they are. Its replay file stays.
  void drop_round(RoundId round);
  // As drop_round for every round before `round`.
  void drop_rounds_before(RoundId round);

  // ---- committed updates ----
  // Writes the update of `round` for the set `counted` (chunks 0 .. chunks-1, all present: kNotFound otherwise) to its replay file, then
  // lets the oldest replay files go that are over keep_rounds or the disk budget. Its frames in progress stay until drop_round().
  Status promote(RoundId round, SiteSet counted, std::uint32_t chunks);
  [[nodiscard]] bool has_committed(RoundId round) const;
  // kSpoolCorrupt also removes the file: the round is to be had from a peer.
  [[nodiscard]] Result<FrameBytes> get_committed(RoundId round, ChunkId chunk);
  [[nodiscard]] std::optional<RoundId> oldest_round() const;  // of the replay files
  [[nodiscard]] std::optional<RoundId> newest_round() const;
  // Gives the space of the oldest replay file back to the disk; false when at most one is left.
  bool free_oldest();
  // The same before open().
  static bool free_oldest_in(const std::filesystem::path& directory);
  // Removes the replay file of a round, and of all after it: after a state transfer they may belong to another history.
  void drop_committed_from(RoundId round);

  [[nodiscard]] std::uint64_t bytes_in_memory() const;
  [[nodiscard]] std::uint64_t bytes_on_disk() const;

 private:
  struct Impl;
  explicit FrameSpool(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::gateway
