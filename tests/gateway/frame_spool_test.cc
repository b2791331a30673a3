// Goal: the spool gives back the bytes that were put, from memory, overflow or replay file, or a typed error; it keeps to its budgets;
// damage on disk is found. Method: real files in a temporary directory; damage by flipping bytes of the files, a full disk by a limit on
// file sizes.

#include "gateway/frame_spool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "gateway/internal/disk_file.h"
#include "gateway/internal/replay_file.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_directory.h"

namespace sluice::gateway {
namespace {

constexpr SiteSet kAll{0b111};

FrameKey contribution(std::uint64_t round, std::uint16_t site, std::uint32_t chunk) {
  return {RoundId(round), wire::FrameRole::kContribution, SiteId(site), SiteSet{}, ChunkId(chunk)};
}

FrameKey update(std::uint64_t round, std::uint32_t chunk, SiteSet counted = kAll) {
  return {RoundId(round), wire::FrameRole::kUpdate, SiteId(0), counted, ChunkId(chunk)};
}

ByteVector frame_of(std::uint64_t round, std::uint32_t chunk, std::size_t bytes = 1000) {
  ByteVector frame(bytes);
  for (std::size_t index = 0; index < bytes; ++index) frame[index] = static_cast<std::uint8_t>(round * 7 + chunk * 13 + index);
  return frame;
}

class FrameSpoolTest : public testing::Test {
 protected:
  FrameSpool open(std::uint64_t memory, std::uint64_t disk, std::size_t keep_rounds = 64) {
    auto spool = FrameSpool::open({directory_.path(), memory, disk, keep_rounds});
    EXPECT_TRUE(spool) << spool.error().to_string();
    return std::move(*spool);
  }
  // An update of `chunks` frames of 1000 bytes, committed and out of progress.
  void commit(FrameSpool& spool, std::uint64_t round, std::uint32_t chunks) {
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) ASSERT_TRUE(spool.put(update(round, chunk), frame_of(round, chunk)));
    const auto promoted = spool.promote(RoundId(round), kAll, chunks);
    ASSERT_TRUE(promoted) << promoted.error().to_string();
    spool.drop_round(RoundId(round));
  }
  std::filesystem::path replay(std::uint64_t round) const { return directory_.path() / replay_file_name(RoundId(round)); }
  // Flips one bit of a file.
  void damage(const std::filesystem::path& path, std::uint64_t offset) {
    auto file = DiskFile::open(path, OpenMode::kReadWrite);
    ASSERT_TRUE(file);
    ByteVector byte(1);
    ASSERT_TRUE(file->read_at(offset, byte));
    byte[0] ^= 1U;
    ASSERT_TRUE(file->write_at(offset, byte));
  }
  test_support::TemporaryDirectory directory_;
};

TEST_F(FrameSpoolTest, AFrameInMemoryIsSharedNotCopied) {
  FrameSpool spool = open(1 << 20, 1 << 20);
  const auto bytes = std::make_shared<const ByteVector>(frame_of(1, 2));
  ASSERT_TRUE(spool.put(contribution(1, 0, 2), bytes));
  EXPECT_EQ(*spool.get(contribution(1, 0, 2)), bytes);
  EXPECT_TRUE(spool.has(contribution(1, 0, 2)));
  EXPECT_EQ(spool.bytes_in_memory(), 1000U);
  EXPECT_EQ(spool.bytes_on_disk(), 0U);
}

TEST_F(FrameSpoolTest, KeysThatDifferInAnyPartAreDifferentFrames) {
  FrameSpool spool = open(1 << 20, 1 << 20);
  const std::vector<FrameKey> keys{contribution(1, 0, 0), contribution(2, 0, 0), contribution(1, 1, 0),       contribution(1, 0, 1),
                                   update(1, 0),          update(1, 1),          update(1, 0, SiteSet{0b011})};
  for (std::uint32_t index = 0; index < keys.size(); ++index) ASSERT_TRUE(spool.put(keys[index], frame_of(9, index)));
  for (std::uint32_t index = 0; index < keys.size(); ++index) EXPECT_EQ(**spool.get(keys[index]), frame_of(9, index));
  EXPECT_EQ(spool.get(contribution(1, 2, 0)).error().code, ErrorCode::kNotFound);
}

TEST_F(FrameSpoolTest, FramesOverTheMemoryBudgetGoToDiskAndComeBack) {
  FrameSpool spool = open(2500, 1 << 20);
  for (std::uint32_t chunk = 0; chunk < 10; ++chunk) ASSERT_TRUE(spool.put(contribution(1, 0, chunk), frame_of(1, chunk)));
  EXPECT_EQ(spool.bytes_in_memory(), 2000U);
  EXPECT_EQ(spool.bytes_on_disk(), 8000U);
  for (std::uint32_t chunk = 0; chunk < 10; ++chunk) EXPECT_EQ(**spool.get(contribution(1, 0, chunk)), frame_of(1, chunk));
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path())) << "overflow files have no name";
  spool.drop_round(RoundId(1));
  EXPECT_EQ(spool.bytes_in_memory() + spool.bytes_on_disk(), 0U);
  EXPECT_FALSE(spool.has(contribution(1, 0, 9)));
}

