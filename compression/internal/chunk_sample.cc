#include "compression/internal/chunk_sample.h"

#include "compression/internal/grid_value.h"

namespace sluice::compression {
namespace {

float input_of(const GridSource& source, std::size_t at) {
  if (source.kind == SourceKind::kFloatResidual) {
    return add(multiply(source.weight, source.delta[at]), multiply(source.decay, source.residual[at]));
  }
  return add(multiply(source.weight, source.delta[at]), multiply(source.short_scale, static_cast<float>(source.short_residual[at])));
}

template <typename T>
void prefetch_run(const T* values, std::size_t from) {
  if (values == nullptr) return;
  const auto* const bytes = reinterpret_cast<const char*>(values + from);
  for (std::size_t at = 0; at < kSampleRunValues * sizeof(T); at += 64) __builtin_prefetch(bytes + at);
}

}  // namespace

void sample_integers(const GridKernels& kernels, const GridSource& source, std::size_t count,
                     std::array<std::int32_t, kSampleValues>& sample) {
  const std::size_t rows = count / kRowValues - kSampleRunValues / kRowValues;
  const auto begin_of = [rows](std::size_t run) { return run * rows / (kSampleRuns - 1) * kRowValues; };
  std::size_t to = 0;
  for (std::size_t run = 0; run < kSampleRuns; ++run) {
    const std::size_t from = begin_of(run);
    // The runs lie far apart: without this each would wait for memory once.
    if (run + 1 < kSampleRuns) {
      prefetch_run(source.delta, begin_of(run + 1));
      prefetch_run(source.residual, begin_of(run + 1));
      prefetch_run(source.short_residual, begin_of(run + 1));
      prefetch_run(source.integers16, begin_of(run + 1));
      prefetch_run(source.integers32, begin_of(run + 1));
    }
    kernels.peek(source, from, kSampleRunValues, sample.data() + to);
    to += kSampleRunValues;
  }
}

bool is_sparse_sample(std::span<const std::int32_t> sample) {
  // Measured (`./run bench codec`, rows "crossover"): below 1 in 17 a sparse frame is smaller on Gaussian, Laplace and t4 chunks (17 % at
  // 1 in 50, 2 % at 1 in 20); from there to 1 in 6 the sizes are within 1.5 %, and dense frames are faster.
  constexpr std::size_t kShareOfNonzeros = 17;
  std::size_t nonzeros = 0;
  for (const std::int32_t integer : sample) nonzeros += integer != 0 ? 1U : 0U;
  return nonzeros * kShareOfNonzeros < sample.size();
}

std::size_t first_non_finite(const GridSource& source, std::size_t first, std::size_t count) {
  if (source.kind != SourceKind::kFloatResidual && source.kind != SourceKind::kShortResidual) return count;
  std::size_t at = first;
  while (at < count && !is_non_finite(input_of(source, at))) ++at;
  return at;
}

void quantise_source(const GridSource& source, std::size_t count, std::int32_t* integers, std::array<float, 16>& squares) {
  for (std::size_t at = 0; at < count; ++at) {
    const float input = input_of(source, at);
    float square = 0.0F;
    if (source.kind == SourceKind::kFloatResidual) {
      const Quantised value = quantise_value(input, source.step, source.inverse_step);
      integers[at] = value.integer;
      source.residual[at] = value.residual;
      square = multiply(value.residual, value.residual);
    } else {
      const ShortQuantised value = quantise_short_value(input);
      integers[at] = value.integer;
      source.short_residual[at] = value.residual;
      square = multiply(value.rest, value.rest);
    }
    squares[at & 15U] = add(squares[at & 15U], square);
  }
}

}  // namespace sluice::compression
