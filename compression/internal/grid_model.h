#pragma once

// The 256-slot probability model of a dense frame and the tables that coder and decoder derive from it. Symbols 0 .. 2K stand for
// the integers -K .. K, symbol 2K + 1 for an escape. Value type, built per frame.

#include <array>
#include <cstdint>
#include <span>

#include "compression/limits.h"

namespace sluice::compression {

inline constexpr std::uint32_t kModelSlots = 256;
inline constexpr std::size_t kModelSymbolsMax = 2 * kGridHalfWidthMax + 2;

class GridModel {
 public:
  // Chooses frequencies for these shares of symbols 0 .. 2K + 1. REQUIRES: 1 <= K <= kGridHalfWidthMax, shares >= 0 with sum 1.
  static GridModel from_shares(std::span<const double> shares, int half_width);
  // False when the frequencies are not those of a model: wrong number, a zero, or a sum other than 256.
  bool set_frequencies(std::span<const std::uint8_t> frequencies, int half_width);

  [[nodiscard]] int half_width() const { return half_width_; }
  [[nodiscard]] std::size_t symbol_count() const { return static_cast<std::size_t>(2 * half_width_) + 2; }
  [[nodiscard]] std::uint32_t escape_symbol() const { return static_cast<std::uint32_t>(2 * half_width_) + 1; }

  // Tables, padded to whole vector registers.
  alignas(64) std::array<std::uint8_t, 64> frequency{};
  alignas(64) std::array<std::uint8_t, 64> start{};                  // first index of the symbol in slot_of
  alignas(64) std::array<std::uint16_t, 32> reciprocal{};            // floor(65536 / frequency), 65535 for 1
  alignas(64) std::array<std::uint8_t, kModelSlots> slot_of{};       // (start + rank) -> slot
  alignas(64) std::array<std::uint8_t, kModelSlots> symbol_of{};     // slot -> symbol
  alignas(64) std::array<std::uint8_t, kModelSlots> rank_of{};       // slot -> rank among the slots of its symbol
  alignas(64) std::array<std::uint8_t, kModelSlots> frequency_of{};  // slot -> frequency of its symbol

 private:
  void build_tables();
  int half_width_ = 1;
};

// True when quotient and remainder by this frequency come out right from the 16-bit reciprocal and one correction in byte
// arithmetic, for every state a coder can hold. Encoders use only such frequencies; decoders take any.
bool has_exact_reciprocal(std::uint32_t frequency);

}  // namespace sluice::compression
