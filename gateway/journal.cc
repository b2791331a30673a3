#include "gateway/journal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "base/clock.h"
#include "gateway/internal/disk_file.h"
#include "gateway/internal/journal_format.h"

namespace sluice::gateway {
namespace {

// Compaction keeps a file at a few MiB. One far longer is not ours.
constexpr std::uint64_t kFileBytesMax = 1024ULL * 1024 * 1024;

ByteVector encode_boot_count(std::uint64_t count) {
  ByteVector bytes;
  ByteWriter(bytes).write(count);
  return bytes;
}

// Another process's lock ends with that process, however it ends.
Result<DiskFile> lock_directory(const std::filesystem::path& directory) {
  SLUICE_TRY(auto lock, DiskFile::open(directory / "lock", OpenMode::kReadWrite));
  SLUICE_TRY(const bool is_ours, lock.try_lock());
  if (!is_ours) {
    const auto holder = read_file(directory / "lock", 64);
    const std::string process = holder ? std::string(holder->begin(), holder->end()) : std::string();
    return fail(ErrorCode::kJournalLocked, "lock " + directory.string(),
                fmt::format("process {} uses this directory", process.empty() ? "unknown" : process));
  }
  const std::string text = fmt::format("{}", ::getpid());
  // For people and the message above; on a full disk the lock holds without it.
  if (lock.truncate(0)) static_cast<void>(lock.write_at(0, ByteSpan(reinterpret_cast<const std::uint8_t*>(text.data()), text.size())));
  return lock;
}

Error corrupt(const std::filesystem::path& path, std::uint64_t offset, std::uint64_t file_bytes, const char* what) {
  return Error{
      ErrorCode::kJournalCorrupt, "read " + path.string(),
      fmt::format("{} at offset {} of {}; no crash explains it: check the disk. Move the file away (mv {} {}.bad) and start again: "
                  "the site then takes the state from its peers. If this gateway holds the run's store, do so only when no other "
                  "copy of the file is to be had; the store begins a new epoch",
                  what, offset, file_bytes, path.string(), path.string())};
}

}  // namespace

struct Journal::Impl {
  Impl(std::filesystem::path directory_, JournalOptions options_, DiskFile lock_, DiskFile file_)
      : directory(std::move(directory_)), options(std::move(options_)), lock(std::move(lock_)), file(std::move(file_)) {}

  std::filesystem::path path() const { return directory / "journal"; }
  std::filesystem::path temporary_path() const { return directory / "journal.tmp"; }

  Status recover();
  void take_in(std::vector<JournalRecord> found);
  void keep(ByteVector payload);
  Status write_record(JournalKind kind, ByteSpan payload, Durability durability);
  Status try_write_record(JournalKind kind, ByteSpan payload, Durability durability);
  Status undo_append(const Error& why);
  Status flush();
  Status compact();
  void compact_if_long();
  Result<DiskFile> write_compacted(std::uint64_t& bytes) const;
  Status broken(Error error);

