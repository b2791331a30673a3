#pragma once

// The records on every Sluice connection (gateway to gateway, agent to gateway): an 8-byte header, then a payload.
//     0  u32  payload length in bytes
//     4  u16  type: 1 = control (a protobuf message), 2 = frame (a FrameEnvelope, then one encoded frame)
//     6  u16  zero
// Header-only, pure, any thread; depends on nothing of ours, so that gateway and site agent can both use it.
// A reader checks the header against the limit of its state (kHelloBytesMax before authentication ends) before it allocates.

#include <cstdint>
#include <cstring>
#include <optional>

namespace sluice::wire {

inline constexpr std::uint32_t kProtocolVersion = 1;

enum class RecordType : std::uint16_t { kControl = 1, kFrame = 2 };

inline constexpr std::size_t kRecordHeaderBytes = 8;
inline constexpr std::uint32_t kHelloBytesMax = 64U * 1024;          // of the first record from a peer gateway
inline constexpr std::uint32_t kControlBytesMax = 4U * 1024 * 1024;  // a manifest of 60,000 tensors fits
inline constexpr std::uint32_t kFrameRecordBytesMax = 2U * 1024 * 1024;

struct RecordHeader {
  std::uint32_t payload_bytes = 0;
  RecordType type = RecordType::kControl;
};

inline void write_record_header(const RecordHeader& header, std::uint8_t* to) {
  const auto type = static_cast<std::uint16_t>(header.type);
  const std::uint16_t zero = 0;
  std::memcpy(to, &header.payload_bytes, 4);
  std::memcpy(to + 4, &type, 2);
  std::memcpy(to + 6, &zero, 2);
}

// Nothing when the type is unknown, the padding is not zero, or the payload is longer than the type's limit.
inline std::optional<RecordHeader> read_record_header(const std::uint8_t* from) {
  std::uint32_t payload_bytes = 0;
  std::uint16_t type = 0;
  std::uint16_t zero = 0;
  std::memcpy(&payload_bytes, from, 4);
  std::memcpy(&type, from + 4, 2);
  std::memcpy(&zero, from + 6, 2);
  if (zero != 0) return std::nullopt;
  if (type == static_cast<std::uint16_t>(RecordType::kControl)) {
    if (payload_bytes > kControlBytesMax) return std::nullopt;
    return RecordHeader{payload_bytes, RecordType::kControl};
  }
  if (type == static_cast<std::uint16_t>(RecordType::kFrame)) {
    if (payload_bytes > kFrameRecordBytesMax) return std::nullopt;
    return RecordHeader{payload_bytes, RecordType::kFrame};
  }
  return std::nullopt;
}

enum class FrameRole : std::uint16_t {
  kContribution = 1,     // agent -> gateway -> owner
  kUpdate = 2,           // owner -> every gateway -> agent
  kReplay = 3,           // committed update of an earlier round, on request
  kStateParameters = 4,  // global parameters of a chunk (RAW32 frame), on request
  kStateMomentum = 5,    // outer momentum of a chunk (RAW32 frame), on request
  kProbe = 6,            // random bytes of an active bandwidth measurement: counted and thrown away
};

inline constexpr std::size_t kFrameEnvelopeBytes = 32;

// Says what the frame behind it is for. 32 bytes, little-endian, in this order.
struct FrameEnvelope {
  std::uint64_t epoch = 0;
  std::uint64_t round = 0;
  std::uint32_t chunk = 0;
  std::uint32_t counted = 0;  // SiteSet that an update sums up; 0 for the other roles
  std::uint16_t role = 0;     // FrameRole
  std::uint16_t site = 0;     // contribution: who contributes; otherwise who sends
  std::uint16_t to = 0;       // on its way over a third site: whom it is for, plus one; 0 = whoever receives it
  std::uint16_t reserved = 0;
};
static_assert(sizeof(FrameEnvelope) == kFrameEnvelopeBytes);

inline void write_frame_envelope(const FrameEnvelope& envelope, std::uint8_t* to) { std::memcpy(to, &envelope, sizeof envelope); }

// Nothing when the role is unknown or the reserved field is not zero. REQUIRES: kFrameEnvelopeBytes readable bytes.
inline std::optional<FrameEnvelope> read_frame_envelope(const std::uint8_t* from) {
  FrameEnvelope envelope;
  std::memcpy(&envelope, from, sizeof envelope);
  if (envelope.role < 1 || envelope.role > 6 || envelope.reserved != 0) return std::nullopt;
  return envelope;
}

}  // namespace sluice::wire
