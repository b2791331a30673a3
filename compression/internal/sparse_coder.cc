#include "compression/internal/sparse_coder.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "compression/internal/grid_value.h"

// Gap stream: for each integer that is not 0, the zeros before it as a Rice code (unary high part, `k` low bits), then its sign.
// Magnitude section, absent when all are +-1: the number of integers beyond +-1, then for each the gap in the list as a Rice code and
// |q| - 2 in Elias gamma. At 1 % density this is within 0.05 bit per integer of the entropy (Rice against geometric gaps).

namespace sluice::compression {
namespace {

// Rice parameter for gaps of this mean: the power of two nearest to 0.69 of it (half the gaps then fit the low bits).
unsigned rice_parameter(std::uint64_t zeros, std::uint64_t gaps) {
  if (gaps == 0) return 0;
  const double scaled = 0.69 * static_cast<double>(zeros + gaps) / static_cast<double>(gaps);
  unsigned parameter = 0;
  while (parameter < 17 && static_cast<double>(std::uint32_t{1} << parameter) * 1.4142135 < scaled) ++parameter;
  return parameter;
}

// A 64-bit load at any bit holds this many bits, a BitWriter takes no more than 56 at once.
constexpr unsigned kWordBits = 57;

// Gaps with signs that fit a word: a code has about parameter + 3 bits, and several of them stray little from their mean.
constexpr unsigned codes_per_word(unsigned parameter) { return parameter <= 6 ? 5 : parameter <= 8 ? 4 : parameter <= 12 ? 3 : 2; }

void write_gap(BitWriter& writer, std::uint32_t gap, unsigned parameter) {
  writer.write_unary(gap >> parameter);
  writer.write(gap & ((1U << parameter) - 1U), parameter);
}

// One gap with its sign.
void write_signed_gap(BitWriter& writer, std::uint32_t gap, std::int32_t integer, unsigned parameter) {
  const std::uint32_t zeros = gap >> parameter;
  const std::uint64_t sign = static_cast<std::uint32_t>(integer) >> 31;
  const std::uint64_t rest = (gap & ((1U << parameter) - 1U)) | sign << parameter;
  if (zeros < 32) [[likely]] {
    writer.write((std::uint64_t{1} << zeros) | rest << (zeros + 1), zeros + parameter + 2);
  } else {
    writer.write_unary(zeros);
    writer.write(rest, parameter + 1);
  }
}

// All gaps, kCodes of them at a time joined in a register where that many bits fit.
template <unsigned kCodes>
void write_gaps(BitWriter& to, std::span<const std::uint32_t> positions, std::span<const std::int32_t> integers, unsigned parameter) {
  BitWriter writer = to;
  std::uint32_t next = 0;
  std::size_t index = 0;
  const std::uint32_t mask = (1U << parameter) - 1U;
  for (; index + kCodes <= positions.size(); index += kCodes) {
    std::uint64_t codes = 0;
    std::uint32_t used = 0;
    std::uint32_t from = next;
    for (std::size_t i = 0; i < kCodes; ++i) {
      const std::uint32_t gap = positions[index + i] - from;
      from = positions[index + i] + 1;
      const std::uint64_t sign = static_cast<std::uint32_t>(integers[index + i]) >> 31;
      const std::uint64_t rest = (gap & mask) | sign << parameter;
      used += gap >> parameter;
      codes |= (1 | rest << 1) << (used & 63U);
      used += parameter + 2;
    }
    if (used <= 56) [[likely]] {
      writer.write(codes, used);
      next = from;
      continue;
    }
    for (std::size_t i = 0; i < kCodes; ++i) {
      write_signed_gap(writer, positions[index + i] - next, integers[index + i], parameter);
      next = positions[index + i] + 1;
    }
  }
  for (; index < positions.size(); ++index) {
    write_signed_gap(writer, positions[index] - next, integers[index], parameter);
    next = positions[index] + 1;
  }
  to = writer;
}

void write_gaps(BitWriter& writer, std::span<const std::uint32_t> positions, std::span<const std::int32_t> integers, unsigned parameter) {
  switch (codes_per_word(parameter)) {
    case 5:
      return write_gaps<5>(writer, positions, integers, parameter);
    case 4:
      return write_gaps<4>(writer, positions, integers, parameter);
    case 3:
      return write_gaps<3>(writer, positions, integers, parameter);
    default:
      return write_gaps<2>(writer, positions, integers, parameter);
  }
}

// Bits of the magnitude section in workspace.bits; returns bytes. REQUIRES: some integer is beyond +-1.
std::size_t write_magnitudes(std::span<const std::int32_t> integers, std::uint8_t& parameter, std::size_t& bit_count,
                             EncodeWorkspace& workspace) {
  std::uint32_t large = 0;
  for (const std::int32_t integer : integers) large += (integer > 1 || integer < -1) ? 1U : 0U;
  parameter = static_cast<std::uint8_t>(rice_parameter(integers.size() - large, large));
  workspace.bits.resize(std::max(workspace.bits.size(), std::size_t{large} * 16 + integers.size() + 32));
  BitWriter writer(workspace.bits.data());
  writer.write(large, 32);
  std::uint32_t gap = 0;
  for (const std::int32_t integer : integers) {
    const std::uint32_t magnitude = integer < 0 ? 0U - static_cast<std::uint32_t>(integer) : static_cast<std::uint32_t>(integer);
    if (magnitude < 2) {
      ++gap;
      continue;
    }
    write_gap(writer, gap, parameter);
    writer.write_exp_golomb(magnitude - 2, 0);
    gap = 0;
  }
  bit_count = writer.bit_count();
  return writer.byte_count();
}

void fill_zero(const GridSink& sink, std::size_t count) {
  if (sink.kind == SinkKind::kFloatSet) std::fill_n(sink.values, count, 0.0F);
  if (sink.kind == SinkKind::kInteger32Set) std::fill_n(sink.integers32, count, 0);
}

}  // namespace

CodedPayload encode_sparse_list(std::span<const std::uint32_t> positions, std::span<const std::int32_t> integers, std::size_t count,
                                EncodeWorkspace& workspace) {
  CodedPayload coded;
  coded.nonzeros = static_cast<std::uint32_t>(positions.size());
  coded.magnitude_bits = magnitude_bits_of(integers);
  std::size_t magnitude_bits = 0;
  const std::size_t magnitude_bytes = coded.magnitude_bits < 2 ? 0 : write_magnitudes(integers, coded.model_b, magnitude_bits, workspace);
  coded.model_bytes = static_cast<std::uint32_t>(magnitude_bytes);
  const unsigned parameter = rice_parameter(count - positions.size(), positions.size());
  coded.model_a = static_cast<std::uint8_t>(parameter);
  // Unary parts of all gaps together are at most count >> parameter bits.
  const std::size_t gap_bytes_max = ((count >> parameter) + positions.size() * (parameter + 2)) / 8 + 16;
  const std::size_t need = kFrameHeaderBytes + gap_bytes_max + magnitude_bytes + kFrameTrailerBytes + kKernelSlack;
  if (workspace.frame.size() < need) workspace.frame.resize(need);
  coded.begin = workspace.frame.data() + kFrameHeaderBytes;
  BitWriter writer(coded.begin);
  write_gaps(writer, positions, integers, parameter);
  const std::size_t gap_bytes = writer.byte_count();
  std::copy_n(workspace.bits.begin(), magnitude_bytes, coded.begin + gap_bytes);
  coded.payload = ByteSpan(coded.begin, gap_bytes + magnitude_bytes);
  coded.coded_bits = static_cast<std::uint32_t>(writer.bit_count() + magnitude_bits);
  return coded;
}

CodedPayload encode_sparse(const GridKernels& kernels, const GridSource& source, std::size_t count, EncodeWorkspace& workspace) {
  const std::size_t full_rows = count / kRowValues;
  const std::size_t room = (full_rows + 1) * kRowValues + kKernelSlack;
  if (workspace.escapes.size() < room) workspace.escapes.resize(room);
  if (workspace.positions.size() < room) workspace.positions.resize(room);
  SparseList list{workspace.positions.data(), workspace.escapes.data(), 0};
  std::array<float, 16> squares{};
  std::size_t failed = kernels.select_rows(source, full_rows, 0, squares, list);
  if (failed == 0 && count % kRowValues != 0) {
    TailRow tail(source, full_rows, count % kRowValues);
    const auto base = static_cast<std::uint32_t>(full_rows * kRowValues);
    failed = kernels.select_rows(tail.source(), 1, base, squares, list) == 0 ? 0 : full_rows + 1;
    if (failed == 0) tail.write_residual_back();
  }
  if (failed != 0) {
    const std::size_t done = (failed - 1) * kRowValues;
    workspace.integers.assign(std::max(done, std::size_t{1}), 0);
    for (std::size_t index = 0; index < list.count; ++index) workspace.integers[list.positions[index]] = list.integers[index];
    undo_source(source, 0, std::span<const std::int32_t>(workspace.integers).first(done));
    CodedPayload coded;
    coded.failed_value = done + 1;
    return coded;
  }
  CodedPayload coded = encode_sparse_list({list.positions, list.count}, {list.integers, list.count}, count, workspace);
  coded.squares = sum_squares(squares);
  return coded;
}

namespace {

constexpr std::size_t kBlockValues = 256;

// A block of decoded integers, delivered together. The places of a block are fetched while the next one is decoded: into the second-level
// cache, because two blocks of lines would push each other out of the first (adding to lines that lie in memory at 41-43 GB/s of fp32
// values with that hint, at 28-30 with the non-temporal one, which is faster by a tenth where they are in a cache).
struct Block {
  std::array<std::uint32_t, kBlockValues> positions;
  std::array<std::int32_t, kBlockValues> integers;
  std::size_t count = 0;
};

// Where the values of a sink begin and how wide they are, for prefetches.
struct Places {
  const char* begin = nullptr;
  std::size_t width = 0;

