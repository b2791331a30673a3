#define ZSTD_STATIC_LINKING_ONLY  // ZSTD_c_literalCompressionMode
#include "compression/state_codec.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <array>

#include "base/assert.h"
#include "compression/internal/frame_hash.h"

// Block layout: magic "SLS1", element type u8, three zero bytes, values u32 (bytes), exponent plane u32, rest plane u32 (bytes as packed),
// four zero bytes, XXH3-64 of the values; then the two planes. A plane of its full size is stored, a shorter one is one zstd frame.
// Exponents of trained weights carry about 2.7 bits of 8, sign and mantissa nothing: zstd runs on a plane only where the first
// 64 KiB gain 5 %. It is used for its Huffman coder (fast strategy, literals compressed); higher levels find nothing more.

namespace sluice::compression {
namespace {

constexpr std::uint32_t kStateMagic = 0x31534C53;  // the bytes "SLS1"
constexpr std::size_t kProbeBytes = std::size_t{64} << 10;
constexpr int kZstdLevel = -7;
constexpr int kWindowLogMax = 23;
constexpr const char* kUnpack = "unpack state";

std::size_t element_bytes(ElementType type) { return type == ElementType::kFloat32 ? 4 : 2; }

struct BlockHeader {
  ElementType element_type = ElementType::kFloat32;
  std::uint32_t value_bytes = 0;
  std::uint32_t exponent_bytes = 0;
  std::uint32_t rest_bytes = 0;
  std::uint64_t hash = 0;
};

std::size_t exponent_plane_bytes(const BlockHeader& header) { return header.value_bytes / element_bytes(header.element_type); }
// A tail shorter than an element travels at the end of the rest plane.
std::size_t rest_plane_bytes(const BlockHeader& header) { return header.value_bytes - exponent_plane_bytes(header); }

// Sign and mantissa of a bfloat16 in one byte, its exponent in the other.
void split_bf16(const std::uint8_t* values, std::size_t count, std::uint8_t* exponents, std::uint8_t* rest) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = load_le<std::uint16_t>(values + 2 * i);
    exponents[i] = static_cast<std::uint8_t>(bits >> 7);
    rest[i] = static_cast<std::uint8_t>((bits & 0x7fU) | ((bits >> 8) & 0x80U));
  }
}

void join_bf16(const std::uint8_t* exponents, const std::uint8_t* rest, std::size_t count, std::uint8_t* values) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(exponents[i]) << 7 | (rest[i] & 0x7fU) | (rest[i] & 0x80U) << 8;
    store_le(values + 2 * i, static_cast<std::uint16_t>(bits));
  }
}

// The upper byte of an fp16 is sign, exponent and two bits of mantissa.
void split_fp16(const std::uint8_t* values, std::size_t count, std::uint8_t* exponents, std::uint8_t* rest) {
  for (std::size_t i = 0; i < count; ++i) {
    rest[i] = values[2 * i];
    exponents[i] = values[2 * i + 1];
  }
}

void join_fp16(const std::uint8_t* exponents, const std::uint8_t* rest, std::size_t count, std::uint8_t* values) {
  for (std::size_t i = 0; i < count; ++i) {
    values[2 * i] = rest[i];
    values[2 * i + 1] = exponents[i];
  }
}

// fp32: exponent byte; sign and the upper 7 bits of mantissa, and the two lower bytes, as three planes one after another.
void split_fp32(const std::uint8_t* values, std::size_t count, std::uint8_t* exponents, std::uint8_t* rest) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = load_le<std::uint32_t>(values + 4 * i);
    exponents[i] = static_cast<std::uint8_t>(bits >> 23);
    rest[i] = static_cast<std::uint8_t>(((bits >> 16) & 0x7fU) | ((bits >> 24) & 0x80U));
    rest[count + i] = static_cast<std::uint8_t>(bits >> 8);
    rest[2 * count + i] = static_cast<std::uint8_t>(bits);
  }
}

void join_fp32(const std::uint8_t* exponents, const std::uint8_t* rest, std::size_t count, std::uint8_t* values) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t high = rest[i];
    const std::uint32_t bits = static_cast<std::uint32_t>(exponents[i]) << 23 | (high & 0x7fU) << 16 | (high & 0x80U) << 24 |
                               static_cast<std::uint32_t>(rest[count + i]) << 8 | rest[2 * count + i];
    store_le(values + 4 * i, bits);
  }
}

