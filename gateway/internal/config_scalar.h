#pragma once

// Strict reading of one scalar of the configuration: no octal, no yes/no, no bare quantities. Pure, any thread.
// Every function yields the value, or nothing and `trouble`: a clause that says what is wrong with the text.

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/units.h"
#include "gateway/config.h"

namespace sluice::gateway {

template <typename T>
struct Parsed {
  std::optional<T> value;
  std::string trouble;

  static Parsed good(T value) { return Parsed{std::move(value), {}}; }
  static Parsed bad(std::string trouble) { return Parsed{std::nullopt, std::move(trouble)}; }
};

Parsed<bool> parse_strict_bool(std::string_view text);
Parsed<std::int64_t> parse_strict_integer(std::string_view text);
Parsed<double> parse_strict_real(std::string_view text);
// "90 s", "1.5 min", "500ms", "1 h": a whole number of milliseconds.
Parsed<std::chrono::milliseconds> parse_duration(std::string_view text);
// "64 MiB", "1.5 GiB", "512 KiB", "100 B": a whole number of bytes.
Parsed<Bytes> parse_size(std::string_view text);
// "200 Mbit/s", "1.5 Gbit/s", "800 kbit/s", "5000 bit/s".
Parsed<BitsPerSecond> parse_rate(std::string_view text);
// "host:port", "10.0.0.1:7400", "[::1]:7400"; port 0..65535.
Parsed<Endpoint> parse_endpoint(std::string_view text);
// A run or site name: 1 to 63 of a-z, 0-9 and inner hyphens, first a letter or digit; it goes into certificates, labels and file names.
Parsed<std::string> parse_name(std::string_view text);
// A SPIFFE trust domain: 1 to 255 of a-z 0-9 . - _ (SPIFFE ID specification, section 2.1).
Parsed<std::string> parse_domain(std::string_view text);

// The spelling that the parsers above read back, in the largest unit that divides the value: "90 s", "64 MiB", "200 Mbit/s".
std::string format_duration(std::chrono::milliseconds duration);
std::string format_size(Bytes size);
std::string format_rate(BitsPerSecond rate);

// The candidate nearest to `word` by edit distance (swaps count once), when it is near enough to be a slip of the fingers.
std::optional<std::string> nearest_word(std::string_view word, std::span<const std::string> candidates);

}  // namespace sluice::gateway