  explicit Places(const GridSink& sink) {
    if (sink.kind == SinkKind::kFloatSet || sink.kind == SinkKind::kFloatAdd) begin = reinterpret_cast<const char*>(sink.values);
    if (sink.kind == SinkKind::kInteger16Add) begin = reinterpret_cast<const char*>(sink.integers16);
    if (sink.kind == SinkKind::kInteger32Set || sink.kind == SinkKind::kInteger32Add)
      begin = reinterpret_cast<const char*>(sink.integers32);
    width = sink.kind == SinkKind::kInteger16Add ? 2 : 4;
  }
  void prefetch(std::uint64_t position) const { __builtin_prefetch(begin + position * width, 0, 2); }
};

// The magnitude section.
struct Magnitudes {
  BitReader reader;
  std::uint32_t left = 0;
  std::uint32_t gap = 0;  // integers of magnitude 1 before the next larger one
  unsigned parameter = 0;
  std::uint32_t nonzeros = 0;
  std::int32_t limit = 0;

  explicit Magnitudes(ByteSpan bytes) : reader(bytes) {}
  void next_gap() {
    gap = reader.read_unary(nonzeros >> parameter) << parameter;
    gap |= static_cast<std::uint32_t>(reader.read(parameter));
  }
  // Enlarges those of the next integers that are beyond +-1. False when the bits end or one is beyond the limit.
  bool apply(std::span<std::int32_t> integers) {
    std::size_t index = 0;
    while (left != 0 && gap < integers.size() - index) {
      index += gap;
      const std::uint32_t magnitude = reader.read_exp_golomb(0) + 2;
      if (reader.failed() || magnitude > static_cast<std::uint32_t>(limit)) return false;
      integers[index++] *= static_cast<std::int32_t>(magnitude);
      gap = 0;
      if (--left != 0) next_gap();
    }
    gap -= static_cast<std::uint32_t>(left != 0 ? integers.size() - index : 0);
    return true;
  }
};

// The gap section: positions and signs, as integers +-1.
struct Gaps {
  BitReader reader;
  unsigned parameter = 0;
  std::uint32_t value_count = 0;
  std::uint64_t position = 0;  // where the next gap begins

