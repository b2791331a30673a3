#include "gateway/internal/replay_file.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <string>
#include <utility>

#include "base/hash.h"
#include "gateway/internal/disk_file.h"
#include "proto/record.h"

namespace sluice::gateway {
namespace {

constexpr std::array<std::uint8_t, 8> kMagic{'S', 'L', 'R', 'E', 'P', 'L', 'Y', '1'};
constexpr std::uint64_t kEntryBytes = 32;
constexpr std::uint64_t kTrailerBytes = 48;
constexpr std::string_view kPrefix = "update-";
constexpr std::string_view kSuffix = ".frames";

struct Entry {
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
  std::uint64_t frame_hash = 0;
};

// Bound to round and chunk, so that an entry of another file or place is not taken for this one.
std::uint64_t entry_hash(ByteSpan first_24_bytes, RoundId round, std::uint32_t chunk) {
  ByteVector bytes(first_24_bytes.begin(), first_24_bytes.end());
  ByteWriter writer(bytes);
  writer.write(round.value);
  writer.write(chunk);
  return xxh3_64(bytes);
}

void append_entry(ByteVector& table, const Entry& entry, RoundId round, std::uint32_t chunk) {
  ByteWriter writer(table);
  const std::size_t start = table.size();
  writer.write(entry.offset);
  writer.write(entry.length);
  writer.write(std::uint32_t{0});
  writer.write(entry.frame_hash);
  writer.write(entry_hash(ByteSpan(table).subspan(start), round, chunk));
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

std::uint64_t replay_overhead_bytes(std::uint32_t chunks) { return chunks * kEntryBytes + kTrailerBytes; }

Status write_replay_file(const std::filesystem::path& directory, RoundId round, SiteSet counted, std::uint32_t chunks,
                         const std::function<Result<std::shared_ptr<const ByteVector>>(ChunkId)>& frame_of) {
  std::filesystem::path temporary = directory / replay_file_name(round);
  temporary += ".tmp";
  SLUICE_TRY(auto file, DiskFile::open(temporary, OpenMode::kReplace));
  ByteVector tail;
  std::uint64_t offset = 0;
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
    SLUICE_TRY(const auto frame, frame_of(ChunkId(chunk)));
    SLUICE_CHECK_OK(file.write_at(offset, *frame));
    append_entry(tail, Entry{offset, static_cast<std::uint32_t>(frame->size()), xxh3_64(*frame)}, round, chunk);
    offset += frame->size();
  }
  const ReplayInfo info{round, counted, chunks, offset + tail.size() + kTrailerBytes};
  const ByteVector trailer = encode_trailer(info);
  tail.insert(tail.end(), trailer.begin(), trailer.end());
  SLUICE_CHECK_OK(file.write_at(offset, tail));
  return file.rename_to(directory / replay_file_name(round));
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
  Entry entry;
  entry.offset = reader.read<std::uint64_t>();
  entry.length = reader.read<std::uint32_t>();
  static_cast<void>(reader.read<std::uint32_t>());
  entry.frame_hash = reader.read<std::uint64_t>();
  const auto hash = reader.read<std::uint64_t>();
  if (reader.failed() || hash != entry_hash(ByteSpan(bytes).first(24), info.round, chunk.value)) {
    return damaged(path, fmt::format("the table entry of chunk {} is damaged", chunk));
  }
  if (entry.length > wire::kFrameRecordBytesMax) return damaged(path, fmt::format("chunk {} of {} bytes", chunk, entry.length));
  ByteVector frame(entry.length);
  SLUICE_TRY(const std::size_t frame_count, file.read_at(entry.offset, frame));
  if (frame_count != frame.size() || xxh3_64(frame) != entry.frame_hash) {
    return damaged(path, fmt::format("chunk {} at offset {} is damaged", chunk, entry.offset));
  }
  return frame;
}

}  // namespace sluice::gateway
