#include "compression/internal/frame_writer.h"

#include <algorithm>
#include <cstring>

#include "compression/internal/frame_hash.h"
#include "compression/internal/frame_layout.h"

namespace sluice::compression {

ByteSpan write_frame(const FrameHeader& header, std::uint8_t* payload) {
  std::uint8_t* const frame = payload - kFrameHeaderBytes;
  write_frame_header(header, frame);
  const std::size_t hashed = kFrameHeaderBytes + header.payload_bytes;
  store_le(frame + hashed, frame_hash(ByteSpan(frame, hashed)));
  return ByteSpan(frame, hashed + kFrameTrailerBytes);
}

FrameHeader coded_header(FrameHeader header, Codec codec, const CodedPayload& coded) {
  header.codec = codec;
  header.nonzeros = coded.nonzeros;
  header.payload_bytes = static_cast<std::uint32_t>(coded.payload.size());
  header.coded_bits = coded.coded_bits;
  header.model_a = coded.model_a;
  header.model_b = coded.model_b;
  header.model_c = coded.model_c;
  header.magnitude_bits = coded.magnitude_bits;
  header.model_bytes = coded.model_bytes;
  return header;
}

ByteSpan write_plain_integers(FrameHeader header, std::span<const std::int32_t> integers, std::vector<std::uint8_t>& buffer) {
  header.codec = Codec::kGridPlain;
  header.magnitude_bits = magnitude_bits_of(integers);
  header.payload_bytes = static_cast<std::uint32_t>(integers.size_bytes());
  header.coded_bits = header.payload_bytes * 8;
  buffer.resize(std::max(buffer.size(), kFrameHeaderBytes + integers.size_bytes() + kFrameTrailerBytes));
  std::uint8_t* const payload = buffer.data() + kFrameHeaderBytes;
  if (!integers.empty()) std::memcpy(payload, integers.data(), integers.size_bytes());
  return write_frame(header, payload);
}

}  // namespace sluice::compression
