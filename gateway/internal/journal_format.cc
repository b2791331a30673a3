#include "gateway/internal/journal_format.h"

#include <algorithm>
#include <array>

#include "base/assert.h"
#include "base/hash.h"

namespace sluice::gateway {
namespace {

constexpr std::array<std::uint8_t, 8> kFileMagic{'S', 'L', 'J', 'O', 'U', 'R', 'N', '1'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kRecordMagic = 0x524a4c53;  // "SLJR"
constexpr std::size_t kHashAt = 24;
constexpr std::size_t kAlignment = 8;

std::size_t padded(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Hash of header and payload with the record's offset where the hash will stand.
std::uint64_t record_hash(ByteVector record, std::uint64_t offset) {
  store_le(record.data() + kHashAt, offset);
  return xxh3_64(record);
}

struct Parsed {
  JournalRecord record;
  std::size_t bytes = 0;  // with padding
};

// Nothing unless a whole, valid record starts at `offset`.
std::optional<Parsed> parse_record(ByteSpan file, std::size_t offset, std::size_t payload_bytes_max) {
  ByteReader reader(file.subspan(offset));
  const auto magic = reader.read<std::uint32_t>();
  const auto length = reader.read<std::uint32_t>();
  const auto kind = reader.read<std::uint32_t>();
  const auto reserved = reader.read<std::uint32_t>();
  const auto flushed = reader.read<std::uint64_t>();
  const auto hash = reader.read<std::uint64_t>();
  if (reader.failed() || magic != kRecordMagic || reserved != 0 || length > payload_bytes_max) return std::nullopt;
  if (kind != static_cast<std::uint32_t>(JournalKind::kBoot) && kind != static_cast<std::uint32_t>(JournalKind::kCaller))
    return std::nullopt;
  const ByteSpan payload = reader.read_span(length);
  const std::size_t bytes = padded(kJournalRecordHeaderBytes + length);
  if (reader.failed() || file.size() - offset < bytes) return std::nullopt;
  const ByteSpan whole = file.subspan(offset, kJournalRecordHeaderBytes + length);
  if (record_hash(ByteVector(whole.begin(), whole.end()), offset) != hash) return std::nullopt;
  return Parsed{JournalRecord{static_cast<JournalKind>(kind), flushed, ByteVector(payload.begin(), payload.end())}, bytes};
}

// Whether a record behind `bad` was written when `bad` was already on the disk.
bool was_flushed(ByteSpan file, std::size_t bad, std::size_t payload_bytes_max) {
  for (std::size_t offset = bad + kAlignment; offset + kJournalRecordHeaderBytes <= file.size(); offset += kAlignment) {
    if (load_le<std::uint32_t>(file.data() + offset) != kRecordMagic) continue;
    const auto parsed = parse_record(file, offset, payload_bytes_max);
    if (parsed && parsed->record.flushed > bad) return true;
  }
  return false;
}

}  // namespace

ByteVector encode_journal_file_header() {
  ByteVector bytes(kFileMagic.begin(), kFileMagic.end());
  ByteWriter writer(bytes);
  writer.write(kVersion);
  writer.write(std::uint32_t{0});
  return bytes;
}

bool is_journal_file_header(ByteSpan bytes) {
  const ByteVector expected = encode_journal_file_header();
  return bytes.size() >= expected.size() && std::equal(expected.begin(), expected.end(), bytes.begin());
}

ByteVector encode_journal_record(const JournalRecord& record, std::uint64_t offset) {
  SLUICE_ASSERT(offset % kAlignment == 0, "offset {}", offset);
  ByteVector bytes;
  bytes.reserve(padded(kJournalRecordHeaderBytes + record.payload.size()));
  ByteWriter writer(bytes);
  writer.write(kRecordMagic);
  writer.write(static_cast<std::uint32_t>(record.payload.size()));
  writer.write(static_cast<std::uint32_t>(record.kind));
  writer.write(std::uint32_t{0});
  writer.write(record.flushed);
  writer.write(std::uint64_t{0});
  writer.write_span(record.payload);
  store_le(bytes.data() + kHashAt, record_hash(bytes, offset));
  bytes.resize(padded(bytes.size()), 0);
  return bytes;
}

JournalScan scan_journal(ByteSpan file, std::size_t payload_bytes_max) {
  SLUICE_ASSERT(is_journal_file_header(file));
  JournalScan scan;
  std::size_t offset = kJournalFileHeaderBytes;
  while (offset < file.size()) {
    auto parsed = parse_record(file, offset, payload_bytes_max);
    if (!parsed) break;
    scan.records.push_back(std::move(parsed->record));
    offset += parsed->bytes;
  }
  scan.end = offset;
  if (offset < file.size() && was_flushed(file, offset, payload_bytes_max)) scan.corrupt_at = offset;
  return scan;
}

}  // namespace sluice::gateway
