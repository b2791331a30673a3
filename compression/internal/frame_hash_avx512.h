#pragma once

// REQUIRES: has_frame_hash_avx512() and a processor with AVX-512F. No types of the standard library here: see the .cc.

namespace sluice::compression {

unsigned long long frame_hash_avx512(const unsigned char* bytes, unsigned long long count);
// False where the compiler does not target x86-64.
bool has_frame_hash_avx512();

}  // namespace sluice::compression