  explicit Gaps(ByteSpan bytes) : reader(bytes) {}

  // Fills the block from `index` on with kCodes gaps at a time, as long as they lie in one load and inside the chunk; returns where it
  // stopped.
  template <unsigned kCodes>
  std::size_t read_groups(std::size_t index, const Places& places, Block& block) {
    const std::uint64_t mask = (std::uint64_t{1} << parameter) - 1;
    const unsigned low = parameter;
    BitReader bits = reader;  // in registers
    std::uint64_t from = position;
    for (; index + kCodes <= block.count && bits.has_word(); index += kCodes) {
      std::uint64_t window = bits.word();
      std::uint64_t at = from;
      unsigned used = 0;
      for (unsigned code = 0; code < kCodes; ++code) {
        const auto zeros = static_cast<unsigned>(std::countr_zero(window | std::uint64_t{1} << 63));
        const std::uint64_t rest = window >> zeros >> 1;
        at += std::uint64_t{zeros} << low | (rest & mask);
        block.positions[index + code] = static_cast<std::uint32_t>(at);
        block.integers[index + code] = 1 - static_cast<std::int32_t>((rest >> low & 1U) << 1);
        ++at;
        const unsigned length = zeros + low + 2;
        used += length;
        window >>= length & 63U;
      }
      if (used > kWordBits || at > value_count) break;
      for (unsigned code = 0; code < kCodes; ++code) places.prefetch(block.positions[index + code]);
      bits.skip(used);
      from = at;
    }
    reader = bits;
    position = from;
    return index;
  }

