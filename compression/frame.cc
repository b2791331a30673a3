#include "compression/frame.h"

#include <fmt/format.h>

#include <bit>

#include "compression/internal/frame_hash.h"
#include "compression/internal/frame_layout.h"

namespace sluice::compression {
namespace {

constexpr const char* kOperation = "parse frame";

tl::unexpected<Error> bad_header(std::string detail) { return fail(ErrorCode::kFrameBadHeader, kOperation, std::move(detail)); }

bool is_step_in_range(float step) { return step >= kGridStepMin && step <= kGridStepMax; }  // false for NaN

Status check_payload_length(const FrameHeader& header) {
  const std::uint64_t count = header.value_count;
  const std::uint64_t bytes = header.payload_bytes;
  if (bytes > 4 * count && bytes > 0) return bad_header(fmt::format("payload of {} bytes for {} values", bytes, count));
  if (header.coded_bits > 8 * bytes || header.coded_bits + std::uint64_t{16} < 8 * bytes) {
    return bad_header(fmt::format("{} coded bits in {} payload bytes", header.coded_bits, bytes));
  }
  const bool fixed = header.codec == Codec::kRaw32 || header.codec == Codec::kGridPlain;
  if (fixed && bytes != 4 * count) return bad_header(fmt::format("payload of {} bytes for {} values of 4 bytes", bytes, count));
  if (header.codec == Codec::kBf16 && bytes != 2 * count) {
    return bad_header(fmt::format("payload of {} bytes for {} values of 2 bytes", bytes, count));
  }
  return {};
}

Status check_model(const FrameHeader& header) {
  const bool has_model = header.codec == Codec::kGridDense || header.codec == Codec::kGridSparse;
  if (!has_model) {
    if ((header.model_a | header.model_b | header.model_c) != 0 || header.model_bytes != 0) return bad_header("model fields without model");
    return {};
  }
  if (header.model_bytes > header.payload_bytes) return bad_header(fmt::format("section of {} bytes", header.model_bytes));
  if (header.codec == Codec::kGridDense) {
    if (header.model_a < 1 || header.model_a > kGridHalfWidthMax) return bad_header(fmt::format("half width {}", header.model_a));
    if (header.model_b > kGridLowBitsMax) return bad_header(fmt::format("{} low bits", header.model_b));
    if (((header.model_a + 1) << header.model_b) > (1 << header.magnitude_bits)) return bad_header("model wider than the magnitudes");
    if (header.model_c > 24) return bad_header(fmt::format("escape order {}", header.model_c));
    return {};
  }
  if (header.model_a > 17 || header.model_b > 17 || header.model_c != 0) {
    return bad_header(fmt::format("Rice parameters {} and {}", header.model_a, header.model_b));
  }
  return {};
}

Status check_fields(const FrameHeader& header) {
  if (static_cast<std::uint8_t>(header.codec) > static_cast<std::uint8_t>(Codec::kGridPlain)) {
    return bad_header(fmt::format("codec {}", static_cast<unsigned>(header.codec)));
  }
  if (static_cast<std::uint8_t>(header.element_type) > static_cast<std::uint8_t>(ElementType::kBfloat16)) {
    return bad_header(fmt::format("element type {}", static_cast<unsigned>(header.element_type)));
  }
  if (header.contributions < 1 || header.contributions > kContributionsMax) {
    return bad_header(fmt::format("{} contributions", header.contributions));
  }
  if (header.value_count > kChunkValues) return bad_header(fmt::format("{} values", header.value_count));
  if (header.nonzeros > header.value_count) return bad_header(fmt::format("{} of {} values not 0", header.nonzeros, header.value_count));
  if (is_grid(header.codec) ? !is_step_in_range(header.step) : std::bit_cast<std::uint32_t>(header.step) != 0) {
    return bad_header(fmt::format("step {}", header.step));
  }
  if (header.magnitude_bits > (is_grid(header.codec) ? kGridMagnitudeBitsMax : 0)) {
    return bad_header(fmt::format("magnitudes of {} bits", header.magnitude_bits));
  }
  if (!(header.squared_error >= 0.0) || !(header.squared_error <= 0x1p300)) {
    return bad_header(fmt::format("squared error {}", header.squared_error));
  }
  if (header.payload_bytes > kFramePayloadBytesMax) return bad_header(fmt::format("payload of {} bytes", header.payload_bytes));
  SLUICE_CHECK_OK(check_model(header));
  return check_payload_length(header);
}

Result<FrameHeader> parse_header(ByteSpan bytes) {
  if (bytes.size() < kFrameHeaderBytes) {
    return fail(ErrorCode::kFrameTruncated, kOperation, fmt::format("header ends at byte {} of {}", bytes.size(), kFrameHeaderBytes));
  }
  ByteReader reader(bytes.first(kFrameHeaderBytes));
  const auto magic = reader.read<std::uint32_t>();
  if (magic != kFrameMagic) return fail(ErrorCode::kFrameBadMagic, kOperation, fmt::format("first bytes {:08x}", magic));
  const auto version = reader.read<std::uint8_t>();
  if (version != kFrameVersion) return fail(ErrorCode::kFrameBadVersion, kOperation, fmt::format("version {}", version));
  FrameHeader header;
  header.codec = static_cast<Codec>(reader.read<std::uint8_t>());
  header.element_type = static_cast<ElementType>(reader.read<std::uint8_t>());
  header.contributions = reader.read<std::uint8_t>();
  header.chunk = ChunkId(reader.read<std::uint32_t>());
  header.value_count = reader.read<std::uint32_t>();
  header.step = reader.read<float>();
  header.payload_bytes = reader.read<std::uint32_t>();
  header.coded_bits = reader.read<std::uint32_t>();
  header.nonzeros = reader.read<std::uint32_t>();
  header.squared_error = reader.read<double>();
  header.model_a = reader.read<std::uint8_t>();
  header.model_b = reader.read<std::uint8_t>();
  header.model_c = reader.read<std::uint8_t>();
  header.magnitude_bits = reader.read<std::uint8_t>();
  header.model_bytes = reader.read<std::uint32_t>();
  SLUICE_CHECK_OK(check_fields(header));
  return header;
}

}  // namespace

std::string_view codec_name(Codec codec) {
  switch (codec) {
    case Codec::kRaw32:
      return "raw32";
    case Codec::kBf16:
      return "bf16";
    case Codec::kGridDense:
      return "grid-dense";
    case Codec::kGridSparse:
      return "grid-sparse";
    case Codec::kGridPlain:
      return "grid-plain";
  }
  return "unknown";
}

void write_frame_header(const FrameHeader& header, std::uint8_t* to) {
  store_le(to, kFrameMagic);
  to[4] = kFrameVersion;
  to[5] = static_cast<std::uint8_t>(header.codec);
  to[6] = static_cast<std::uint8_t>(header.element_type);
  to[7] = header.contributions;
  store_le(to + 8, header.chunk.value);
  store_le(to + 12, header.value_count);
  store_le(to + 16, header.step);
  store_le(to + 20, header.payload_bytes);
  store_le(to + 24, header.coded_bits);
  store_le(to + 28, header.nonzeros);
  store_le(to + 32, header.squared_error);
  to[40] = header.model_a;
  to[41] = header.model_b;
  to[42] = header.model_c;
  to[43] = header.magnitude_bits;
  store_le(to + 44, header.model_bytes);
}

Result<std::size_t> frame_length(ByteSpan bytes) {
  SLUICE_TRY(const FrameHeader header, parse_header(bytes));
  return kFrameHeaderBytes + header.payload_bytes + kFrameTrailerBytes;
}

Result<FrameView> parse_frame(ByteSpan bytes) {
  SLUICE_TRY(const FrameHeader header, parse_header(bytes));
  const std::size_t length = kFrameHeaderBytes + header.payload_bytes + kFrameTrailerBytes;
  if (bytes.size() < length) {
    return fail(ErrorCode::kFrameTruncated, kOperation, fmt::format("frame ends at byte {} of {}", bytes.size(), length));
  }
  if (bytes.size() > length) return bad_header(fmt::format("{} bytes after the frame", bytes.size() - length));
  const auto stated = load_le<std::uint64_t>(bytes.data() + length - kFrameTrailerBytes);
  if (frame_hash(bytes.first(length - kFrameTrailerBytes)) != stated) {
    return fail(ErrorCode::kFrameHashMismatch, kOperation, fmt::format("chunk {}, {} bytes", header.chunk, length));
  }
  return FrameView{header, bytes.subspan(kFrameHeaderBytes, header.payload_bytes), bytes};
}

}  // namespace sluice::compression
