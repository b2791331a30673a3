#pragma once

// An IPv4 packet as a TUN device hands it over, perhaps a large TCP packet that stands for many segments on the wire (segmentation
// offload). Faults are decided segment by segment, so such a packet can be cut. Pure; any thread. Units: bytes.
// Packets come from the kernel of this machine: their headers are checked, but a wrong one only means "one segment".

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace sluice::support {

// The kernel's virtio_net_hdr, whose own header is not C++. Numbers in host byte order.
struct OffloadHeader {
  std::uint8_t flags = 0;
  std::uint8_t kind = 0;
  std::uint16_t header_bytes = 0;
  std::uint16_t segment_bytes = 0;  // payload of each segment on the wire
  std::uint16_t checksum_start = 0;
  std::uint16_t checksum_offset = 0;
};
static_assert(sizeof(OffloadHeader) == 10);
inline constexpr std::uint8_t kOffloadNeedsChecksum = 1;  // in flags
inline constexpr std::uint8_t kOffloadLargeTcp = 1;       // kind: TCP over IPv4 in several segments
inline constexpr std::uint8_t kOffloadKindMask = 0x7F;    // the rest says that ECN is in use

struct WanPacket {
  OffloadHeader offload;  // as read from the device: what the receiving kernel need not check or may see as one packet
  ByteVector ip;          // header and payload
};

struct PacketAddresses {
  std::uint32_t source = 0;  // host byte order
  std::uint32_t destination = 0;
};

// False for anything but a whole IPv4 packet; then `addresses` is left alone.
bool read_addresses(ByteSpan ip, PacketAddresses& addresses);

// Segments that the packet is on the wire, at least 1.
std::size_t segment_count(const WanPacket& packet);
// IP bytes of one segment, headers included. REQUIRES: index < segment_count(packet).
std::size_t segment_bytes(const WanPacket& packet, std::size_t index);
// The packet that carries only these segments. REQUIRES: 0 < count, first + count <= segment_count(packet).
WanPacket cut_segments(const WanPacket& packet, std::size_t first, std::size_t count);

}  // namespace sluice::support
