// XXH3-64 compiled for AVX-512 (the packaged library is SSE2 only): the hash would otherwise be 4 % of encoding. This file alone is built
// with -mavx512f and holds nothing but static functions of xxhash.h, so that no other code can pick up its instructions.
#include "compression/internal/frame_hash_avx512.h"

#if defined(__AVX512F__)
#define XXH_INLINE_ALL
#include <xxhash.h>
#endif

namespace sluice::compression {

#if defined(__AVX512F__)
unsigned long long frame_hash_avx512(const unsigned char* bytes, unsigned long long count) { return XXH3_64bits(bytes, count); }
bool has_frame_hash_avx512() { return true; }
#else
unsigned long long frame_hash_avx512(const unsigned char*, unsigned long long) { return 0; }
bool has_frame_hash_avx512() { return false; }
#endif

}  // namespace sluice::compression
