// Any bytes as a packed state stream, whole and in pieces; and any bytes packed and unpacked again.
#include <array>
#include <cstdlib>
#include <memory>
#include <vector>

#include "compression/internal/frame_hash.h"
#include "compression/state_codec.h"

namespace sluice::compression {
namespace {

// Contexts are kept from input to input, as in use; an unpacker that refused something is done.
bool unpack(std::array<ByteSpan, 2> pieces, ByteVector& out) {
  static std::unique_ptr<StateUnpacker> unpacker;
  if (!unpacker) unpacker = std::make_unique<StateUnpacker>();
  for (const ByteSpan piece : pieces) {
    if (unpacker->push(piece, out)) continue;
    unpacker.reset();
    return false;
  }
  const bool ends = unpacker->is_at_block_end();
  if (!ends) unpacker.reset();
  return ends;
}

void pack_and_unpack(ByteSpan values) {
  static std::vector<StatePacker> packers;
  for (auto type = packers.size(); type < 3; ++type) packers.emplace_back(static_cast<ElementType>(type));
  ByteVector packed;
  if (!packers[values[0] % 3].pack_block(values, packed)) std::abort();
  ByteVector unpacked;
  if (!unpack({ByteSpan(packed), ByteSpan()}, unpacked)) std::abort();
  if (!std::equal(unpacked.begin(), unpacked.end(), values.begin(), values.end())) std::abort();
}

}  // namespace
}  // namespace sluice::compression

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice::compression;
  if (size == 0 || size > kStateBlockBytes) return 0;
  sluice::ByteVector bytes(data, data + size);
  const std::uint64_t hash = frame_hash(bytes);
  // A block may claim a million values in a few bytes. One in 64 inputs keeps its claim: time goes with it.
  if (size >= kStateHeaderBytes && hash % 64 != 0) {
    const auto claim = sluice::load_le<std::uint32_t>(bytes.data() + 8);
    if (claim > 8192) sluice::store_le(bytes.data() + 8, claim % 8193);
  }
  const sluice::ByteSpan packed(bytes);
  sluice::ByteVector out;
  const bool ends = unpack({packed.first(size / 2), packed.subspan(size / 2)}, out);
  if (hash / 64 % 16 == 0) {
    const auto whole = unpack_state(packed, std::size_t{4} << 20);
    if (whole.has_value() && (!ends || out != *whole)) std::abort();
  }
  pack_and_unpack(sluice::ByteSpan(data, size));
  return 0;
}