  std::filesystem::path directory;
  JournalOptions options;
  DiskFile lock;
  DiskFile file;
  std::uint64_t end = 0;         // where the next record goes
  std::uint64_t flushed = 0;     // up to here everything is on the disk
  std::uint64_t compact_at = 0;  // file size that starts the next compaction
  std::uint64_t boot_count = 0;
  std::deque<ByteVector> records;
  std::string warning;
  std::optional<Error> failure;  // set once what is on the disk is not known any more
  Stats stats;
};

Journal::Journal(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Journal::Journal(Journal&&) noexcept = default;
Journal& Journal::operator=(Journal&&) noexcept = default;
Journal::~Journal() = default;

Result<Journal> Journal::open(const std::filesystem::path& directory, JournalOptions options) {
  SLUICE_CHECK_OK(make_directories(directory));
  SLUICE_TRY(auto lock, lock_directory(directory));
  SLUICE_TRY(auto file, DiskFile::open(directory / "journal", OpenMode::kReadWrite));
  auto impl = std::make_unique<Impl>(directory, std::move(options), std::move(lock), std::move(file));
  SLUICE_CHECK_OK(impl->recover());
  SLUICE_CHECK_OK(impl->write_record(JournalKind::kBoot, encode_boot_count(impl->boot_count), Durability::kDurable));
  SLUICE_CHECK_OK(sync_directory(directory));
  impl->compact_if_long();
  return Journal(std::move(impl));
}

// Reads the file into `records` and leaves it ending behind its last whole record, flushed.
Status Journal::Impl::recover() {
  SLUICE_CHECK_OK(remove_file(temporary_path()));
  SLUICE_TRY(const ByteVector content, read_file(path(), kFileBytesMax));
  const ByteVector header = encode_journal_file_header();
  // The header is written in one piece before any record; a crash right then leaves the start of it, or zeros.
  const bool is_fresh =
      content.size() <= header.size() && (std::equal(content.begin(), content.end(), header.begin()) ||
                                          std::all_of(content.begin(), content.end(), [](std::uint8_t byte) { return byte == 0; }));
  if (is_fresh) {
    SLUICE_CHECK_OK(file.write_at(0, header));
    end = header.size();
  } else if (!is_journal_file_header(content)) {
    return fail(corrupt(path(), 0, content.size(), "not a journal of this version"));
  } else {
    JournalScan scan = scan_journal(content, kJournalRecordBytesMax);
    if (scan.corrupt_at) return fail(corrupt(path(), *scan.corrupt_at, content.size(), "damaged record"));
    end = scan.end;
    if (end < content.size()) {
      warning = fmt::format("{}: the last write was cut short by a crash; {} bytes behind offset {} dropped", path().string(),
                            content.size() - end, end);
      SLUICE_CHECK_OK(file.truncate(end));
    }
    take_in(std::move(scan.records));
  }
  ++boot_count;
  compact_at = std::max(options.compact_above_bytes, end);
  return flush();
}

void Journal::Impl::take_in(std::vector<JournalRecord> found) {
  for (JournalRecord& record : found) {
    if (record.kind == JournalKind::kCaller) {
      keep(std::move(record.payload));
    } else if (record.payload.size() == sizeof(std::uint64_t)) {
      boot_count = std::max(boot_count, load_le<std::uint64_t>(record.payload.data()));
    }
  }
}

void Journal::Impl::keep(ByteVector payload) {
  records.push_back(std::move(payload));
  while (records.size() > options.keep_records) records.pop_front();
}

Status Journal::Impl::broken(Error error) {
  failure = error;
  return fail(std::move(error));
}

Status Journal::Impl::flush() {
  const TimePoint start = Clock::now();
  SLUICE_CHECK_OK(file.sync());
  stats.last_sync_seconds = std::chrono::duration<double>(Clock::now() - start).count();
  ++stats.syncs;
  flushed = end;
  return {};
}

// Takes the half-written record away again, so that the file is as it was before.
Status Journal::Impl::undo_append(const Error& why) {
  if (const auto cut = file.truncate(end); !cut) return broken(cut.error());
  if (why.code != ErrorCode::kDiskFull) return broken(why);
  return fail(why);
}

Status Journal::Impl::write_record(JournalKind kind, ByteSpan payload, Durability durability) {
  while (true) {
    Status written = try_write_record(kind, payload, durability);
    const bool is_full = !written && written.error().code == ErrorCode::kDiskFull && !failure;
    if (!is_full || !options.make_room || !options.make_room()) return written;
  }
}

Status Journal::Impl::try_write_record(JournalKind kind, ByteSpan payload, Durability durability) {
  if (failure) return fail(*failure);
  const JournalRecord record{kind, flushed, ByteVector(payload.begin(), payload.end())};
  const ByteVector bytes = encode_journal_record(record, end);
  if (const auto written = file.write_at(end, bytes); !written) return undo_append(written.error());
  const std::uint64_t before = end;
  end += bytes.size();
  if (durability == Durability::kDurable) {
    const bool was_all_flushed = flushed == before;
    if (const auto result = flush(); !result) {
      // A flush that fails may have lost any page that was not on the disk yet. That is only harmless for the record at hand.
      if (!was_all_flushed) return broken(result.error());
      end = before;
      return undo_append(result.error());
    }
  }
  stats.file_bytes = end;
  return {};
}

Result<DiskFile> Journal::Impl::write_compacted(std::uint64_t& bytes) const {
  SLUICE_TRY(auto compacted, DiskFile::open(temporary_path(), OpenMode::kReplace));
  ByteVector content = encode_journal_file_header();
  const auto add = [&content](JournalKind kind, const ByteVector& payload) {
    const ByteVector record = encode_journal_record(JournalRecord{kind, 0, payload}, content.size());
    content.insert(content.end(), record.begin(), record.end());
  };
  add(JournalKind::kBoot, encode_boot_count(boot_count));
  for (const ByteVector& payload : records) add(JournalKind::kCaller, payload);
  SLUICE_CHECK_OK(compacted.write_at(0, content));
  SLUICE_CHECK_OK(compacted.sync());
  bytes = content.size();
  return compacted;
}

Status Journal::Impl::compact() {
  std::uint64_t bytes = 0;
  SLUICE_TRY(auto compacted, write_compacted(bytes));
  SLUICE_CHECK_OK(compacted.rename_to(path()));
  // Until the directory is flushed a power loss may bring the old file back, without what is appended from now on.
  if (const auto result = sync_directory(directory); !result) return broken(result.error());
  file = std::move(compacted);
  end = bytes;
  flushed = bytes;
  ++stats.compactions;
  stats.file_bytes = end;
  return {};
}

// A compaction that fails leaves the old file, which is complete; it is tried again when the file has grown some more.
void Journal::Impl::compact_if_long() {
  if (end <= compact_at) return;
  if (const auto result = compact(); !result) static_cast<void>(remove_file(temporary_path()));
  compact_at = std::max(options.compact_above_bytes, end + options.compact_above_bytes / 2);
}

Status Journal::append(ByteSpan payload, Durability durability) {
  SLUICE_ASSERT(!payload.empty() && payload.size() <= kJournalRecordBytesMax, "{} bytes", payload.size());
  SLUICE_CHECK_OK(impl_->write_record(JournalKind::kCaller, payload, durability));
  impl_->keep(ByteVector(payload.begin(), payload.end()));
  ++impl_->stats.appends;
  impl_->compact_if_long();
  if (impl_->failure) return fail(*impl_->failure);
  return {};
}

Status Journal::sync() {
  if (impl_->failure) return fail(*impl_->failure);
  if (impl_->flushed == impl_->end) return {};
  if (const auto result = impl_->flush(); !result) return impl_->broken(result.error());
  return {};
}

const std::deque<ByteVector>& Journal::records() const { return impl_->records; }
const std::string& Journal::warning() const { return impl_->warning; }
std::uint64_t Journal::boot_count() const { return impl_->boot_count; }
const Journal::Stats& Journal::stats() const { return impl_->stats; }

}  // namespace sluice::gateway