TEST_F(FrameSpoolTest, ReplacingAFrameGivesBackItsMemory) {
  FrameSpool spool = open(1500, 1 << 20);
  for (int time = 0; time < 5; ++time) ASSERT_TRUE(spool.put(contribution(1, 0, 0), frame_of(1, 0)));
  EXPECT_EQ(spool.bytes_in_memory(), 1000U);
  EXPECT_EQ(spool.bytes_on_disk(), 0U);
}

TEST_F(FrameSpoolTest, DroppingRoundsLeavesLaterOnes) {
  FrameSpool spool = open(2000, 1 << 20);
  for (std::uint64_t round = 1; round <= 4; ++round) ASSERT_TRUE(spool.put(contribution(round, 1, 0), frame_of(round, 0)));
  spool.drop_rounds_before(RoundId(4));
  EXPECT_FALSE(spool.has(contribution(3, 1, 0)));
  EXPECT_EQ(**spool.get(contribution(4, 1, 0)), frame_of(4, 0));
  EXPECT_EQ(spool.bytes_in_memory(), 0U);
  EXPECT_EQ(spool.bytes_on_disk(), 1000U);
}

TEST_F(FrameSpoolTest, FramesOverBothBudgetsAreRefused) {
  FrameSpool spool = open(1000, 1500);
  ASSERT_TRUE(spool.put(contribution(1, 0, 0), frame_of(1, 0)));
  ASSERT_TRUE(spool.put(contribution(1, 0, 1), frame_of(1, 1)));
  const auto refused = spool.put(contribution(1, 0, 2), frame_of(1, 2));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kDiskFull);
  EXPECT_FALSE(spool.has(contribution(1, 0, 2)));
  EXPECT_EQ(spool.bytes_on_disk(), 1000U);
}

TEST_F(FrameSpoolTest, ACommittedUpdateSurvivesARestart) {
  {
    FrameSpool spool = open(2000, 1 << 20);
    commit(spool, 7, 5);
    commit(spool, 8, 5);
  }
  FrameSpool spool = open(0, 1 << 20);
  EXPECT_TRUE(spool.warnings().empty());
  EXPECT_EQ(spool.oldest_round(), RoundId(7));
  EXPECT_EQ(spool.newest_round(), RoundId(8));
  for (std::uint64_t round = 7; round <= 8; ++round) {
    for (std::uint32_t chunk = 0; chunk < 5; ++chunk)
      EXPECT_EQ(**spool.get_committed(RoundId(round), ChunkId(chunk)), frame_of(round, chunk));
  }
  EXPECT_EQ(spool.get_committed(RoundId(7), ChunkId(5)).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(spool.get_committed(RoundId(9), ChunkId(0)).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(spool.bytes_on_disk(), std::filesystem::file_size(replay(7)) + std::filesystem::file_size(replay(8)));
}

TEST_F(FrameSpoolTest, AnUpdateLargerThanWhatStaysCachedComesBackWhole) {
  constexpr std::uint32_t kChunks = 24;
  constexpr std::size_t kFrameBytes = (1 << 20) + 1;
  FrameSpool spool = open(1 << 30, 1 << 30);
  for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) ASSERT_TRUE(spool.put(update(3, chunk), frame_of(3, chunk, kFrameBytes)));
  ASSERT_TRUE(spool.promote(RoundId(3), kAll, kChunks));
  for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
    const auto found = spool.get_committed(RoundId(3), ChunkId(chunk));
    ASSERT_TRUE(found) << found.error().to_string();
    EXPECT_TRUE(**found == frame_of(3, chunk, kFrameBytes)) << chunk;
  }
}

