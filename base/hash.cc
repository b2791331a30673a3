#include "base/hash.h"

#include <xxhash.h>

namespace sluice {

std::uint64_t xxh3_64(ByteSpan bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

Digest xxh3_128(ByteSpan bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return Digest{hash.low64, hash.high64};
}

}  // namespace sluice
