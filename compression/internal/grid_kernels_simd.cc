// One copy of the kernels per instruction set, by Highway's repeated inclusion, and the choice among them at run time. Highway does the
// dispatch; the loops use intrinsics, because byte compress, byte expand and two-register byte permutes are the whole point here.
#include "compression/internal/grid_kernels.h"

#define HWY_WANT_AVX3_DL
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/internal/grid_kernels_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#if HWY_TARGET == HWY_AVX3_DL
#include "compression/internal/avx512_kernels.h"
#elif HWY_TARGET == HWY_AVX2
#include "compression/internal/avx2_kernels.h"
#else
HWY_BEFORE_NAMESPACE();
namespace sluice::compression::HWY_NAMESPACE {
const GridKernels& kernels() { return scalar_kernels(); }
}  // namespace sluice::compression::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace sluice::compression {

HWY_EXPORT(kernels);

const GridKernels& best_kernels() {
  static const GridKernels& best = HWY_DYNAMIC_DISPATCH(kernels)();
  return best;
}

bool has_avx512() {
#if (HWY_TARGETS & HWY_AVX3_DL)
  return (hwy::SupportedTargets() & HWY_AVX3_DL) != 0;
#else
  return false;
#endif
}

std::vector<const GridKernels*> available_kernels() {
  std::vector<const GridKernels*> tables{&scalar_kernels()};
#if (HWY_TARGETS & HWY_AVX2)
  if ((hwy::SupportedTargets() & HWY_AVX2) != 0) tables.push_back(&N_AVX2::kernels());
#endif
#if (HWY_TARGETS & HWY_AVX3_DL)
  if ((hwy::SupportedTargets() & HWY_AVX3_DL) != 0) tables.push_back(&N_AVX3_DL::kernels());
#endif
  return tables;
}

}  // namespace sluice::compression
#endif  // HWY_ONCE
