#include "compression/internal/frame_hash.h"

#include "base/hash.h"
#include "compression/internal/frame_hash_avx512.h"
#include "compression/internal/grid_kernels.h"

namespace sluice::compression {

std::uint64_t frame_hash(ByteSpan bytes) {
  static const bool wide = has_frame_hash_avx512() && has_avx512();
  return wide ? frame_hash_avx512(bytes.data(), bytes.size()) : xxh3_64(bytes);
}

}  // namespace sluice::compression