TEST_F(FrameSpoolTest, AnUpdateWithAMissingChunkIsNotPromoted) {
  FrameSpool spool = open(1 << 20, 1 << 20);
  ASSERT_TRUE(spool.put(update(1, 0), frame_of(1, 0)));
  ASSERT_TRUE(spool.put(update(1, 2), frame_of(1, 2)));
  const auto promoted = spool.promote(RoundId(1), kAll, 3);
  ASSERT_FALSE(promoted);
  EXPECT_EQ(promoted.error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(spool.has_committed(RoundId(1)));
  EXPECT_EQ(spool.bytes_on_disk(), 0U);
}

TEST_F(FrameSpoolTest, TheOldestUpdatesGoFirst) {
  FrameSpool by_count = open(1 << 20, 1 << 20, 3);
  for (std::uint64_t round = 1; round <= 6; ++round) commit(by_count, round, 2);
  EXPECT_EQ(by_count.oldest_round(), RoundId(4));
  EXPECT_FALSE(std::filesystem::exists(replay(3)));

  FrameSpool by_bytes = open(1 << 20, 7000);
  for (std::uint64_t round = 7; round <= 12; ++round) {
    commit(by_bytes, round, 2);
    EXPECT_LE(by_bytes.bytes_on_disk(), 7000U);
  }
  EXPECT_EQ(by_bytes.oldest_round(), RoundId(10));
}

TEST_F(FrameSpoolTest, OldUpdatesMakeWayForTheRoundInProgress) {
  FrameSpool spool = open(0, 10'000);
  for (std::uint64_t round = 1; round <= 3; ++round) commit(spool, round, 2);
  for (std::uint32_t chunk = 0; chunk < 6; ++chunk) ASSERT_TRUE(spool.put(contribution(4, 0, chunk), frame_of(4, chunk)));
  EXPECT_EQ(spool.oldest_round(), RoundId(3));
  EXPECT_LE(spool.bytes_on_disk(), 10'000U);
}

TEST_F(FrameSpoolTest, ASmallerBudgetAtTheNextStartIsKept) {
  {
    FrameSpool spool = open(1 << 20, 1 << 20);
    for (std::uint64_t round = 1; round <= 5; ++round) commit(spool, round, 2);
  }
  FrameSpool spool = open(1 << 20, 5000);
  EXPECT_EQ(spool.oldest_round(), RoundId(4));
}

TEST_F(FrameSpoolTest, EveryDamagedByteOfAReplayFileIsFound) {
  constexpr std::uint32_t kChunks = 3;
  std::uint64_t bytes = 0;
  {
    FrameSpool spool = open(1 << 20, 1 << 20);
    commit(spool, 5, kChunks);
    bytes = std::filesystem::file_size(replay(5));
  }
  const auto pristine = read_file(replay(5), 1 << 20);
  ASSERT_TRUE(pristine);
  for (std::uint64_t offset = 0; offset < bytes; offset += offset < 2990 ? 97 : 1) {
    auto file = DiskFile::open(replay(5), OpenMode::kReplace);
    ASSERT_TRUE(file && file->write_at(0, *pristine));
    damage(replay(5), offset);
    FrameSpool spool = open(1 << 20, 1 << 20);
    bool is_found = !spool.has_committed(RoundId(5));
    EXPECT_EQ(spool.warnings().size(), is_found ? 1U : 0U);
    for (std::uint32_t chunk = 0; chunk < kChunks && !is_found; ++chunk) {
      const auto frame = spool.get_committed(RoundId(5), ChunkId(chunk));
      if (frame) {
        EXPECT_EQ(**frame, frame_of(5, chunk)) << offset;
      } else {
        is_found = true;
        EXPECT_EQ(frame.error().code, ErrorCode::kSpoolCorrupt);
        EXPECT_FALSE(spool.has_committed(RoundId(5))) << "a damaged update is forgotten, to be had from a peer";
      }
    }
    EXPECT_TRUE(is_found) << offset;
  }
}

TEST_F(FrameSpoolTest, HalfWrittenAndCutFilesAreRemovedAtTheStart) {
  {
    FrameSpool spool = open(1 << 20, 1 << 20);
    commit(spool, 1, 2);
    commit(spool, 2, 2);
  }
  std::filesystem::resize_file(replay(1), 1500);
  std::filesystem::path temporary = replay(3);
  temporary += ".0.tmp";
  ASSERT_TRUE(DiskFile::open(temporary, OpenMode::kReplace));
  ASSERT_TRUE(DiskFile::open(directory_.path() / "journal", OpenMode::kReplace));
  FrameSpool spool = open(1 << 20, 1 << 20);
  EXPECT_EQ(spool.oldest_round(), RoundId(2));
  EXPECT_THAT(spool.warnings(), testing::ElementsAre(testing::HasSubstr("update-1.frames removed")));
  EXPECT_FALSE(std::filesystem::exists(temporary));
  EXPECT_TRUE(std::filesystem::exists(directory_.path() / "journal")) << "other files are left alone";
}

TEST_F(FrameSpoolTest, AFullDiskIsReportedAndLeavesNoRubbish) {
  FrameSpool spool = open(1 << 20, 1 << 20);
  for (std::uint32_t chunk = 0; chunk < 4; ++chunk) ASSERT_TRUE(spool.put(update(1, chunk), frame_of(1, chunk)));
  {
    const test_support::FileSizeLimit limit(2500);
    const auto promoted = spool.promote(RoundId(1), kAll, 4);
    ASSERT_FALSE(promoted);
    EXPECT_EQ(promoted.error().code, ErrorCode::kDiskFull);
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
  EXPECT_EQ(spool.bytes_on_disk(), 0U);
  ASSERT_TRUE(spool.promote(RoundId(1), kAll, 4));
  EXPECT_EQ(**spool.get_committed(RoundId(1), ChunkId(3)), frame_of(1, 3));
}

// Frames of an update are written to its replay file as they come; in what order, and which ones twice, must not show.
TEST_F(FrameSpoolTest, UpdateWhoseFramesCameInAnyOrderAndTwiceIsPromotedAsItWasLast) {
  FrameSpool spool = open(1 << 20, 1 << 20);
  for (const std::uint32_t chunk : {2U, 0U, 3U, 1U}) ASSERT_TRUE(spool.put(update(7, chunk), frame_of(99, chunk)));
  for (const std::uint32_t chunk : {3U, 1U, 0U, 2U}) ASSERT_TRUE(spool.put(update(7, chunk), frame_of(7, chunk)));
  ASSERT_TRUE(spool.promote(RoundId(7), kAll, 4));
  for (std::uint32_t chunk = 0; chunk < 4; ++chunk) EXPECT_EQ(**spool.get_committed(RoundId(7), ChunkId(chunk)), frame_of(7, chunk));
  EXPECT_EQ(spool.bytes_on_disk(), std::filesystem::file_size(replay(7)));
}

TEST_F(FrameSpoolTest, UpdatesOfTwoSetsDoNotMix) {
  FrameSpool spool = open(1 << 20, 1 << 20);
  FrameKey other = update(7, 0);
  other.counted = SiteSet{0b001};
  ASSERT_TRUE(spool.put(update(7, 0), frame_of(7, 0)));
  ASSERT_TRUE(spool.put(other, frame_of(50, 0)));
  ASSERT_TRUE(spool.put(update(7, 1), frame_of(7, 1)));
  ASSERT_TRUE(spool.promote(RoundId(7), kAll, 2));
  EXPECT_EQ(**spool.get_committed(RoundId(7), ChunkId(0)), frame_of(7, 0));
  EXPECT_EQ(**spool.get_committed(RoundId(7), ChunkId(1)), frame_of(7, 1));
}

TEST_F(FrameSpoolTest, UnfinishedUpdateLeavesNothingBehind) {
  {
    FrameSpool spool = open(1 << 20, 1 << 20);
    ASSERT_TRUE(spool.put(update(7, 0), frame_of(7, 0)));
    EXPECT_GT(spool.bytes_on_disk(), 0U);
    spool.drop_round(RoundId(7));
    EXPECT_EQ(spool.bytes_on_disk(), 0U);
    ASSERT_TRUE(spool.put(update(8, 0), frame_of(8, 0)));
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

TEST_F(FrameSpoolTest, OldUpdatesMakeRoomForOthersButTheNewestStays) {
  {
    FrameSpool spool = open(1 << 20, 1 << 20);
    for (std::uint64_t round = 1; round <= 4; ++round) commit(spool, round, 1);
    EXPECT_TRUE(spool.free_oldest());
    EXPECT_EQ(spool.oldest_round(), RoundId(2));
    EXPECT_EQ(spool.bytes_on_disk(), 3 * std::filesystem::file_size(replay(2)));
  }
  EXPECT_TRUE(FrameSpool::free_oldest_in(directory_.path()));
  EXPECT_TRUE(FrameSpool::free_oldest_in(directory_.path()));
  EXPECT_FALSE(FrameSpool::free_oldest_in(directory_.path()));
  FrameSpool spool = open(1 << 20, 1 << 20);
  EXPECT_EQ(spool.oldest_round(), RoundId(4));
  EXPECT_FALSE(spool.free_oldest());
  EXPECT_FALSE(FrameSpool::free_oldest_in(directory_.path() / "missing"));
}

TEST_F(FrameSpoolTest, UpdatesOfAnotherHistoryCanBeDropped) {
  FrameSpool spool = open(1 << 20, 1 << 20);
  for (std::uint64_t round = 1; round <= 4; ++round) commit(spool, round, 1);
  spool.drop_committed_from(RoundId(3));
  EXPECT_EQ(spool.newest_round(), RoundId(2));
  EXPECT_FALSE(std::filesystem::exists(replay(4)));
}

// Threads put, get, promote and drop at once: every frame that is found has its own bytes, and the counts return to zero.
TEST_F(FrameSpoolTest, ThreadsMayUseItAtOnce) {
  FrameSpool spool = open(20'000, 1 << 20, 2);
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&spool, thread] {
      for (std::uint64_t turn = 0; turn < 25; ++turn) {
        const std::uint64_t round = thread * 100 + turn;
        for (std::uint32_t chunk = 0; chunk < 8; ++chunk) ASSERT_TRUE(spool.put(update(round, chunk), frame_of(round, chunk)));
        for (std::uint32_t chunk = 0; chunk < 8; ++chunk) EXPECT_EQ(**spool.get(update(round, chunk)), frame_of(round, chunk));
        EXPECT_TRUE(spool.promote(RoundId(round), kAll, 8));
        const auto committed = spool.get_committed(RoundId(round), ChunkId(5));
        EXPECT_TRUE(!committed || **committed == frame_of(round, 5));
        spool.drop_round(RoundId(round));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(spool.bytes_in_memory(), 0U);
  EXPECT_LE(spool.bytes_on_disk(), 2 * (8000 + replay_overhead_bytes(8)));
}

TEST(ReplayFileName, OnlyItsOwnFormIsParsed) {
  EXPECT_EQ(parse_replay_file_name("update-42.frames"), RoundId(42));
  for (const char* name : {"update-.frames", "update-x.frames", "update-42.frames.tmp", "update--1.frames",
                           "update-99999999999999999999.frames", "journal", "", "update-42"}) {
    EXPECT_FALSE(parse_replay_file_name(name)) << name;
  }
}

}  // namespace
}  // namespace sluice::gateway
