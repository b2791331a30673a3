// Speed and size of the codec on one core, beside memcpy of the same run: the figures of the README come from here.
// Times are CPU time of this thread, medians; shares are against memcpy of the same fp32 array measured before and after each case.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>

#include "base/aligned_vector.h"
#include "compression/chunk_sum.h"
#include "compression/elements.h"
#include "compression/frame_decoder.h"
#include "compression/grid_codec.h"
#include "compression/internal/chunk_sample.h"
#include "compression/internal/dense_coder.h"
#include "compression/internal/sparse_coder.h"
#include "compression/sketch.h"
#include "compression/state_codec.h"
#include "tests/compression/codec_data.h"

namespace sluice::compression {
namespace {

struct Options {
  std::size_t values = std::size_t{32} << 20;  // 128 MiB of fp32
  int repeats = 7;
  std::string json_path;
  std::vector<std::string> delta_paths;  // raw little-endian fp32, as the demo saves deltas
  std::string weights_path;              // the same: parameters of a model
};

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <typename Work>
double median_seconds(int repeats, Work&& work) {
  std::vector<double> seconds;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const double begin = cpu_seconds();
    work();
    seconds.push_back(cpu_seconds() - begin);
  }
  std::nth_element(seconds.begin(), seconds.begin() + repeats / 2, seconds.end());
  return seconds[static_cast<std::size_t>(repeats / 2)];
}

// One row of the table; rates in GB/s of fp32 values, 0 where a case does not measure them.
struct Case {
  std::string name;
  std::string isa;
  double bits = 0.0;          // per value, whole frames; sparse cases: payload, per integer that is not 0
  double payload_bits = 0.0;  // dense cases: without header and hash
  double nmse = 0.0;
  double gap_db = 0.0;
  double entropy_bits = 0.0;
  double encode_gbps = 0.0;
  double decode_gbps = 0.0;
  double memcpy_gbps = 0.0;
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        values_(options.values),
        residual_(values_),
        out_(values_),
        copy_(values_),
        short_residual_(values_),
        narrow_(values_) {
    const auto pool = random_values(Shape::kGaussian, std::size_t{1} << 22, 1);
    delta_.resize(values_);
    for (std::size_t at = 0; at < values_; at += pool.size()) {
      std::copy_n(pool.begin(), std::min(pool.size(), values_ - at), delta_.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }

  void dense_cases();
  void owner_cases();
  void sparse_cases();
  void crossover_cases();
  void state_cases();
  void state_case(const std::string& name, std::span<const float> weights);
  void delta_case();
  void report() const;

 private:
  [[nodiscard]] std::size_t chunks() const { return values_ / kChunkValues; }
  double memcpy_seconds() {
    return median_seconds(options_.repeats, [&] { std::memcpy(copy_.data(), delta_.data(), 4 * values_); });
  }
  [[nodiscard]] double gbps(double seconds) const { return 4e-9 * static_cast<double>(values_) / seconds; }
  void encode_all(FrameEncoder& encoder, float step, bool is_short, std::vector<ByteVector>* frames);
  void dense_case(const GridKernels& kernels, float step, bool is_short);
  void sparse_case(float step, bool is_short);
  void add_case(Case row, double memcpy_before);

  Options options_;
  std::size_t values_;
  // At cache lines, like tensors and the arrays of agents and sums.
  AlignedVector<float> delta_, residual_, out_, copy_;
  AlignedVector<std::int16_t> short_residual_, narrow_;
  std::vector<Case> cases_;
};

double order0_entropy(const std::map<std::int32_t, std::uint64_t>& counts, double total) {
  double entropy = 0.0;
  for (const auto& [value, count] : counts) {
    const double share = static_cast<double>(count) / total;
    entropy -= share * std::log2(share);
  }
  return entropy;
}

// dB above the rate-distortion bound of a Gaussian of the same variance.
double gap_db(double bits, double nmse) { return 20.0 * std::log10(2.0) * (bits - 0.5 * std::log2(1.0 / nmse)); }

struct Quality {
  double bits = 0.0;          // of whole frames
  double payload_bits = 0.0;  // without header and hash: what the entropy is compared with
  double nmse = 0.0;
  double entropy = 0.0;
  double nonzero_share = 0.0;
};

// Frames against the input they were made from with zero residuals. Bits count whole frames; entropy is per chunk.
Quality measure_quality(std::span<const float> delta, const std::vector<ByteVector>& frames) {
  Quality quality;
  double signal = 0.0;
  double error = 0.0;
  double total = 0.0;
  double nonzeros = 0.0;
  std::vector<std::int32_t> integers;
  std::size_t at = 0;
  for (const ByteVector& frame : frames) {
    const auto view = parse_frame(frame);
    if (!view) continue;
    const double count = static_cast<double>(view->header.value_count);
    integers.resize(view->header.value_count);
    if (!decode_frame_integers(*view, integers)) continue;
    std::map<std::int32_t, std::uint64_t> counts;
    for (const std::int32_t integer : integers) ++counts[integer];
    quality.entropy += order0_entropy(counts, count) * count;
    quality.bits += 8.0 * static_cast<double>(frame.size());
    quality.payload_bits += static_cast<double>(view->header.coded_bits);
    for (std::size_t i = 0; i < integers.size(); ++i) signal += static_cast<double>(delta[at + i]) * static_cast<double>(delta[at + i]);
    error += view->header.squared_error;
    nonzeros += static_cast<double>(view->header.nonzeros);
    total += count;
    at += integers.size();
  }
  quality.bits /= total;
  quality.payload_bits /= total;
  quality.entropy /= total;
  quality.nmse = error / signal;
  quality.nonzero_share = nonzeros / total;
  return quality;
}

void Bench::add_case(Case row, double memcpy_before) {
  row.memcpy_gbps = gbps(0.5 * (memcpy_before + memcpy_seconds()));
  cases_.push_back(row);
  fmt::print("{:<44} {:<7} {:7.4f} bits", row.name, row.isa, row.bits);
  if (row.entropy_bits > 0.0) {
    const double coded = row.payload_bits > 0.0 ? row.payload_bits : row.bits;
    fmt::print(" (entropy {:+.4f}, {:5.2f} dB)", coded - row.entropy_bits, row.gap_db);
  }
  if (row.encode_gbps > 0.0) fmt::print("  encode {:6.2f} GB/s {:4.0f} %", row.encode_gbps, 100.0 * row.encode_gbps / row.memcpy_gbps);
  if (row.decode_gbps > 0.0) fmt::print("  decode {:6.2f} GB/s {:4.0f} %", row.decode_gbps, 100.0 * row.decode_gbps / row.memcpy_gbps);
  fmt::print("  memcpy {:.2f}\n", row.memcpy_gbps);
  std::fflush(stdout);
}

void Bench::encode_all(FrameEncoder& encoder, float step, bool is_short, std::vector<ByteVector>* frames) {
  for (std::size_t chunk = 0; chunk < chunks(); ++chunk) {
    const std::size_t at = chunk * kChunkValues;
    const std::span<const float> delta(delta_.data() + at, kChunkValues);
    const ChunkId id(static_cast<std::uint32_t>(chunk));
    const auto frame = is_short ? encoder.encode_grid_short(delta, 1.0F, {short_residual_.data() + at, kChunkValues}, step, step, id)
                                : encoder.encode_grid(delta, 1.0F, {residual_.data() + at, kChunkValues}, step, id);
    if (frame && frames != nullptr) (*frames)[chunk].assign(frame->bytes.begin(), frame->bytes.end());
  }
}

void Bench::dense_case(const GridKernels& kernels, float step, bool is_short) {
  FrameEncoder encoder(kernels);
  std::vector<ByteVector> frames(chunks());
  std::fill(residual_.begin(), residual_.end(), 0.0F);
  std::fill(short_residual_.begin(), short_residual_.end(), std::int16_t{0});
  encode_all(encoder, step, is_short, &frames);
  const Quality quality = measure_quality(delta_, frames);
  const double memcpy_before = memcpy_seconds();
  Case row;
  row.name = fmt::format("dense, step {} sigma, {} residual", step, is_short ? "int16" : "fp32");
  row.isa = kernels.name;
  row.bits = quality.bits;
  row.payload_bits = quality.payload_bits;
  row.nmse = quality.nmse;
  row.gap_db = gap_db(quality.bits, quality.nmse);
  row.entropy_bits = quality.entropy;
  row.encode_gbps = gbps(median_seconds(options_.repeats, [&] { encode_all(encoder, step, is_short, nullptr); }));
  std::vector<FrameView> views;
  for (const ByteVector& frame : frames) views.push_back(*parse_frame(frame));
  row.decode_gbps = gbps(median_seconds(options_.repeats, [&] {
    for (std::size_t chunk = 0; chunk < chunks(); ++chunk) {
      GridSink sink;
      sink.kind = SinkKind::kFloatAdd;
      sink.values = out_.data() + chunk * kChunkValues;
      sink.scaled_step = step;
      if (!decode_dense(kernels, views[chunk], sink)) std::abort();
    }
  }));
  add_case(row, memcpy_before);
}

void Bench::dense_cases() {
  const auto tables = available_kernels();
  for (const float step : {1.658F, 1.082F, 0.522F, 0.259F, 0.065F}) dense_case(*tables.back(), step, false);
  for (const float step : {1.082F, 0.522F, 0.259F}) dense_case(*tables.back(), step, true);
  for (const GridKernels* kernels : tables) {
    if (kernels == tables.back()) continue;
    for (const float step : {1.082F, 0.522F}) dense_case(*kernels, step, false);
  }
}

void Bench::owner_cases() {
  const GridKernels& kernels = *available_kernels().back();
  constexpr float kStep = 0.522F;
  FrameEncoder encoder;
  std::vector<ByteVector> frames(chunks());
  std::fill(residual_.begin(), residual_.end(), 0.0F);
  encode_all(encoder, kStep, false, &frames);
  std::vector<FrameView> views;
  for (const ByteVector& frame : frames) views.push_back(*parse_frame(frame));
  double memcpy_before = memcpy_seconds();
  Case row{"owner: decode and add into int16", kernels.name};
  row.bits = 8.0 * static_cast<double>(frames[0].size()) / kChunkValues;
  row.decode_gbps = gbps(median_seconds(options_.repeats, [&] {
    for (std::size_t chunk = 0; chunk < chunks(); ++chunk) {
      if (!add_frame_integers(views[chunk], std::span<std::int16_t>(narrow_.data() + chunk * kChunkValues, kChunkValues))) std::abort();
    }
  }));
  add_case(row, memcpy_before);
  // Sums of 3 contributions: three different chunks stand for three sites.
  std::vector<ChunkSum> sums(chunks());
  for (std::size_t chunk = 0; chunk < chunks(); ++chunk) {
    for (std::size_t site = 0; site < 3; ++site) {
      FrameView view = views[(chunk + 5 * site) % chunks()];
      view.header.chunk = ChunkId(static_cast<std::uint32_t>(chunk));
      if (!sums[chunk].add(view)) std::abort();
    }
  }
  std::vector<ByteVector> coded(chunks());
  for (std::size_t chunk = 0; chunk < chunks(); ++chunk) {
    if (!sums[chunk].encode(coded[chunk])) std::abort();
  }
  const Quality quality = measure_quality(delta_, coded);
  memcpy_before = memcpy_seconds();
  row = Case{"owner: re-encode sums of 3", kernels.name};
  row.bits = quality.bits;
  row.payload_bits = quality.payload_bits;
  row.entropy_bits = quality.entropy;
  row.encode_gbps = gbps(median_seconds(options_.repeats, [&] {
    for (const ChunkSum& sum : sums) {
      if (!sum.encode(encoder)) std::abort();
    }
  }));
  add_case(row, memcpy_before);
}

void Bench::sparse_case(float step, bool is_short) {
  FrameEncoder encoder;
  std::vector<ByteVector> frames(chunks());
  std::fill(residual_.begin(), residual_.end(), 0.0F);
  std::fill(short_residual_.begin(), short_residual_.end(), std::int16_t{0});
  encode_all(encoder, step, is_short, &frames);
  const Quality quality = measure_quality(delta_, frames);
  const double memcpy_before = memcpy_seconds();
  std::vector<double> seconds;
  for (int repeat = 0; repeat < options_.repeats; ++repeat) {  // fresh residuals, so that the density stays
    std::fill(residual_.begin(), residual_.end(), 0.0F);
    std::fill(short_residual_.begin(), short_residual_.end(), std::int16_t{0});
    const double begin = cpu_seconds();
    encode_all(encoder, step, is_short, nullptr);
    seconds.push_back(cpu_seconds() - begin);
  }
  std::sort(seconds.begin(), seconds.end());
  Case row;
  row.name =
      fmt::format("sparse, {:.2f} % nonzeros, {} residual, bits per nonzero", 100.0 * quality.nonzero_share, is_short ? "int16" : "fp32");
  row.isa = available_kernels().back()->name;
  row.bits = quality.payload_bits / quality.nonzero_share;
  row.entropy_bits = quality.entropy / quality.nonzero_share;
  row.nmse = quality.nmse;
  row.encode_gbps = gbps(seconds[seconds.size() / 2]);
  std::vector<FrameView> views;
  for (const ByteVector& frame : frames) views.push_back(*parse_frame(frame));
  row.decode_gbps = gbps(median_seconds(options_.repeats, [&] {
    for (std::size_t chunk = 0; chunk < chunks(); ++chunk) {
      if (!decode_frame_add(views[chunk], {out_.data() + chunk * kChunkValues, kChunkValues})) std::abort();
    }
  }));
  add_case(row, memcpy_before);
}

void Bench::sparse_cases() {
  for (const float step : {3.92F, 5.1517F, 6.581F}) sparse_case(step, false);  // 5, 1 and 0.1 % of a Gaussian
  sparse_case(5.1517F, true);
}

// Integers of one density coded both ways: where a sparse frame becomes larger than a dense one. Bits of whole payloads, no speeds.
void Bench::crossover_cases() {
  const GridKernels& kernels = *available_kernels().back();
  constexpr std::pair<Shape, const char*> kShapes[] = {{Shape::kGaussian, "Gaussian"}, {Shape::kLaplace, "Laplace"}, {Shape::kHeavy, "t4"}};
  for (const auto& [shape, name] : kShapes) {
    const auto values = random_values(shape, kChunkValues, 7);
    std::vector<float> magnitudes(values.size());
    std::transform(values.begin(), values.end(), magnitudes.begin(), [](float value) { return std::fabs(value); });
    std::sort(magnitudes.begin(), magnitudes.end(), std::greater<>());
    for (const double density : {0.02, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15}) {
      const float step = 2.0F * magnitudes[static_cast<std::size_t>(density * static_cast<double>(values.size()))];
      std::vector<std::int32_t> integers(values.size());
      std::transform(values.begin(), values.end(), integers.begin(),
                     [step](float value) { return static_cast<std::int32_t>(std::nearbyint(value / step)); });
      GridSource source;
      source.integers32 = integers.data();
      std::array<std::int32_t, kSampleValues> sample;
      sample_integers(kernels, source, integers.size(), sample);
      EncodeWorkspace workspace;
      constexpr double kToBits = 8.0 / kChunkValues;
      const CodedPayload dense = encode_dense(kernels, plan_dense(kernels, sample, integers.size()), source, integers.size(), workspace);
      const double dense_bits = kToBits * static_cast<double>(dense.payload.size());
      const double sparse_bits = kToBits * static_cast<double>(encode_sparse(kernels, source, integers.size(), workspace).payload.size());
      for (const auto& [way, bits] : {std::pair{"dense", dense_bits}, std::pair{"sparse", sparse_bits}}) {
        Case row{fmt::format("crossover, {}, {:.0f} % nonzeros, {}", name, 100.0 * density, way), kernels.name};
        row.bits = bits;
        row.memcpy_gbps = cases_.empty() ? 1.0 : cases_.back().memcpy_gbps;
        cases_.push_back(row);
      }
      fmt::print("crossover, {:<8} {:4.0f} % nonzeros   dense {:.4f}   sparse {:.4f} bits\n", name, 100.0 * density, dense_bits,
                 sparse_bits);
    }
  }
}

// Weights as bfloat16, packed block by block and unpacked as a stream in pieces of 1 MiB, the way state is transferred.
void Bench::state_case(const std::string& name, std::span<const float> weights) {
  ByteVector bytes(2 * weights.size());
  store_elements(weights, ElementType::kBfloat16, bytes);
  const double memcpy_before = memcpy_seconds();
  const auto pieces_of = [](ByteSpan whole, auto&& visit) {
    for (std::size_t at = 0; at < whole.size(); at += kStateBlockBytes) {
      visit(whole.subspan(at, std::min(kStateBlockBytes, whole.size() - at)));
    }
  };
  ByteVector packed;
  StatePacker packer(ElementType::kBfloat16);
  const auto pack = [&] {
    packed.clear();
    pieces_of(bytes, [&](ByteSpan piece) {
      if (!packer.pack_block(piece, packed)) std::abort();
    });
  };
  ByteVector unpacked;
  std::size_t unpacked_bytes = 0;
  const auto unpack = [&] {
    StateUnpacker unpacker;
    unpacked_bytes = 0;
    pieces_of(packed, [&](ByteSpan piece) {
      unpacked.clear();
      if (!unpacker.push(piece, unpacked)) std::abort();
      unpacked_bytes += unpacked.size();
    });
  };
  Case row{name, "zstd"};
  const auto rate = [&bytes](double seconds) { return 1e-9 * static_cast<double>(bytes.size()) / seconds; };
  row.encode_gbps = rate(median_seconds(options_.repeats, pack));
  row.decode_gbps = rate(median_seconds(options_.repeats, unpack));
  if (unpacked_bytes != bytes.size() || *unpack_state(packed, bytes.size()) != bytes) std::abort();
  row.bits = 16.0 * static_cast<double>(packed.size()) / static_cast<double>(bytes.size());
  add_case(row, memcpy_before);
  fmt::print("  lossless ratio against plain bf16: {:.3f}\n", static_cast<double>(bytes.size()) / static_cast<double>(packed.size()));
}

std::vector<float> read_floats(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<float> values(bytes.size() / 4);
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), 4 * values.size());
  return values;
}

void Bench::state_cases() {
  // Weights of a layer: Gaussian with a scale of 0.02.
  std::vector<float> layer(values_ / 4);
  std::transform(delta_.begin(), delta_.begin() + static_cast<std::ptrdiff_t>(layer.size()), layer.begin(),
                 [](float x) { return 0.02F * x; });
  state_case("state: Gaussian weights as bf16", layer);
  if (options_.weights_path.empty()) return;
  // A small model is repeated to at least 64 MiB, which changes nothing for blocks that are packed alone and gives the clock something to
  // do.
  const std::vector<float> weights = read_floats(options_.weights_path);
  if (weights.empty()) return;
  std::vector<float> repeated;
  do repeated.insert(repeated.end(), weights.begin(), weights.end());
  while (repeated.size() < (std::size_t{32} << 20));
  state_case("state: saved weights as bf16", repeated);
}

void Bench::delta_case() {
  for (const std::string& path : options_.delta_paths) {
    const std::vector<float> delta = read_floats(path);
    if (delta.empty()) continue;
    Sketch sketch;
    sketch.add(delta, 1.0F, {}, 1);
    const float step = choose_step(std::vector<SiteSketch>{{&sketch, 1.0}}, 3.0);
    std::vector<ByteVector> frames;
    for (std::size_t at = 0; at < delta.size(); at += kChunkValues) {
      const std::span<const float> part = std::span<const float>(delta).subspan(at, std::min<std::size_t>(kChunkValues, delta.size() - at));
      std::vector<float> residual(part.size());
      frames.emplace_back();
      if (!encode_grid_frame(part, 1.0F, residual, step, ChunkId(0), frames.back())) std::abort();
    }
    const Quality quality = measure_quality(delta, frames);
    Case row{"dense on saved deltas: " + path.substr(path.find_last_of('/') + 1), available_kernels().back()->name};
    row.bits = quality.bits;
    row.payload_bits = quality.payload_bits;
    row.nmse = quality.nmse;
    row.entropy_bits = quality.entropy;
    row.gap_db = gap_db(quality.bits, quality.nmse);
    add_case(row, memcpy_seconds());
  }
}

void Bench::report() const {
  if (options_.json_path.empty()) return;
  nlohmann::json list = nlohmann::json::array();
  for (const Case& row : cases_) {
    list.push_back({{"case", row.name},
                    {"isa", row.isa},
                    {"bits", row.bits},
                    {"payload_bits", row.payload_bits},
                    {"nmse", row.nmse},
                    {"gap_db", row.gap_db},
                    {"entropy_bits", row.entropy_bits},
                    {"encode_gbps", row.encode_gbps},
                    {"decode_gbps", row.decode_gbps},
                    {"memcpy_gbps", row.memcpy_gbps},
                    {"encode_share", row.encode_gbps / row.memcpy_gbps},
                    {"decode_share", row.decode_gbps / row.memcpy_gbps}});
  }
  std::ofstream(options_.json_path) << list.dump(2) << '\n';
}

int run(int argc, char** argv) {
  Options options;
  std::size_t mib = 128;
  CLI::App app{"Speed and size of the codec on one core, against memcpy of the same run"};
  app.add_option("--json", options.json_path, "write the cases to this file");
  app.add_option("--mib", mib, "size of the fp32 array")->check(CLI::Range(4, 1024));
  app.add_option("--repeats", options.repeats, "runs per case, the median counts")->check(CLI::Range(1, 99));
  app.add_option("--delta", options.delta_paths, "files of raw fp32 deltas, each coded at 3 bits");
  app.add_option("--weights", options.weights_path, "file of raw fp32 parameters, packed as bf16 without loss");
  CLI11_PARSE(app, argc, argv);
  options.values = mib << 18U;
  Bench bench(options);
  bench.dense_cases();
  bench.owner_cases();
  bench.sparse_cases();
  bench.crossover_cases();
  bench.state_cases();
  bench.delta_case();
  bench.report();
  return 0;
}

}  // namespace
}  // namespace sluice::compression

int main(int argc, char** argv) { return sluice::compression::run(argc, argv); }
