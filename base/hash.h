#pragma once

// XXH3 (xxHash 0.8): integrity against accidents, not against an adversary; authenticity comes from TLS. Pure, any thread.

#include <cstdint>

#include "base/bytes.h"

namespace sluice {

std::uint64_t xxh3_64(ByteSpan bytes);

// 128 bits, for digests that sites compare with one another.
struct Digest {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const Digest&) const = default;
};

Digest xxh3_128(ByteSpan bytes);

}  // namespace sluice
