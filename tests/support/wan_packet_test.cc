// Goal: a large TCP packet is the segments it stands for, and cutting it gives packets that a receiver takes for the originals.
// Method: a packet built by hand; headers of the parts read back and compared with what a sender of single segments would have written.
#include "tests/support/wan_packet.h"

#include <gtest/gtest.h>

#include "tests/support/packet_network.h"

namespace sluice::support {
namespace {

constexpr std::size_t kHeaders = 52;  // IPv4, TCP with 12 bytes of options
constexpr std::uint16_t kSegment = 1448;

std::uint32_t read16(const ByteVector& ip, std::size_t at) { return (std::uint32_t{ip[at]} << 8U) | ip[at + 1]; }
std::uint32_t read32(const ByteVector& ip, std::size_t at) { return (read16(ip, at) << 16U) | read16(ip, at + 2); }

// Payload byte k is k modulo 251; sequence number 1000; flags PSH and ACK.
WanPacket large_packet(std::size_t payload) {
  WanPacket packet;
  packet.offload.flags = kOffloadNeedsChecksum;
  packet.offload.kind = kOffloadLargeTcp;
  packet.offload.segment_bytes = kSegment;
  packet.offload.header_bytes = kHeaders;
  packet.offload.checksum_start = 20;
  packet.offload.checksum_offset = 16;
  packet.ip.assign(kHeaders + payload, 0);
  packet.ip[0] = 0x45;
  packet.ip[2] = static_cast<std::uint8_t>(packet.ip.size() >> 8U);
  packet.ip[3] = static_cast<std::uint8_t>(packet.ip.size());
  packet.ip[5] = 9;  // identification
  packet.ip[8] = 64;
  packet.ip[9] = 6;
  packet.ip[12] = 10;
  packet.ip[15] = 1;
  packet.ip[16] = 10;
  packet.ip[19] = 2;
  packet.ip[26] = 1000 >> 8;
  packet.ip[27] = 1000 & 0xFF;
  packet.ip[32] = 8 << 4;  // 32 bytes of TCP header
  packet.ip[33] = 0x18;
  for (std::size_t index = 0; index < payload; ++index) packet.ip[kHeaders + index] = static_cast<std::uint8_t>(index % 251);
  return packet;
}

TEST(WanPacket, LargePacketCountsItsSegments) {
  EXPECT_EQ(segment_count(large_packet(1)), 1U);
  EXPECT_EQ(segment_count(large_packet(kSegment)), 1U);
  const WanPacket packet = large_packet(3 * kSegment + 10);
  ASSERT_EQ(segment_count(packet), 4U);
  EXPECT_EQ(segment_bytes(packet, 0), kHeaders + kSegment);
  EXPECT_EQ(segment_bytes(packet, 3), kHeaders + 10);
}

TEST(WanPacket, AnythingElseIsOneSegment) {
  WanPacket udp = large_packet(4000);
  udp.ip[9] = 17;
  EXPECT_EQ(segment_count(udp), 1U);
  WanPacket cut_off = large_packet(4000);
  cut_off.ip.resize(30);
  EXPECT_EQ(segment_count(cut_off), 1U);
  EXPECT_EQ(segment_bytes(cut_off, 0), 30U);
  PacketAddresses addresses;
  EXPECT_FALSE(read_addresses(ByteVector(10, 0x45), addresses));
  EXPECT_FALSE(read_addresses(ByteVector(40, 0x60), addresses));
  ASSERT_TRUE(read_addresses(large_packet(1).ip, addresses));
  EXPECT_EQ(addresses.source, 0x0A000001U);
  EXPECT_EQ(addresses.destination, 0x0A000002U);
}

TEST(WanPacket, PartsHaveTheHeadersOfTheirSegments) {
  const WanPacket packet = large_packet(3 * kSegment + 10);
  const WanPacket first = cut_segments(packet, 0, 2);
  EXPECT_EQ(first.ip.size(), kHeaders + 2 * kSegment);
  EXPECT_EQ(read16(first.ip, 2), first.ip.size());
  EXPECT_EQ(read16(first.ip, 4), 9U);
  EXPECT_EQ(read32(first.ip, 24), 1000U);
  EXPECT_EQ(first.ip[33], 0x10);  // PSH belongs to the end
  EXPECT_EQ(segment_count(first), 2U);
  const WanPacket last = cut_segments(packet, 3, 1);
  EXPECT_EQ(last.ip.size(), kHeaders + 10);
  EXPECT_EQ(read16(last.ip, 4), 12U);
  EXPECT_EQ(read32(last.ip, 24), 1000U + 3 * kSegment);
  EXPECT_EQ(last.ip[33], 0x18);
  EXPECT_EQ(last.ip[kHeaders], (3 * kSegment) % 251);
  EXPECT_EQ(last.offload.kind, 0);
}

TEST(WanPacket, IpChecksumOfAPartIsRight) {
  const WanPacket part = cut_segments(large_packet(3 * kSegment), 1, 1);
  std::uint32_t sum = 0;
  for (std::size_t at = 0; at < 20; at += 2) sum += read16(part.ip, at);
  while (sum > 0xFFFFU) sum = (sum & 0xFFFFU) + (sum >> 16U);
  EXPECT_EQ(sum, 0xFFFFU);
}

TEST(WanPacket, LossTakesSegmentsOutOfALargePacket) {
  const SiteId from(0);
  const SiteId to(1);
  PacketNetwork network(2, 3);
  PathShape shape;
  shape.loss = 0.3;
  network.set_path(from, to, shape);
  const WanPacket packet = large_packet(40 * kSegment);
  network.send(from, to, packet, TimePoint(std::chrono::seconds(1)));
  std::size_t segments = 0;
  std::uint32_t next_sequence = 0;
  network.deliver_due(TimePoint(std::chrono::seconds(2)), [&](SiteId, const WanPacket& part) {
    segments += segment_count(part);
    const std::uint32_t sequence = read32(part.ip, 24);
    EXPECT_GE(sequence, next_sequence);
    EXPECT_EQ((sequence - 1000) % kSegment, 0U);
    for (std::size_t index = 0; index < kSegment; ++index) EXPECT_EQ(part.ip[kHeaders + index], (sequence - 1000 + index) % 251);
    next_sequence = sequence + static_cast<std::uint32_t>(part.ip.size() - kHeaders);
  });
  EXPECT_EQ(network.counters(from, to).sent, 40U);
  EXPECT_GT(network.counters(from, to).lost, 0U);
  EXPECT_EQ(segments + network.counters(from, to).lost, 40U);
}

TEST(WanPacket, LargePacketComesInRunsOfAMillisecond) {
  const SiteId from(0);
  const SiteId to(1);
  PacketNetwork network(2, 3);
  PathShape shape;
  shape.rate = BitsPerSecond{24e6};  // 1500 bytes in 0.5 ms
  shape.queue_bytes = 1'000'000;
  network.set_path(from, to, shape);
  const TimePoint start(std::chrono::seconds(1));
  network.send(from, to, large_packet(10 * kSegment), start);
  std::vector<Duration> times;
  while (const auto due = network.next_deadline()) {
    network.deliver_due(*due, [&](SiteId, const WanPacket& part) {
      EXPECT_EQ(segment_count(part), 2U);
      times.push_back(*due - start);
    });
  }
  ASSERT_EQ(times.size(), 5U);
  for (std::size_t index = 0; index < times.size(); ++index) EXPECT_EQ(times[index], (index + 1) * std::chrono::milliseconds(1));
}

}  // namespace
}  // namespace sluice::support
