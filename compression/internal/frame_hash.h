#pragma once

// XXH3-64 of a frame with the widest instructions of this machine; the same number as sluice::xxh3_64. Pure, any thread.

#include <cstdint>

#include "base/bytes.h"

namespace sluice::compression {

std::uint64_t frame_hash(ByteSpan bytes);

}  // namespace sluice::compression
