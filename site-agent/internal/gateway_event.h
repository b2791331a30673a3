#pragma once

// What the link tells the session, in the order in which it happened. Value types; a frame is moved, never copied.

#include <cstdint>
#include <string>
#include <variant>

#include "base/bytes.h"
#include "proto/record.h"
#include "site-agent/internal/messages.h"

namespace sluice::site_agent {

// The gateway has accepted this process. `connection` counts connections: what is sent for an older one is dropped.
struct LinkUp {
  std::uint64_t connection = 0;
  std::uint64_t hello_round = 0;  // what the hello said
  Welcome welcome;
};
struct LinkDown { std::string reason; };
struct FrameReceived {
  wire::FrameEnvelope envelope;
  ByteVector record;  // envelope and frame
  [[nodiscard]] ByteSpan frame() const { return ByteSpan(record).subspan(wire::kFrameEnvelopeBytes); }
};
// The write queue has drained: state chunks may be served on.
struct QueueDrained {};

using GatewayEvent = std::variant<LinkUp, LinkDown, FrameReceived, QueueDrained, GroupFormed, GroupBroken, RoundOpened, RoundCommitted,
                                  RoundSkipped, CatchUp, StateRequest, Announcement>;

// For the inbound limit.
inline std::size_t event_bytes(const GatewayEvent& event) {
  const auto* frame = std::get_if<FrameReceived>(&event);
  return frame == nullptr ? 64 : frame->record.size();
}

}  // namespace sluice::site_agent
