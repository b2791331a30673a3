// Goal: no record that append() called durable is ever lost or changed, and damage is told from a crash's torn tail. Method: real files in
// a temporary directory; crashes are played by cutting, zeroing and flipping bytes at every place of the file, by SIGKILL of a writing
// child, and a full disk by RLIMIT_FSIZE, at which the kernel cuts writes short as it does at the end of a disk.

#include "gateway/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <string>
#include <vector>

#include "base/assert.h"
#include "gateway/internal/disk_file.h"
#include "gateway/internal/journal_format.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_directory.h"

namespace sluice::gateway {
namespace {

ByteVector payload_of(std::uint32_t number, std::size_t bytes = 50) {
  ByteVector payload(std::max<std::size_t>(bytes, 4));
  for (std::size_t index = 0; index < payload.size(); ++index) payload[index] = static_cast<std::uint8_t>(number * 31 + index);
  store_le(payload.data(), number);
  return payload;
}

std::uint32_t number_of(const ByteVector& payload) { return load_le<std::uint32_t>(payload.data()); }

std::vector<std::uint32_t> numbers_of(const Journal& journal) {
  std::vector<std::uint32_t> numbers;
  for (const ByteVector& payload : journal.records()) {
    EXPECT_EQ(payload, payload_of(number_of(payload), payload.size()));
    numbers.push_back(number_of(payload));
  }
  return numbers;
}

ByteVector content_of(const std::filesystem::path& path) {
  auto content = read_file(path, 1U << 30);
  EXPECT_TRUE(content) << path;
  return content.value_or(ByteVector{});
}

void replace_content(const std::filesystem::path& path, const ByteVector& content) {
  auto file = DiskFile::open(path, OpenMode::kReplace);
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->write_at(0, content));
}

class JournalTest : public testing::Test {
 protected:
  std::filesystem::path file() const { return directory_.path() / "journal"; }
  // A journal with records 1 .. count, each durable.
  void write_records(std::uint32_t count) {
    auto journal = Journal::open(directory_.path());
    ASSERT_TRUE(journal) << journal.error().to_string();
    for (std::uint32_t number = 1; number <= count; ++number) {
      ASSERT_TRUE(journal->append(payload_of(number), Durability::kDurable));
    }
  }
  test_support::TemporaryDirectory directory_;
};

TEST_F(JournalTest, RecordsComeBackInOrder) {
  write_records(5);
  auto journal = Journal::open(directory_.path());
  ASSERT_TRUE(journal);
  EXPECT_THAT(numbers_of(*journal), testing::ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(journal->warning(), "");
  ASSERT_TRUE(journal->append(payload_of(6), Durability::kBuffered));
  ASSERT_TRUE(journal->sync());
  EXPECT_THAT(numbers_of(*journal), testing::ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_F(JournalTest, RecordsOfAnyLengthComeBack) {
  const std::vector<std::size_t> lengths{4, 5, 7, 8, 9, 31, 32, 33, 4096, 100'001, kJournalRecordBytesMax};
  {
    auto journal = Journal::open(directory_.path());
    ASSERT_TRUE(journal);
    for (const std::size_t length : lengths) ASSERT_TRUE(journal->append(payload_of(7, length), Durability::kBuffered));
  }
  auto journal = Journal::open(directory_.path());
  ASSERT_TRUE(journal);
  ASSERT_EQ(journal->records().size(), lengths.size());
  for (std::size_t index = 0; index < lengths.size(); ++index) EXPECT_EQ(journal->records()[index], payload_of(7, lengths[index]));
}

TEST_F(JournalTest, EveryStartCounts) {
  for (std::uint64_t start = 1; start <= 4; ++start) {
    auto journal = Journal::open(directory_.path());
    ASSERT_TRUE(journal);
    EXPECT_EQ(journal->boot_count(), start);
  }
}

TEST_F(JournalTest, ASecondGatewayOnTheSameDirectoryIsRefused) {
  auto first = Journal::open(directory_.path());
  ASSERT_TRUE(first);
  const auto second = Journal::open(directory_.path());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kJournalLocked);
  EXPECT_THAT(second.error().detail, testing::HasSubstr(std::to_string(::getpid())));
}

// A crash may leave the file at any length: all records before the cut are there, and the journal goes on from the last of them.
TEST_F(JournalTest, ATornTailIsDroppedAtEveryLength) {
  write_records(3);
  const ByteVector whole = content_of(file());
  for (std::size_t length = kJournalFileHeaderBytes; length < whole.size(); length += 7) {
    replace_content(file(), ByteVector(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)));
    auto journal = Journal::open(directory_.path());
    ASSERT_TRUE(journal) << length << ": " << journal.error().to_string();
    const std::size_t kept = journal->records().size();
    for (std::uint32_t number = 1; number <= kept; ++number) EXPECT_EQ(number_of(journal->records()[number - 1]), number);
    ASSERT_TRUE(journal->append(payload_of(99), Durability::kDurable));
    journal = fail(ErrorCode::kInternal, "close", "");
    journal = Journal::open(directory_.path());
    ASSERT_TRUE(journal);
    EXPECT_EQ(journal->records().size(), kept + 1);
    EXPECT_EQ(journal->warning(), "");
  }
}

TEST_F(JournalTest, ATailOfZerosOrGarbageIsDroppedWithAWarning) {
  for (const std::uint8_t filler : {std::uint8_t{0}, std::uint8_t{0xa5}}) {
    write_records(2);
    ByteVector content = content_of(file());
    content.insert(content.end(), 5000, filler);
    replace_content(file(), content);
    auto journal = Journal::open(directory_.path());
    ASSERT_TRUE(journal);
    EXPECT_THAT(journal->warning(), testing::HasSubstr("5000 bytes"));
    EXPECT_EQ(number_of(journal->records().back()), 2U);
  }
}

// Any flipped bit of a record that a later record calls flushed is corruption, never a torn tail.
TEST_F(JournalTest, DamageBeforeFlushedRecordsIsRefusedAndNamesTheOffset) {
  write_records(3);
  const ByteVector whole = content_of(file());
  const std::size_t record_bytes = encode_journal_record({JournalKind::kCaller, 0, payload_of(1)}, 0).size();
  const std::size_t last_record = whole.size() - record_bytes;
  const std::size_t first_record = last_record - 2 * record_bytes;
  for (std::size_t at = first_record; at < first_record + kJournalRecordHeaderBytes + 50; ++at) {
    ByteVector damaged = whole;
    damaged[at] ^= 0x10U;
    replace_content(file(), damaged);
    const auto journal = Journal::open(directory_.path());
    ASSERT_FALSE(journal) << at;
    EXPECT_EQ(journal.error().code, ErrorCode::kJournalCorrupt);
    EXPECT_THAT(journal.error().detail, testing::HasSubstr("offset " + std::to_string(first_record) + " "));
    EXPECT_THAT(journal.error().detail, testing::HasSubstr("mv "));
    EXPECT_EQ(content_of(file()), damaged) << "a refused journal is left as it is";
  }
}

// Pages that were not flushed may reach the disk in any order: a hole before an unflushed record is what a power loss leaves.
TEST_F(JournalTest, AHoleInUnflushedRecordsIsATornTail) {
  {
    auto journal = Journal::open(directory_.path());
    ASSERT_TRUE(journal);
    ASSERT_TRUE(journal->append(payload_of(1), Durability::kDurable));
    for (std::uint32_t number = 2; number <= 4; ++number) ASSERT_TRUE(journal->append(payload_of(number), Durability::kBuffered));
  }
  ByteVector content = content_of(file());
  const std::size_t record_bytes = encode_journal_record({JournalKind::kCaller, 0, payload_of(1)}, 0).size();
  content[content.size() - 3 * record_bytes + 20] ^= 1U;
  replace_content(file(), content);
  auto journal = Journal::open(directory_.path());
  ASSERT_TRUE(journal) << journal.error().to_string();
  EXPECT_THAT(numbers_of(*journal), testing::ElementsAre(1));
  EXPECT_NE(journal->warning(), "");
}

TEST_F(JournalTest, AnotherFileIsNotTakenForAJournal) {
  ASSERT_TRUE(make_directories(directory_.path()));
  replace_content(file(), ByteVector(500, 'x'));
  const auto journal = Journal::open(directory_.path());
  ASSERT_FALSE(journal);
  EXPECT_EQ(journal.error().code, ErrorCode::kJournalCorrupt);
}

TEST_F(JournalTest, ARecordMovedToAnotherPlaceIsNotValid) {
  const ByteVector record = encode_journal_record({JournalKind::kCaller, 0, payload_of(1)}, kJournalFileHeaderBytes);
  ByteVector content = encode_journal_file_header();
  content.insert(content.end(), record.begin(), record.end());
  EXPECT_EQ(scan_journal(content, kJournalRecordBytesMax).records.size(), 1U);
  content.insert(content.end(), record.begin(), record.end());
  EXPECT_EQ(scan_journal(content, kJournalRecordBytesMax).records.size(), 1U);
}

TEST_F(JournalTest, AFullDiskLeavesTheFileWholeAndAppendsWorkAgain) {
  auto journal = Journal::open(directory_.path());
  ASSERT_TRUE(journal);
  ASSERT_TRUE(journal->append(payload_of(1), Durability::kDurable));
  const std::uint64_t before = content_of(file()).size();
  {
    const test_support::FileSizeLimit limit(before + 70);  // the record's first part still fits
    for (int attempt = 0; attempt < 3; ++attempt) {
      const auto appended = journal->append(payload_of(2), Durability::kDurable);
      ASSERT_FALSE(appended);
      EXPECT_EQ(appended.error().code, ErrorCode::kDiskFull);
      EXPECT_EQ(content_of(file()).size(), before);
    }
  }
  ASSERT_TRUE(journal->append(payload_of(3), Durability::kDurable));
  EXPECT_THAT(numbers_of(*journal), testing::ElementsAre(1, 3));
  journal = fail(ErrorCode::kInternal, "close", "");
  journal = Journal::open(directory_.path());
  ASSERT_TRUE(journal);
  EXPECT_THAT(numbers_of(*journal), testing::ElementsAre(1, 3));
}

TEST_F(JournalTest, ALongFileIsRewrittenWithTheNewestRecords) {
  const JournalOptions options{.compact_above_bytes = 20'000, .keep_records = 10};
  {
    auto journal = Journal::open(directory_.path(), options);
    ASSERT_TRUE(journal);
    for (std::uint32_t number = 1; number <= 1000; ++number) {
      ASSERT_TRUE(journal->append(payload_of(number), Durability::kBuffered));
      ASSERT_LE(std::filesystem::file_size(file()), 20'200U);
    }
    EXPECT_GE(journal->stats().compactions, 3U);
    EXPECT_EQ(journal->records().size(), 10U);
  }
  auto journal = Journal::open(directory_.path(), options);
  ASSERT_TRUE(journal);
  EXPECT_EQ(journal->boot_count(), 2U);
  EXPECT_THAT(numbers_of(*journal), testing::ElementsAre(991, 992, 993, 994, 995, 996, 997, 998, 999, 1000));
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "journal.tmp"));
}

TEST_F(JournalTest, ACompactionThatFailsKeepsTheOldFileAndIsTriedAgain) {
  const JournalOptions options{.compact_above_bytes = 5'000, .keep_records = 10};
  auto journal = Journal::open(directory_.path(), options);
  ASSERT_TRUE(journal);
  const std::filesystem::path obstacle = directory_.path() / "journal.tmp";
  std::filesystem::create_directory(obstacle);
  std::uint32_t number = 0;
  while (journal->stats().file_bytes < 12'000) ASSERT_TRUE(journal->append(payload_of(++number), Durability::kBuffered));
  EXPECT_EQ(journal->stats().compactions, 0U);
  std::filesystem::remove(obstacle);
  while (journal->stats().file_bytes > 5'000) ASSERT_TRUE(journal->append(payload_of(++number), Durability::kBuffered));
  EXPECT_EQ(journal->stats().compactions, 1U);
  journal = fail(ErrorCode::kInternal, "close", "");
  journal = Journal::open(directory_.path(), options);
  ASSERT_TRUE(journal);
  EXPECT_EQ(number_of(journal->records().back()), number);
}

// Writes records 1, 2, ... and reports each through the pipe once append() returned. Rewrites the file all the time. Never returns.
[[noreturn]] void write_until_killed(const std::filesystem::path& directory, int report_to) {
  auto journal = Journal::open(directory, {.compact_above_bytes = 3'000, .keep_records = 100'000});
  for (std::uint32_t number = 1; journal && number < 100'000; ++number) {
    if (!journal->append(payload_of(number), number % 4 == 0 ? Durability::kDurable : Durability::kBuffered)) break;
    if (::write(report_to, &number, sizeof number) != sizeof number) break;
  }
  ::_exit(1);
}

// Starts the writer, kills it once it has reported `kill_after` records, and returns how many it had reported in the end.
std::uint32_t kill_writer_after(std::uint32_t kill_after, const std::filesystem::path& directory) {
  std::array<int, 2> pipe_ends{};
  SLUICE_ASSERT(::pipe(pipe_ends.data()) == 0);
  const pid_t child = ::fork();
  SLUICE_ASSERT(child >= 0);
  if (child == 0) {
    ::close(pipe_ends[0]);
    write_until_killed(directory, pipe_ends[1]);
  }
  ::close(pipe_ends[1]);
  std::uint32_t reported = 0;
  bool is_killed = false;
  while (::read(pipe_ends[0], &reported, sizeof reported) == sizeof reported) {
    if (reported >= kill_after && !is_killed) is_killed = ::kill(child, SIGKILL) == 0;
  }
  ::close(pipe_ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  return reported;
}

TEST_F(JournalTest, SigkillLosesNothingThatWasReported) {
  for (const std::uint32_t kill_after : {1U, 20U, 57U, 120U}) {
    const std::filesystem::path directory = directory_.path() / std::to_string(kill_after);
    const std::uint32_t reported = kill_writer_after(kill_after, directory);
    EXPECT_GE(reported, kill_after);
    auto journal = Journal::open(directory, {.keep_records = 100'000});
    ASSERT_TRUE(journal) << journal.error().to_string();
    const auto numbers = numbers_of(*journal);
    ASSERT_GE(numbers.size(), reported);
    for (std::uint32_t index = 0; index < numbers.size(); ++index) EXPECT_EQ(numbers[index], index + 1);
  }
}

TEST_F(JournalTest, FullDiskIsGivenRoomAndTheRecordWrittenAfterAll) {
  int gifts = 2;
  std::optional<test_support::FileSizeLimit> limit;
  JournalOptions options;
  options.make_room = [&] {
    if (gifts-- == 0) return false;
    if (gifts == 0) limit.reset();  // the second gift is large enough
    return true;
  };
  auto journal = Journal::open(directory_.path(), options);
  ASSERT_TRUE(journal) << journal.error().to_string();
  limit.emplace(std::filesystem::file_size(directory_.path() / "journal") + 10);
  EXPECT_TRUE(journal->append(ByteVector(100, 7), Durability::kDurable));
  EXPECT_EQ(gifts, 0);
  limit.emplace(std::filesystem::file_size(directory_.path() / "journal") + 10);
  const Status refused = journal->append(ByteVector(100, 8), Durability::kDurable);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kDiskFull);
}

}  // namespace
}  // namespace sluice::gateway