using Split = void (*)(const std::uint8_t*, std::size_t, std::uint8_t*, std::uint8_t*);
using Join = void (*)(const std::uint8_t*, const std::uint8_t*, std::size_t, std::uint8_t*);
constexpr std::array<Split, 3> kSplits{split_fp32, split_fp16, split_bf16};
constexpr std::array<Join, 3> kJoins{join_fp32, join_fp16, join_bf16};

void write_header(const BlockHeader& header, std::uint8_t* to) {
  std::fill_n(to, kStateHeaderBytes, std::uint8_t{0});
  store_le(to, kStateMagic);
  to[4] = static_cast<std::uint8_t>(header.element_type);
  store_le(to + 8, header.value_bytes);
  store_le(to + 12, header.exponent_bytes);
  store_le(to + 16, header.rest_bytes);
  store_le(to + 24, header.hash);
}

Result<BlockHeader> read_header(ByteSpan bytes) {
  if (load_le<std::uint32_t>(bytes.data()) != kStateMagic) return fail(ErrorCode::kFrameBadMagic, kUnpack, "no block begins here");
  BlockHeader header;
  header.element_type = static_cast<ElementType>(bytes[4]);
  header.value_bytes = load_le<std::uint32_t>(bytes.data() + 8);
  header.exponent_bytes = load_le<std::uint32_t>(bytes.data() + 12);
  header.rest_bytes = load_le<std::uint32_t>(bytes.data() + 16);
  header.hash = load_le<std::uint64_t>(bytes.data() + 24);
  const bool padded = (bytes[5] | bytes[6] | bytes[7]) == 0 && load_le<std::uint32_t>(bytes.data() + 20) == 0;
  if (!padded || bytes[4] > static_cast<std::uint8_t>(ElementType::kBfloat16) || header.value_bytes == 0 ||
      header.value_bytes > kStateBlockBytes || header.exponent_bytes > exponent_plane_bytes(header) ||
      header.rest_bytes > rest_plane_bytes(header)) {
    return fail(ErrorCode::kFrameBadHeader, kUnpack,
                fmt::format("{} value bytes in planes of {} and {}", header.value_bytes, header.exponent_bytes, header.rest_bytes));
  }
  return header;
}

}  // namespace

struct StatePacker::Impl {
  explicit Impl(ElementType type) : element_type(type), context(ZSTD_createCCtx(), ZSTD_freeCCtx) {
    SLUICE_ASSERT(context != nullptr, "no memory for a zstd context");
    bool set = ZSTD_isError(ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kZstdLevel)) == 0;
    set = set && ZSTD_isError(ZSTD_CCtx_setParameter(context.get(), ZSTD_c_literalCompressionMode, ZSTD_ps_enable)) == 0;
    set = set && ZSTD_isError(ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1)) == 0;
    SLUICE_ASSERT(set, "zstd refuses a parameter");
  }

  std::size_t compress(ByteSpan plane, std::uint8_t* to, std::size_t room) {
    const std::size_t size = ZSTD_compress2(context.get(), to, room, plane.data(), plane.size());
    return ZSTD_isError(size) != 0 ? plane.size() : size;
  }

  // Appends the plane, packed where that gains; returns its bytes.
  std::uint32_t append_plane(ByteSpan plane, ByteVector& out) {
    const std::size_t at = out.size();
    if (plane.size() > kProbeBytes) {
      probe.resize(kProbeBytes);
      if (compress(plane.first(kProbeBytes), probe.data(), kProbeBytes * 95 / 100) >= kProbeBytes * 95 / 100) {
        out.insert(out.end(), plane.begin(), plane.end());
        return static_cast<std::uint32_t>(plane.size());
      }
    }
    out.resize(at + plane.size());
    const std::size_t size = plane.size() < 2 ? plane.size() : compress(plane, out.data() + at, plane.size() - 1);
    if (size >= plane.size()) {
      std::copy(plane.begin(), plane.end(), out.begin() + static_cast<std::ptrdiff_t>(at));
      return static_cast<std::uint32_t>(plane.size());
    }
    out.resize(at + size);
    return static_cast<std::uint32_t>(size);
  }

  ElementType element_type;
  std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)> context;
  std::vector<std::uint8_t> planes, probe;
};

