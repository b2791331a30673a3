#pragma once

// Lossless packing of parameters for state transfer and checkpoints: tensors of bf16, fp16 or fp32 are split into an exponent plane, which
// packs about threefold, and the rest, which does not. A packed stream is a sequence of blocks that stand alone, each with its
// length, the planes (zstd where it gains, stored where not) and an XXH3-64 of the values. Pure; one object per stream and thread.
// Memory: a few blocks. Bytes in and out are little-endian elements; their number need not be a multiple of the element size.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "base/result.h"
#include "compression/frame.h"

namespace sluice::compression {

// Bytes of values in one block: 1 MiB, so that planes fit the cache and a block is worth resending.
inline constexpr std::size_t kStateBlockBytes = std::size_t{1} << 20;
inline constexpr std::size_t kStateHeaderBytes = 32;

class StatePacker {
 public:
  explicit StatePacker(ElementType element_type);
  ~StatePacker();
  StatePacker(StatePacker&&) noexcept;
  StatePacker& operator=(StatePacker&&) noexcept;

  // Appends one block with these values to `out`. REQUIRES: 1 <= values.size() <= kStateBlockBytes. Errors: kInternal.
  Status pack_block(ByteSpan values, ByteVector& out);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class StateUnpacker {
 public:
  StateUnpacker();
  ~StateUnpacker();
  StateUnpacker(StateUnpacker&&) noexcept;
  StateUnpacker& operator=(StateUnpacker&&) noexcept;

  // Takes the next bytes of a packed stream, in pieces of any size, and appends the values of every block that is complete to `out`.
  // Holds at most one incomplete block. Errors: kFrameBadMagic, kFrameBadHeader, kFrameBadPayload, kFrameHashMismatch; the
  // stream is unusable after one.
  Status push(ByteSpan packed, ByteVector& out);
  // True between blocks: a stream that ends here is whole.
  [[nodiscard]] bool is_at_block_end() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// One call for a whole tensor.
Result<ByteVector> pack_state(ByteSpan values, ElementType element_type);
// Errors also kFrameTruncated, and kLimitExceeded beyond `values_bytes_max`: checked block by block before memory grows.
Result<ByteVector> unpack_state(ByteSpan packed, std::size_t values_bytes_max);

}  // namespace sluice::compression
