#include "tests/support/wan_packet.h"

#include <netinet/in.h>

#include <algorithm>

#include "base/assert.h"

namespace sluice::support {
namespace {

constexpr std::size_t kIpHeaderBytesMin = 20;
constexpr std::size_t kTcpHeaderBytesMin = 20;
constexpr std::size_t kIpLengthAt = 2;
constexpr std::size_t kIpIdAt = 4;
constexpr std::size_t kIpChecksumAt = 10;
constexpr std::size_t kIpSourceAt = 12;
constexpr std::size_t kTcpSequenceAt = 4;
constexpr std::size_t kTcpFlagsAt = 13;
constexpr std::size_t kTcpChecksumAt = 16;
constexpr std::uint8_t kFlagFin = 0x01;
constexpr std::uint8_t kFlagPush = 0x08;
constexpr std::uint8_t kFlagReduced = 0x80;  // CWR: on the first segment only

std::uint32_t get16(const std::uint8_t* at) { return (std::uint32_t{at[0]} << 8U) | at[1]; }
std::uint32_t get32(const std::uint8_t* at) { return (get16(at) << 16U) | get16(at + 2); }
void put16(std::uint8_t* at, std::uint32_t value) {
  at[0] = static_cast<std::uint8_t>(value >> 8U);
  at[1] = static_cast<std::uint8_t>(value);
}
void put32(std::uint8_t* at, std::uint32_t value) {
  put16(at, value >> 16U);
  put16(at + 2, value & 0xFFFFU);
}

std::uint32_t fold(std::uint32_t sum) {
  while (sum > 0xFFFFU) sum = (sum & 0xFFFFU) + (sum >> 16U);
  return sum;
}
std::uint32_t sum_of(const std::uint8_t* at, std::size_t bytes) {
  std::uint32_t sum = 0;
  for (std::size_t index = 0; index + 1 < bytes; index += 2) sum += get16(at + index);
  return sum;
}

std::size_t ip_header_bytes(const ByteVector& ip) { return static_cast<std::size_t>(ip[0] & 0x0FU) * 4; }

// Bytes of both headers of a TCP packet that stands for several segments; 0 for every other packet.
std::size_t headers_of_large(const WanPacket& packet) {
  if ((packet.offload.kind & kOffloadKindMask) != kOffloadLargeTcp || packet.offload.segment_bytes == 0) return 0;
  const ByteVector& ip = packet.ip;
  if (ip.size() < kIpHeaderBytesMin + kTcpHeaderBytesMin || ip[9] != IPPROTO_TCP) return 0;
  const std::size_t before_tcp = ip_header_bytes(ip);
  if (before_tcp < kIpHeaderBytesMin || ip.size() < before_tcp + kTcpHeaderBytesMin) return 0;
  const std::size_t headers = before_tcp + static_cast<std::size_t>(ip[before_tcp + 12] >> 4U) * 4;
  return headers >= before_tcp + kTcpHeaderBytesMin && headers < ip.size() ? headers : 0;
}

// The kernel wants the checksum of the pseudo header where it is told that the rest is still to be summed.
void write_checksums(ByteVector& ip) {
  const std::size_t before_tcp = ip_header_bytes(ip);
  put16(ip.data() + kIpChecksumAt, 0);
  put16(ip.data() + kIpChecksumAt, ~fold(sum_of(ip.data(), before_tcp)) & 0xFFFFU);
  const std::uint32_t pseudo = sum_of(ip.data() + kIpSourceAt, 8) + IPPROTO_TCP + static_cast<std::uint32_t>(ip.size() - before_tcp);
  put16(ip.data() + before_tcp + kTcpChecksumAt, fold(pseudo));
}

}  // namespace

bool read_addresses(ByteSpan ip, PacketAddresses& addresses) {
  if (ip.size() < kIpHeaderBytesMin || ip[0] >> 4U != 4) return false;
  addresses.source = get32(ip.data() + kIpSourceAt);
  addresses.destination = get32(ip.data() + kIpSourceAt + 4);
  return true;
}

std::size_t segment_count(const WanPacket& packet) {
  const std::size_t headers = headers_of_large(packet);
  if (headers == 0) return 1;
  return (packet.ip.size() - headers + packet.offload.segment_bytes - 1) / packet.offload.segment_bytes;
}

std::size_t segment_bytes(const WanPacket& packet, std::size_t index) {
  const std::size_t headers = headers_of_large(packet);
  if (headers == 0) return packet.ip.size();
  const std::size_t begin = headers + index * packet.offload.segment_bytes;
  SLUICE_ASSERT(begin < packet.ip.size(), "segment {} of {} bytes", index, packet.ip.size());
  return headers + std::min<std::size_t>(packet.offload.segment_bytes, packet.ip.size() - begin);
}

WanPacket cut_segments(const WanPacket& packet, std::size_t first, std::size_t count) {
  const std::size_t segments = segment_count(packet);
  SLUICE_ASSERT(count > 0 && first + count <= segments, "segments {} + {} of {}", first, count, segments);
  if (count == segments) return packet;
  const std::size_t headers = headers_of_large(packet);
  const std::size_t skipped = first * packet.offload.segment_bytes;
  const std::size_t payload = std::min(count * packet.offload.segment_bytes, packet.ip.size() - headers - skipped);
  WanPacket cut;
  cut.offload = packet.offload;
  cut.ip.reserve(headers + payload);
  const auto begin = packet.ip.begin();
  const auto at = begin + static_cast<std::ptrdiff_t>(headers + skipped);
  cut.ip.assign(begin, begin + static_cast<std::ptrdiff_t>(headers));
  cut.ip.insert(cut.ip.end(), at, at + static_cast<std::ptrdiff_t>(payload));
  std::uint8_t* ip = cut.ip.data();
  std::uint8_t* tcp = ip + ip_header_bytes(cut.ip);
  put16(ip + kIpLengthAt, static_cast<std::uint32_t>(cut.ip.size()));
  put16(ip + kIpIdAt, get16(ip + kIpIdAt) + static_cast<std::uint32_t>(first));
  put32(tcp + kTcpSequenceAt, get32(tcp + kTcpSequenceAt) + static_cast<std::uint32_t>(skipped));
  if (first + count < segments) tcp[kTcpFlagsAt] = static_cast<std::uint8_t>(tcp[kTcpFlagsAt] & ~(kFlagFin | kFlagPush));
  if (first > 0) tcp[kTcpFlagsAt] = static_cast<std::uint8_t>(tcp[kTcpFlagsAt] & ~kFlagReduced);
  write_checksums(cut.ip);
  if (payload <= packet.offload.segment_bytes) {
    cut.offload.kind = 0;
    cut.offload.segment_bytes = 0;
  }
  return cut;
}

}  // namespace sluice::support
