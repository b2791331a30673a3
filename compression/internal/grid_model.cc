#include "compression/internal/grid_model.h"

#include <algorithm>

#include "base/assert.h"

// From counts to slots. A symbol of probability p costs least with 256 p slots; slots are whole and at least one, so after rounding
// down the remaining ones go where one more saves the most bits (p ln((f + 1) / f), by two terms of its series). Slots of a
// symbol are spread evenly over the 256 places, as in tANS: with 16-bit states contiguous slots would cost 0.004 to 0.009 bit a symbol.

namespace sluice::compression {
namespace {

using Frequencies = std::array<std::int32_t, kModelSymbolsMax>;

// Bit f is set when has_exact_reciprocal(f). With r = 65536 mod f the estimate is short by at most one, and then the byte
// remainder is below f (1 + r / 256): it must not wrap at 256, so f (256 + r) <= 65536 is needed; f <= 128 always qualifies.
constexpr bool reciprocal_fits(std::uint32_t frequency) {
  if (frequency <= 128) return true;
  const std::uint32_t rest = 65536U % frequency;
  return frequency * (256U + rest) <= 65536U;
}

// Adds or takes single slots where it gains most until 256 are given out; `fixed` keeps its slots (-1: none).
void settle(Frequencies& frequencies, std::span<const double> probability, int fixed) {
  std::int32_t sum = 0;
  for (std::size_t symbol = 0; symbol < probability.size(); ++symbol) sum += frequencies[symbol];
  while (sum != static_cast<std::int32_t>(kModelSlots)) {
    const bool add = sum < static_cast<std::int32_t>(kModelSlots);
    int best = -1;
    double best_gain = 0.0;
    for (std::size_t symbol = 0; symbol < probability.size(); ++symbol) {
      if (static_cast<int>(symbol) == fixed || (!add && frequencies[symbol] < 2)) continue;
      const double middle = static_cast<double>(frequencies[symbol]) + (add ? 0.5 : -0.5);
      const double gain = (add ? probability[symbol] : -probability[symbol]) * (1.0 + 1.0 / (12.0 * middle * middle)) / middle;
      if (best < 0 || gain > best_gain) {
        best_gain = gain;
        best = static_cast<int>(symbol);
      }
    }
    SLUICE_ASSERT(best >= 0, "no symbol can change its slots");
    frequencies[static_cast<std::size_t>(best)] += add ? 1 : -1;
    sum += add ? 1 : -1;
  }
}

std::int32_t nearest_exact(std::int32_t frequency, std::int32_t largest) {
  for (std::int32_t distance = 1; frequency - distance > 128; ++distance) {
    if (has_exact_reciprocal(static_cast<std::uint32_t>(frequency - distance))) return frequency - distance;
    const std::int32_t above = frequency + distance;
    if (above <= largest && has_exact_reciprocal(static_cast<std::uint32_t>(above))) return above;
  }
  return 128;
}

}  // namespace

bool has_exact_reciprocal(std::uint32_t frequency) { return reciprocal_fits(frequency); }

GridModel GridModel::from_shares(std::span<const double> shares, int half_width) {
  SLUICE_ASSERT(half_width >= 1 && half_width <= kGridHalfWidthMax && shares.size() == static_cast<std::size_t>(2 * half_width) + 2);
  const std::size_t symbols = shares.size();
  std::array<double, kModelSymbolsMax> probability{};
  Frequencies frequencies{};
  for (std::size_t symbol = 0; symbol < symbols; ++symbol) {
    // A symbol that the sample missed keeps a small weight, so that ties go to nobody by accident.
    probability[symbol] = std::max(shares[symbol], 5e-6);
    frequencies[symbol] = std::clamp(static_cast<std::int32_t>(probability[symbol] * static_cast<double>(kModelSlots)), 1, 255);
  }
  const auto used = std::span<const double>(probability).first(symbols);
  settle(frequencies, used, -1);
  for (std::size_t symbol = 0; symbol < symbols; ++symbol) {
    if (has_exact_reciprocal(static_cast<std::uint32_t>(frequencies[symbol]))) continue;
    frequencies[symbol] = nearest_exact(frequencies[symbol], static_cast<std::int32_t>(kModelSlots - symbols + 1));
    settle(frequencies, used, static_cast<int>(symbol));
    break;  // at most one symbol has more than 128 slots
  }
  GridModel model;
  model.half_width_ = half_width;
  for (std::size_t symbol = 0; symbol < symbols; ++symbol) model.frequency[symbol] = static_cast<std::uint8_t>(frequencies[symbol]);
  model.build_tables();
  return model;
}

bool GridModel::set_frequencies(std::span<const std::uint8_t> frequencies, int half_width) {
  if (half_width < 1 || half_width > kGridHalfWidthMax) return false;
  if (frequencies.size() != static_cast<std::size_t>(2 * half_width) + 2) return false;
  std::uint32_t sum = 0;
  for (const std::uint8_t slots : frequencies) {
    if (slots == 0) return false;
    sum += slots;
  }
  if (sum != kModelSlots) return false;
  half_width_ = half_width;
  frequency.fill(0);
  std::copy(frequencies.begin(), frequencies.end(), frequency.begin());
  build_tables();
  return true;
}

void GridModel::build_tables() {
  // Counting sort of (ideal place, symbol, rank), the ideal places of f slots being (2 k + 1) / (2 f) of the way. Plain pointers: this
  // runs once per frame and is a percent of its time.
  std::uint16_t first[kModelSlots + 1] = {};
  std::uint8_t key[kModelSlots];
  start.fill(0);
  reciprocal.fill(0);
  std::uint32_t at = 0;
  for (std::size_t symbol = 0; symbol < symbol_count(); ++symbol) {
    const std::uint32_t slots = frequency[symbol];
    start[symbol] = static_cast<std::uint8_t>(at);
    reciprocal[symbol] = static_cast<std::uint16_t>(slots == 1 ? 65535U : 65536U / slots);
    // (2 k + 1) * 128 / f by one reciprocal: exact, the numerator being below 2^16 and f below 2^8.
    const std::uint32_t scale = (1U << 24) / slots + 1;
    for (std::uint32_t rank = 0; rank < slots; ++rank, ++at) {
      const auto place = static_cast<std::uint32_t>((std::uint64_t{2 * rank + 1} * 128U * scale) >> 24);
      key[at] = static_cast<std::uint8_t>(place);
      ++first[place + 1];
    }
  }
  for (std::size_t place = 1; place < kModelSlots; ++place) first[place] = static_cast<std::uint16_t>(first[place] + first[place - 1]);
  std::uint8_t* const slots_out = slot_of.data();
  std::uint8_t* const symbols_out = symbol_of.data();
  std::uint8_t* const ranks_out = rank_of.data();
  std::uint8_t* const frequencies_out = frequency_of.data();
  at = 0;
  for (std::size_t symbol = 0; symbol < symbol_count(); ++symbol) {
    const std::uint32_t slots = frequency[symbol];
    for (std::uint32_t rank = 0; rank < slots; ++rank, ++at) {
      const std::size_t slot = first[key[at]]++;
      slots_out[at] = static_cast<std::uint8_t>(slot);
      symbols_out[slot] = static_cast<std::uint8_t>(symbol);
      ranks_out[slot] = static_cast<std::uint8_t>(rank);
      frequencies_out[slot] = static_cast<std::uint8_t>(slots);
    }
  }
}

}  // namespace sluice::compression
