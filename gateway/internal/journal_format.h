#pragma once

// The bytes of the journal file (docs/reference/journal.md), apart from the disk: pure, any thread.
//     file:    16-byte file header, then records, each at a multiple of 8
//     record:  32-byte header, payload, zeros up to a multiple of 8
// Each record says up to which offset the file was already flushed when it was written. That tells the two kinds of damage apart: bytes
// that a later record says were on the disk cannot have been torn by a crash.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace sluice::gateway {

inline constexpr std::size_t kJournalFileHeaderBytes = 16;
inline constexpr std::size_t kJournalRecordHeaderBytes = 32;

enum class JournalKind : std::uint32_t {
  kBoot = 1,    // payload: u64, how often a gateway has started on this directory
  kCaller = 2,  // payload: the caller's
};

struct JournalRecord {
  JournalKind kind = JournalKind::kCaller;
  std::uint64_t flushed = 0;  // file offset up to which all was on the disk when this record was written
  ByteVector payload;
};

ByteVector encode_journal_file_header();
bool is_journal_file_header(ByteSpan bytes);

// The record as it stands at `offset` of the file: the hash covers its place.
ByteVector encode_journal_record(const JournalRecord& record, std::uint64_t offset);

struct JournalScan {
  std::vector<JournalRecord> records;
  std::uint64_t end = 0;                    // where the records end: what is behind is torn
  std::optional<std::uint64_t> corrupt_at;  // set when the damage at `end` is no torn tail
};
// Reads a whole file. REQUIRES: it starts with a valid file header.
JournalScan scan_journal(ByteSpan file, std::size_t payload_bytes_max);

}  // namespace sluice::gateway
