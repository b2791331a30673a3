// Any bytes as a packed state stream, whole and in pieces; and any bytes packed and unpacked again.
#include <cstdlib>

#include "compression/internal/frame_hash.h"
#include "compression/state_codec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice::compression;
  const sluice::ByteSpan bytes(data, size);
  const auto whole = unpack_state(bytes, std::size_t{4} << 20);
  StateUnpacker unpacker;
  sluice::ByteVector out;
  const std::size_t half = size / 2;
  const bool pieces = unpacker.push(bytes.first(half), out).has_value() && unpacker.push(bytes.subspan(half), out).has_value();
  if (whole.has_value() && (!pieces || out != *whole)) std::abort();
  if (size == 0) return 0;
  const auto type = static_cast<ElementType>(data[0] % 3);
  const auto packed = pack_state(bytes, type);
  if (!packed) std::abort();
  const auto unpacked = unpack_state(*packed, size);
  if (!unpacked || unpacked->size() != size || !std::equal(unpacked->begin(), unpacked->end(), data)) std::abort();
  return 0;
}