StatePacker::StatePacker(ElementType element_type) : impl_(std::make_unique<Impl>(element_type)) {}
StatePacker::~StatePacker() = default;
StatePacker::StatePacker(StatePacker&&) noexcept = default;
StatePacker& StatePacker::operator=(StatePacker&&) noexcept = default;

Status StatePacker::pack_block(ByteSpan values, ByteVector& out) {
  SLUICE_ASSERT(!values.empty() && values.size() <= kStateBlockBytes, "{} bytes", values.size());
  BlockHeader header;
  header.element_type = impl_->element_type;
  header.value_bytes = static_cast<std::uint32_t>(values.size());
  header.hash = frame_hash(values);
  const std::size_t count = exponent_plane_bytes(header);
  const std::size_t tail = values.size() - count * element_bytes(header.element_type);
  impl_->planes.resize(values.size());
  std::uint8_t* const rest = impl_->planes.data() + count;
  kSplits[static_cast<std::size_t>(header.element_type)](values.data(), count, impl_->planes.data(), rest);
  std::copy(values.end() - static_cast<std::ptrdiff_t>(tail), values.end(), impl_->planes.end() - static_cast<std::ptrdiff_t>(tail));
  const std::size_t at = out.size();
  out.resize(at + kStateHeaderBytes);
  header.exponent_bytes = impl_->append_plane(ByteSpan(impl_->planes).first(count), out);
  header.rest_bytes = impl_->append_plane(ByteSpan(impl_->planes).subspan(count), out);
  write_header(header, out.data() + at);
  return {};
}

struct StateUnpacker::Impl {
  // Made for the first plane that needs it.
  ZSTD_DCtx* decoder() {
    if (context) return context.get();
    context.reset(ZSTD_createDCtx());
    SLUICE_ASSERT(context != nullptr, "no memory for a zstd context");
    const bool set = ZSTD_isError(ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, kWindowLogMax)) == 0;
    SLUICE_ASSERT(set, "zstd refuses a parameter");
    return context.get();
  }

  // The plane at its full size, in `scratch` when it was packed.
  Result<ByteSpan> open_plane(ByteSpan packed, std::size_t size, std::vector<std::uint8_t>& scratch) {
    if (packed.size() == size) return packed;
    // Our frames state their size: memory is taken only for what two places agree on.
    if (ZSTD_getFrameContentSize(packed.data(), packed.size()) != size) {
      return fail(ErrorCode::kFrameBadPayload, kUnpack, fmt::format("plane that does not state {} bytes", size));
    }
    scratch.resize(size);
    const std::size_t got = ZSTD_decompressDCtx(decoder(), scratch.data(), size, packed.data(), packed.size());
    if (ZSTD_isError(got) != 0) return fail(ErrorCode::kFrameBadPayload, kUnpack, ZSTD_getErrorName(got));
    if (got != size) return fail(ErrorCode::kFrameBadPayload, kUnpack, fmt::format("plane of {} bytes, {} expected", got, size));
    return ByteSpan(scratch);
  }

  Status unpack_block(const BlockHeader& header, ByteSpan planes, ByteVector& out) {
    const std::size_t count = exponent_plane_bytes(header);
    SLUICE_TRY(const ByteSpan exponents, open_plane(planes.first(header.exponent_bytes), count, exponent_scratch));
    SLUICE_TRY(const ByteSpan rest, open_plane(planes.subspan(header.exponent_bytes), rest_plane_bytes(header), rest_scratch));
    const std::size_t at = out.size();
    out.resize(at + header.value_bytes);
    std::uint8_t* const to = out.data() + at;
    kJoins[static_cast<std::size_t>(header.element_type)](exponents.data(), rest.data(), count, to);
    const std::size_t whole = count * element_bytes(header.element_type);
    std::copy(rest.begin() + static_cast<std::ptrdiff_t>(whole - count), rest.end(), to + whole);
    if (frame_hash(ByteSpan(to, header.value_bytes)) == header.hash) return {};
    out.resize(at);
    return fail(ErrorCode::kFrameHashMismatch, kUnpack, fmt::format("block of {} bytes", header.value_bytes));
  }

  // Bytes that the block at the front of `bytes` still misses; 0 when it is whole.
  Result<std::size_t> missing(ByteSpan bytes, BlockHeader& header) const {
    if (bytes.size() < kStateHeaderBytes) return kStateHeaderBytes - bytes.size();
    SLUICE_TRY(header, read_header(bytes));
    const std::size_t whole = kStateHeaderBytes + header.exponent_bytes + header.rest_bytes;
    return whole > bytes.size() ? whole - bytes.size() : 0;
  }

  std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context{nullptr, ZSTD_freeDCtx};
  std::vector<std::uint8_t> exponent_scratch, rest_scratch;
  ByteVector pending;  // an incomplete block
};

