#include "gateway/internal/record_parser.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace sluice::gateway::internal {

std::size_t RecordParser::bytes_needed() const {
  if (head_filled_ < head_wanted_) return head_wanted_ - head_filled_;
  const ByteVector& body = record_.type == wire::RecordType::kFrame ? record_.frame : record_.control;
  return body_wanted_ - body.size();
}

Status RecordParser::begin_record() {
  const auto refuse = [](std::string detail) { return fail(ErrorCode::kLinkProtocol, "read record", std::move(detail)); };
  const auto header = wire::read_record_header(head_);
  if (!header) return refuse("the record header is not one of ours, or its length is past the limit");
  record_ = ParsedRecord{};
  record_.type = header->type;
  if (header->type == wire::RecordType::kControl) {
    if (header->payload_bytes > control_bytes_max_) {
      return refuse(fmt::format("a control message of {} bytes, the limit here is {}", header->payload_bytes, control_bytes_max_));
    }
    body_wanted_ = header->payload_bytes;
    record_.control.reserve(std::min<std::size_t>(body_wanted_, 64 * 1024));
  } else {
    if (!takes_frames_) return refuse("a frame where only control messages belong");
    if (header->payload_bytes < wire::kFrameEnvelopeBytes) return refuse("a frame record shorter than its envelope");
    body_wanted_ = header->payload_bytes - wire::kFrameEnvelopeBytes;
    head_wanted_ = wire::kRecordHeaderBytes + wire::kFrameEnvelopeBytes;
    record_.frame.reserve(body_wanted_);
  }
  has_header_ = true;
  return {};
}

Result<std::size_t> RecordParser::feed(ByteSpan bytes, std::optional<ParsedRecord>& record) {
  std::size_t used = 0;
  while (head_filled_ < head_wanted_) {
    const std::size_t take = std::min(bytes.size() - used, head_wanted_ - head_filled_);
    if (take > 0) std::memcpy(head_ + head_filled_, bytes.data() + used, take);
    head_filled_ += take;
    used += take;
    if (head_filled_ < head_wanted_) return used;
    if (!has_header_) SLUICE_CHECK_OK(begin_record());
  }
  const bool is_frame = record_.type == wire::RecordType::kFrame;
  ByteVector& body = is_frame ? record_.frame : record_.control;
  const ByteSpan part = bytes.subspan(used, std::min(bytes.size() - used, body_wanted_ - body.size()));
  body.insert(body.end(), part.begin(), part.end());
  used += part.size();
  if (body.size() < body_wanted_) return used;
  if (is_frame) {
    const auto envelope = wire::read_frame_envelope(head_ + wire::kRecordHeaderBytes);
    if (!envelope) return fail(ErrorCode::kLinkProtocol, "read record", "the envelope of a frame names no known role");
    record_.envelope = *envelope;
  }
  record = std::move(record_);
  record_ = ParsedRecord{};
  head_filled_ = 0;
  head_wanted_ = wire::kRecordHeaderBytes;
  has_header_ = false;
  return used;
}

}  // namespace sluice::gateway::internal
