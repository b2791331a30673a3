// Goal: the GPU makes the same frames and residuals as the CPU and adds the same values. Method: several chunks with a short last one at
// several rates, compared byte for byte; rates printed. Skipped with its reason where the build has no CUDA or the machine no GPU.
#include "compression/cuda/grid_cuda.h"

#include <gtest/gtest.h>

#if defined(SLUICE_HAVE_CUDA)
#include <cuda_runtime_api.h>
#endif

#include <chrono>
#include <cstring>

#include "compression/elements.h"
#include "compression/frame_decoder.h"
#include "compression/grid_codec.h"
#include "tests/compression/codec_data.h"

namespace sluice::compression {
namespace {

#if defined(SLUICE_HAVE_CUDA)

class DeviceFloats {
 public:
  explicit DeviceFloats(const std::vector<float>& values) : count_(values.size()) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data_), 4 * count_), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, values.data(), 4 * count_, cudaMemcpyHostToDevice), cudaSuccess);
  }
  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const DeviceFloats&) = delete;
  ~DeviceFloats() { cudaFree(data_); }
  [[nodiscard]] float* data() const { return data_; }
  [[nodiscard]] std::vector<float> values() const {
    std::vector<float> result(count_);
    EXPECT_EQ(cudaMemcpy(result.data(), data_, 4 * count_, cudaMemcpyDeviceToHost), cudaSuccess);
    return result;
  }

 private:
  std::size_t count_;
  float* data_ = nullptr;
};

std::vector<ByteVector> encode_on_cpu(const std::vector<float>& delta, std::vector<float>& residual, float step) {
  std::vector<ByteVector> frames(chunk_count(delta.size()));
  for (std::uint32_t chunk = 0; chunk < frames.size(); ++chunk) {
    const ChunkRange range = chunk_range(ChunkId(chunk), delta.size());
    const auto part = std::span<const float>(delta).subspan(range.begin, range.size);
    EXPECT_TRUE(
        encode_grid_frame(part, 0.7F, std::span<float>(residual).subspan(range.begin, range.size), step, ChunkId(chunk), frames[chunk]));
  }
  return frames;
}

TEST(GridCuda, FramesResidualsAndSumsEqualTheCpus) {
  auto codec = GridCuda::create(0);
  if (!codec) GTEST_SKIP() << codec.error().to_string();
  for (const float step : {0.004F, 0.25F, 0.522F, 1.082F, 6.0F}) {
    const auto delta = random_values(Shape::kHeavy, std::size_t{9} * kChunkValues + 5001, 3);
    auto residual = random_values(Shape::kGaussian, delta.size(), 4, 0.1);
    const DeviceFloats device_delta(delta);
    const DeviceFloats device_residual(residual);
    const auto expected = encode_on_cpu(delta, residual, step);
    const auto frames = codec->encode(device_delta.data(), 0.7F, device_residual.data(), delta.size(), step, ChunkId(0));
    ASSERT_TRUE(frames) << frames.error().to_string();
    ASSERT_EQ(*frames, expected) << "step " << step;
    const auto device_rest = device_residual.values();
    ASSERT_EQ(std::memcmp(device_rest.data(), residual.data(), 4 * residual.size()), 0);
    std::vector<FrameView> views;
    for (const ByteVector& frame : expected) views.push_back(*parse_frame(frame));
    std::vector<float> sums(delta.size(), 1.0F);
    const DeviceFloats device_sums(sums);
    ASSERT_TRUE(codec->decode_add(views, device_sums.data(), 0.5F));
    for (std::uint32_t chunk = 0; chunk < views.size(); ++chunk) {
      const ChunkRange range = chunk_range(ChunkId(chunk), delta.size());
      ASSERT_TRUE(decode_frame_add(views[chunk], std::span<float>(sums).subspan(range.begin, range.size), 0.5F));
    }
    const auto device_values = device_sums.values();
    ASSERT_EQ(std::memcmp(device_values.data(), sums.data(), 4 * sums.size()), 0);
  }
}

TEST(GridCuda, SpeedIsPrinted) {
  auto codec = GridCuda::create(0);
  if (!codec) GTEST_SKIP() << codec.error().to_string();
  std::vector<float> delta = random_values(Shape::kGaussian, std::size_t{16} * kChunkValues, 5);
  const std::size_t pattern = delta.size();
  delta.resize(8 * pattern);
  for (std::size_t at = pattern; at < delta.size(); at += pattern)
    std::copy_n(delta.begin(), pattern, delta.begin() + static_cast<std::ptrdiff_t>(at));
  const DeviceFloats device_delta(delta);
  const DeviceFloats device_residual(std::vector<float>(delta.size()));
  double seconds = 1e9;
  std::vector<ByteVector> frames;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    auto made = codec->encode(device_delta.data(), 1.0F, device_residual.data(), delta.size(), 0.522F, ChunkId(0));
    seconds = std::min(seconds, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    ASSERT_TRUE(made);
    frames = std::move(*made);
  }
  std::printf("encode %.1f GB/s of fp32, frames on the host\n", 4e-9 * static_cast<double>(delta.size()) / seconds);
  std::vector<FrameView> views;
  for (const ByteVector& frame : frames) views.push_back(*parse_frame(frame));
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(codec->decode_add(views, device_residual.data(), 1.0F));
  const double decode_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("decode and add %.1f GB/s of fp32, frames from the host\n", 4e-9 * static_cast<double>(delta.size()) / decode_seconds);
}

#else

TEST(GridCuda, FramesResidualsAndSumsEqualTheCpus) {
  const auto codec = GridCuda::create(0);
  ASSERT_FALSE(codec);
  GTEST_SKIP() << codec.error().to_string();
}

#endif

}  // namespace
}  // namespace sluice::compression