StateUnpacker::StateUnpacker() : impl_(std::make_unique<Impl>()) {}
StateUnpacker::~StateUnpacker() = default;
StateUnpacker::StateUnpacker(StateUnpacker&&) noexcept = default;
StateUnpacker& StateUnpacker::operator=(StateUnpacker&&) noexcept = default;

bool StateUnpacker::is_at_block_end() const { return impl_->pending.empty(); }

Status StateUnpacker::push(ByteSpan packed, ByteVector& out) {
  BlockHeader header;
  while (!packed.empty()) {
    // Whole blocks are read where they lie; an incomplete one is collected.
    const bool collects = !impl_->pending.empty();
    const ByteSpan front = collects ? ByteSpan(impl_->pending) : packed;
    SLUICE_TRY(const std::size_t missing, impl_->missing(front, header));
    if (collects && missing > 0) {
      const std::size_t taken = std::min(missing, packed.size());
      impl_->pending.insert(impl_->pending.end(), packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(taken));
      packed = packed.subspan(taken);
      SLUICE_TRY(const std::size_t left, impl_->missing(impl_->pending, header));
      if (left > 0) continue;
    } else if (missing > 0) {
      impl_->pending.assign(packed.begin(), packed.end());
      return {};
    }
    const ByteSpan block = collects ? ByteSpan(impl_->pending) : packed;
    const std::size_t planes = std::size_t{header.exponent_bytes} + header.rest_bytes;
    SLUICE_CHECK_OK(impl_->unpack_block(header, block.subspan(kStateHeaderBytes, planes), out));
    if (collects) {
      impl_->pending.clear();
    } else {
      packed = packed.subspan(kStateHeaderBytes + planes);
    }
  }
  return {};
}

Result<ByteVector> pack_state(ByteSpan values, ElementType element_type) {
  StatePacker packer(element_type);
  ByteVector out;
  out.reserve(values.size() * 3 / 4 + kStateHeaderBytes);
  for (std::size_t at = 0; at < values.size(); at += kStateBlockBytes) {
    SLUICE_CHECK_OK(packer.pack_block(values.subspan(at, std::min(kStateBlockBytes, values.size() - at)), out));
  }
  return out;
}

Result<ByteVector> unpack_state(ByteSpan packed, std::size_t values_bytes_max) {
  StateUnpacker unpacker;
  ByteVector out;
  while (!packed.empty()) {
    if (packed.size() < kStateHeaderBytes) return fail(ErrorCode::kFrameTruncated, kUnpack, "the stream ends inside a block");
    SLUICE_TRY(const BlockHeader header, read_header(packed));
    if (header.value_bytes > values_bytes_max - out.size()) {
      return fail(ErrorCode::kLimitExceeded, kUnpack, fmt::format("more than {} bytes of values", values_bytes_max));
    }
    const std::size_t whole = kStateHeaderBytes + header.exponent_bytes + header.rest_bytes;
    if (whole > packed.size()) return fail(ErrorCode::kFrameTruncated, kUnpack, "the stream ends inside a block");
    SLUICE_CHECK_OK(unpacker.push(packed.first(whole), out));
    packed = packed.subspan(whole);
  }
  return out;
}

}  // namespace sluice::compression
