#pragma once

// A frame on its way through the gateway: the envelope that says what it is for, and the encoded chunk. Value type; the bytes are
// shared and never change, so that one frame can wait in the queues of several peers at once. Any thread.

#include <memory>

#include "base/bytes.h"
#include "proto/record.h"

namespace sluice::gateway {

using SharedBytes = std::shared_ptr<const ByteVector>;

struct FrameRecord {
  wire::FrameEnvelope envelope;
  SharedBytes frame;  // encoded chunk, without envelope; not null, at most kFrameRecordBytesMax - kFrameEnvelopeBytes

  // Payload bytes of its record.
  [[nodiscard]] std::size_t bytes() const { return wire::kFrameEnvelopeBytes + frame->size(); }
  // Of these, what belongs to a round: a probe's bytes are for nobody.
  [[nodiscard]] std::size_t round_bytes() const {
    return static_cast<wire::FrameRole>(envelope.role) == wire::FrameRole::kProbe ? 0 : frame->size();
  }
};

}  // namespace sluice::gateway
