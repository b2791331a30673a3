#pragma once

// Frame format version 1: one encoded chunk with its header (docs/reference/frame.md is the written layout).
// Pure functions and value types, any thread. A FrameView points into bytes it does not own: keep them alive.

#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "compression/limits.h"

namespace sluice::compression {

enum class Codec : std::uint8_t {
  kRaw32 = 0,       // fp32 values
  kBf16 = 1,        // bfloat16 values, rounded to nearest even
  kGridDense = 2,   // integers on the common grid: interleaved rANS, escapes, raw low bits
  kGridSparse = 3,  // the same integers, mostly zeros: gaps, signs, magnitudes
  kGridPlain = 4,   // the same integers as int32: only where an entropy coder would need more
};

// Element type of the tensor that the chunk belongs to; values travel as the codec says.
enum class ElementType : std::uint8_t { kFloat32 = 0, kFloat16 = 1, kBfloat16 = 2 };

// "grid-dense"; "unknown" for a number that is not in the table.
std::string_view codec_name(Codec codec);
// True for the codecs that carry integers of a common grid: their sums are exact.
constexpr bool is_grid(Codec codec) { return codec >= Codec::kGridDense && codec <= Codec::kGridPlain; }

struct FrameHeader {
  Codec codec = Codec::kRaw32;
  ElementType element_type = ElementType::kFloat32;
  std::uint8_t contributions = 1;  // 1 for what a site sends, the number of sites in a sum
  ChunkId chunk;
  std::uint32_t value_count = 0;  // 0 .. kChunkValues
  float step = 0.0F;              // grid codecs: width of the quantiser; 0 otherwise
  std::uint32_t payload_bytes = 0;
  std::uint32_t coded_bits = 0;  // bits of the payload without padding
  std::uint32_t nonzeros = 0;    // grid codecs: integers that are not 0; value_count otherwise
  double squared_error = 0.0;    // sum of (input - decoded)^2 over the values, of all contributions
  // What the decoder of the codec needs to know before the payload; 0 where unused.
  std::uint8_t model_a = 0;         // dense: K; sparse: Rice parameter of the gaps
  std::uint8_t model_b = 0;         // dense: low bits; sparse: Rice parameter of the gaps between magnitudes >= 2
  std::uint8_t model_c = 0;         // dense: order of the escape code
  std::uint8_t magnitude_bits = 0;  // grid codecs: every |q| < 2^magnitude_bits; decoders refuse what is larger
  std::uint32_t model_bytes = 0;    // dense: bytes of the escape section; sparse: bytes of the magnitude section
};

struct FrameView {
  FrameHeader header;
  ByteSpan payload;  // header.payload_bytes long
  ByteSpan bytes;    // the whole frame
};

// Checks magic, version, every field, the exact length and the hash. Allocates nothing.
// Errors: kFrameTruncated, kFrameBadMagic, kFrameBadVersion, kFrameBadHeader, kFrameHashMismatch.
Result<FrameView> parse_frame(ByteSpan bytes);

// Length of the frame that begins at `bytes`, from its first kFrameHeaderBytes, so that a reader knows how much to wait for.
// Same errors as parse_frame; the hash is not checked.
Result<std::size_t> frame_length(ByteSpan bytes);

}  // namespace sluice::compression
