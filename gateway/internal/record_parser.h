#pragma once

// Cuts a byte stream into records (proto/record.h). Pure; not thread-safe. Hostile input: a length is checked before anything is allocated
// for it, and memory grows only with bytes that have arrived.

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "gateway/frame_record.h"
#include "proto/record.h"

namespace sluice::gateway::internal {

struct ParsedRecord {
  wire::RecordType type = wire::RecordType::kControl;
  ByteVector control;            // kControl: a serialised message
  wire::FrameEnvelope envelope;  // kFrame
  ByteVector frame;              // kFrame
};

class RecordParser {
 public:
  RecordParser(std::uint32_t control_bytes_max, bool takes_frames) : control_bytes_max_(control_bytes_max), takes_frames_(takes_frames) {}

  // How many bytes the record under way still needs before anything can be said about it: at least 1, never past its end.
  [[nodiscard]] std::size_t bytes_needed() const;
  // Consumes bytes up to the end of one record; `record` is set when it is complete. Fails with kLinkProtocol; the stream is then useless.
  Result<std::size_t> feed(ByteSpan bytes, std::optional<ParsedRecord>& record);

 private:
  Status begin_record();

  std::uint32_t control_bytes_max_;
  bool takes_frames_;
  std::uint8_t head_[wire::kRecordHeaderBytes + wire::kFrameEnvelopeBytes] = {};
  std::size_t head_filled_ = 0;
  std::size_t head_wanted_ = wire::kRecordHeaderBytes;
  bool has_header_ = false;
  std::size_t body_wanted_ = 0;
  ParsedRecord record_;
};

}  // namespace sluice::gateway::internal