  // Positions and signs of the next block.count integers. False when the bits end or a position leaves the chunk.
  bool read_block(const Places& places, Block& block) {
    for (std::size_t index = 0; index < block.count; ++index) {
      switch (codes_per_word(parameter)) {
        case 5:
          index = read_groups<5>(index, places, block);
          break;
        case 4:
          index = read_groups<4>(index, places, block);
          break;
        case 3:
          index = read_groups<3>(index, places, block);
          break;
        default:
          index = read_groups<2>(index, places, block);
      }
      if (index == block.count) break;
      // One by one what does not fit a load: a long gap, the end of the section.
      std::uint64_t sign = 0;
      position += std::uint64_t{reader.read_gap(parameter, value_count >> parameter, sign)};
      if (position >= value_count || reader.failed()) return false;
      places.prefetch(position);
      block.positions[index] = static_cast<std::uint32_t>(position);
      block.integers[index] = sign != 0 ? -1 : 1;
      ++position;
    }
    return true;
  }
};

void deliver_block(const GridSink& sink, const Block& block) {
  const std::size_t count = block.count;
  switch (sink.kind) {
    case SinkKind::kFloatSet:
      for (std::size_t i = 0; i < count; ++i) sink.values[block.positions[i]] = grid_value(block.integers[i], sink.scaled_step);
      break;
    case SinkKind::kFloatAdd:
      for (std::size_t i = 0; i < count; ++i) {
        float& value = sink.values[block.positions[i]];
        value = add(value, grid_value(block.integers[i], sink.scaled_step));
      }
      break;
    case SinkKind::kInteger16Add:
      for (std::size_t i = 0; i < count; ++i) {
        std::int16_t& value = sink.integers16[block.positions[i]];
        value = static_cast<std::int16_t>(value + block.integers[i]);
      }
      break;
    case SinkKind::kInteger32Set:
      for (std::size_t i = 0; i < count; ++i) sink.integers32[block.positions[i]] = block.integers[i];
      break;
    case SinkKind::kInteger32Add:
      for (std::size_t i = 0; i < count; ++i) sink.integers32[block.positions[i]] += block.integers[i];
      break;
  }
}

}  // namespace

bool decode_sparse(const FrameView& frame, const GridSink& sink) {
  const FrameHeader& header = frame.header;
  if (header.model_bytes > frame.payload.size()) return false;
  const std::size_t gap_bytes = frame.payload.size() - header.model_bytes;
  Gaps gaps(frame.payload.first(gap_bytes));
  gaps.parameter = header.model_a;
  gaps.value_count = header.value_count;
  Magnitudes magnitudes(frame.payload.subspan(gap_bytes));
  magnitudes.parameter = header.model_b;
  magnitudes.nonzeros = header.nonzeros;
  magnitudes.limit = integer_limit_of(header);
  if (header.nonzeros != 0 && magnitudes.limit < 1) return false;
  if (header.model_bytes != 0) {
    magnitudes.left = static_cast<std::uint32_t>(magnitudes.reader.read(32));
    if (magnitudes.left == 0 || magnitudes.left > header.nonzeros) return false;
    magnitudes.next_gap();
  }
  fill_zero(sink, header.value_count);
  const Places places(sink);
  Block blocks[2];
  std::size_t now = 0;
  for (std::size_t left = header.nonzeros; left > 0; now ^= 1U) {
    Block& block = blocks[now];
    block.count = std::min(left, kBlockValues);
    if (!gaps.read_block(places, block)) return false;
    if (magnitudes.left != 0 && !magnitudes.apply(std::span<std::int32_t>(block.integers).first(block.count))) return false;
    deliver_block(sink, blocks[now ^ 1U]);
    blocks[now ^ 1U].count = 0;
    left -= block.count;
  }
  deliver_block(sink, blocks[now ^ 1U]);
  return gaps.reader.is_finished() && magnitudes.left == 0 && magnitudes.reader.is_finished();
}

}  // namespace sluice::compression
