#include "gateway/internal/replay_file.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <charconv>
#include <string>
#include <utility>

#include "base/assert.h"
#include "base/hash.h"
#include "gateway/internal/disk_file.h"
#include "proto/record.h"

namespace sluice::gateway {
namespace {

constexpr std::array<std::uint8_t, 8> kMagic{'S', 'L', 'R', 'E', 'P', 'L', 'Y', '1'};
constexpr std::uint64_t kEntryBytes = 32;
constexpr std::uint64_t kCachedBytes = 16 << 20;  // of the file's end while it is written: the disk's time to take them
constexpr std::uint64_t kTrailerBytes = 48;
constexpr std::string_view kPrefix = "update-";
constexpr std::string_view kSuffix = ".frames";

// Bound to round and chunk, so that an entry of another file or place is not taken for this one.
std::uint64_t entry_hash(ByteSpan first_24_bytes, RoundId round, std::uint32_t chunk) {
  ByteVector bytes(first_24_bytes.begin(), first_24_bytes.end());
  ByteWriter writer(bytes);
  writer.write(round.value);
  writer.write(chunk);
  return xxh3_64(bytes);
}

void append_entry(ByteVector& table, std::uint64_t offset, std::uint32_t length, std::uint64_t frame_hash, RoundId round,
                  std::uint32_t chunk) {
  ByteWriter writer(table);
  const std::size_t start = table.size();
  writer.write(offset);
  writer.write(length);
  writer.write(std::uint32_t{0});
  writer.write(frame_hash);
  writer.write(entry_hash(ByteSpan(table).subspan(start), round, chunk));
}

// A name of its own for each writer: one that is given up must not take another one's file with it.
std::filesystem::path temporary_name(const std::filesystem::path& directory, RoundId round) {
  static std::atomic<unsigned> writers{0};
  std::filesystem::path path = directory / replay_file_name(round);
  path += fmt::format(".{}.tmp", writers.fetch_add(1));
  return path;
}

ByteVector encode_trailer(const ReplayInfo& info) {
  ByteVector bytes(kMagic.begin(), kMagic.end());
  ByteWriter writer(bytes);
  writer.write(info.round.value);
  writer.write(info.counted.bits);
  writer.write(info.chunks);
  writer.write(info.file_bytes);
  writer.write(std::uint64_t{0});
  writer.write(xxh3_64(bytes));
  return bytes;
}

std::uint64_t table_offset(const ReplayInfo& info) { return info.file_bytes - kTrailerBytes - info.chunks * kEntryBytes; }

tl::unexpected<Error> damaged(const std::filesystem::path& path, std::string what) {
  return fail(ErrorCode::kSpoolCorrupt, "read " + path.string(), std::move(what));
}

}  // namespace

std::filesystem::path replay_file_name(RoundId round) { return fmt::format("{}{}{}", kPrefix, round, kSuffix); }

std::optional<RoundId> parse_replay_file_name(const std::filesystem::path& name) {
  const std::string text = name.string();
  if (text.size() <= kPrefix.size() + kSuffix.size() || !text.starts_with(kPrefix) || !text.ends_with(kSuffix)) return std::nullopt;
  const char* const end = text.data() + text.size() - kSuffix.size();
  std::uint64_t number = 0;
  const auto [stop, failure] = std::from_chars(text.data() + kPrefix.size(), end, number);
  if (failure != std::errc() || stop != end) return std::nullopt;
  return RoundId(number);
}

bool is_temporary_replay_file(const std::filesystem::path& path) {
  return path.extension() == ".tmp" && parse_replay_file_name(path.stem().stem()).has_value();
}

std::uint64_t replay_overhead_bytes(std::uint32_t chunks) { return chunks * kEntryBytes + kTrailerBytes; }

ReplayWriter::ReplayWriter(DiskFile file, RoundId round, SiteSet counted) : file_(std::move(file)), round_(round), counted_(counted) {}

Result<ReplayWriter> ReplayWriter::open(const std::filesystem::path& directory, RoundId round, SiteSet counted) {
  SLUICE_TRY(auto file, DiskFile::open(temporary_name(directory, round), OpenMode::kReplace));
  return ReplayWriter(std::move(file), round, counted);
}

ReplayWriter::ReplayWriter(ReplayWriter&& other) noexcept
    : file_(std::exchange(other.file_, std::nullopt)),
      round_(other.round_),
      counted_(other.counted_),
      entries_(std::move(other.entries_)),
      bytes_(other.bytes_) {}

ReplayWriter& ReplayWriter::operator=(ReplayWriter&& other) noexcept {
  file_.swap(other.file_);
  std::swap(round_, other.round_);
  std::swap(counted_, other.counted_);
  entries_.swap(other.entries_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

ReplayWriter::~ReplayWriter() { abandon(); }

void ReplayWriter::abandon() const {
  if (file_) static_cast<void>(remove_file(file_->path()));
}

std::uint64_t ReplayWriter::reserve(std::uint64_t bytes) { return std::exchange(bytes_, bytes_ + bytes); }

Status ReplayWriter::write(std::uint64_t offset, ByteSpan frame) {
  SLUICE_CHECK_OK(file_->write_at(offset, frame));
  // Updates are hardly ever read again: their pages would only push others out of memory, and new pages cost more than used ones.
  file_->start_writeback(offset, frame.size());
  if (offset >= kCachedBytes) file_->drop_cached(offset - kCachedBytes, frame.size());
  return {};
}

void ReplayWriter::enter(ChunkId chunk, std::uint64_t offset, std::uint32_t length, std::uint64_t frame_hash) {
  entries_[chunk.value] = Entry{offset, length, frame_hash};
}

bool ReplayWriter::is_complete(std::uint32_t chunks) const {
  return entries_.size() == chunks && (chunks == 0 || entries_.rbegin()->first == chunks - 1);
}

Result<ReplayInfo> ReplayWriter::finish(std::uint32_t chunks) {
  SLUICE_ASSERT(is_complete(chunks), "{} of {} chunks", entries_.size(), chunks);
  ByteVector tail;
  for (const auto& [chunk, entry] : entries_) append_entry(tail, entry.offset, entry.length, entry.frame_hash, round_, chunk);
  const ReplayInfo info{round_, counted_, chunks, bytes_ + tail.size() + kTrailerBytes};
  const ByteVector trailer = encode_trailer(info);
  tail.insert(tail.end(), trailer.begin(), trailer.end());
  SLUICE_CHECK_OK(file_->write_at(bytes_, tail));
  SLUICE_CHECK_OK(file_->rename_to(file_->path().parent_path() / replay_file_name(round_)));
  file_.reset();
  return info;
}

Result<ReplayInfo> write_replay_file(const std::filesystem::path& directory, RoundId round, SiteSet counted, std::uint32_t chunks,
                                     const std::function<Result<std::shared_ptr<const ByteVector>>(ChunkId)>& frame_of) {
  SLUICE_TRY(auto writer, ReplayWriter::open(directory, round, counted));
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
    SLUICE_TRY(const auto frame, frame_of(ChunkId(chunk)));
    const std::uint64_t offset = writer.reserve(frame->size());
    SLUICE_CHECK_OK(writer.write(offset, *frame));
    writer.enter(ChunkId(chunk), offset, static_cast<std::uint32_t>(frame->size()), xxh3_64(*frame));
  }
  return writer.finish(chunks);
}

Result<ReplayInfo> read_replay_info(const std::filesystem::path& path) {
  SLUICE_TRY(const auto file, DiskFile::open(path, OpenMode::kRead));
  SLUICE_TRY(const std::uint64_t file_bytes, file.size());
  if (file_bytes < kTrailerBytes) return damaged(path, fmt::format("{} bytes, shorter than a trailer", file_bytes));
  ByteVector bytes(kTrailerBytes);
  SLUICE_TRY(const std::size_t count, file.read_at(file_bytes - kTrailerBytes, bytes));
  ByteReader reader(ByteSpan(bytes).first(count));
  static_cast<void>(reader.read_span(kMagic.size()));
  ReplayInfo info;
  info.round = RoundId(reader.read<std::uint64_t>());
  info.counted = SiteSet{reader.read<std::uint32_t>()};
  info.chunks = reader.read<std::uint32_t>();
  info.file_bytes = reader.read<std::uint64_t>();
  if (reader.failed() || encode_trailer(info) != bytes) return damaged(path, "the trailer is damaged or missing");
  if (info.file_bytes != file_bytes || replay_overhead_bytes(info.chunks) > file_bytes) {
    return damaged(path, fmt::format("{} bytes long where the trailer says {}", file_bytes, info.file_bytes));
  }
  return info;
}

Result<ByteVector> read_replay_frame(const std::filesystem::path& path, const ReplayInfo& info, ChunkId chunk) {
  if (chunk.value >= info.chunks) {
    return fail(ErrorCode::kNotFound, "read " + path.string(), fmt::format("chunk {} of an update of {}", chunk, info.chunks));
  }
  SLUICE_TRY(const auto file, DiskFile::open(path, OpenMode::kRead));
  ByteVector bytes(kEntryBytes);
  SLUICE_TRY(const std::size_t count, file.read_at(table_offset(info) + chunk.value * kEntryBytes, bytes));
  ByteReader reader(ByteSpan(bytes).first(count));
  const auto offset = reader.read<std::uint64_t>();
  const auto length = reader.read<std::uint32_t>();
  static_cast<void>(reader.read<std::uint32_t>());
  const auto frame_hash = reader.read<std::uint64_t>();
  const auto hash = reader.read<std::uint64_t>();
  if (reader.failed() || hash != entry_hash(ByteSpan(bytes).first(24), info.round, chunk.value)) {
    return damaged(path, fmt::format("the table entry of chunk {} is damaged", chunk));
  }
  if (length > wire::kFrameRecordBytesMax) return damaged(path, fmt::format("chunk {} of {} bytes", chunk, length));
  ByteVector frame(length);
  SLUICE_TRY(const std::size_t frame_count, file.read_at(offset, frame));
  if (frame_count != frame.size() || xxh3_64(frame) != frame_hash) {
    return damaged(path, fmt::format("chunk {} at offset {} is damaged", chunk, offset));
  }
  return frame;
}

}  // namespace sluice::gateway
