#include "gateway/internal/config_scalar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <vector>

namespace sluice::gateway {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_lower_or_digit(char c) { return (c >= 'a' && c <= 'z') || is_digit(c); }

bool all_digits(std::string_view text) { return !text.empty() && std::all_of(text.begin(), text.end(), is_digit); }

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return result;
}

// A leading zero means octal to YAML 1.1 readers and decimal to YAML 1.2 readers: nobody should have to know which one reads this.
std::string octal_trouble(std::string_view digits) {
  const std::size_t first = digits.find_first_not_of('0');
  return fmt::format("a leading zero reads as octal in some programs; write {}",
                     first == std::string_view::npos ? "0" : digits.substr(first));
}

// One decimal number as JSON writes it. Empty = well formed.
std::string decimal_trouble(std::string_view text) {
  std::string_view rest = text;
  if (!rest.empty() && rest.front() == '-') rest.remove_prefix(1);
  const std::string_view integer = rest.substr(0, rest.find_first_of(".eE"));
  if (!all_digits(integer)) return "not a decimal number";
  if (integer.size() > 1 && integer.front() == '0') return octal_trouble(integer);
  rest.remove_prefix(integer.size());
  if (!rest.empty() && rest.front() == '.') {
    const std::size_t end = std::min(rest.find_first_of("eE"), rest.size());
    if (!all_digits(rest.substr(1, end - 1))) return "digits are missing after the decimal point";
    rest.remove_prefix(end);
  }
  if (rest.empty()) return {};
  rest.remove_prefix(1);
  if (!rest.empty() && (rest.front() == '+' || rest.front() == '-')) rest.remove_prefix(1);
  return all_digits(rest) ? std::string() : std::string("the exponent is malformed");
}

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array<Unit, 4> kDurationUnits{{{"ms", 1.0}, {"s", 1e3}, {"min", 60e3}, {"h", 3600e3}}};
constexpr std::array<Unit, 4> kSizeUnits{{{"B", 1.0}, {"KiB", double{kKiB}}, {"MiB", double{kMiB}}, {"GiB", double{kGiB}}}};
constexpr std::array<Unit, 4> kRateUnits{{{"bit/s", 1.0}, {"kbit/s", 1e3}, {"Mbit/s", 1e6}, {"Gbit/s", 1e9}}};

// Decimal sizes and byte rates are refused rather than guessed at: 5 % to a factor of 8 hide in them.
std::string unit_trouble(std::string_view unit, std::span<const Unit> units) {
  std::string names;
  std::string suggestion;
  for (const Unit& known : units) {
    names += (names.empty() ? "" : ", ") + std::string(known.name);
    if (lower(known.name) == lower(unit)) suggestion = known.name;
  }
  if (unit.empty()) return fmt::format("the unit is missing (one of {})", names);
  if (suggestion.empty() && units.data() == kSizeUnits.data() && (lower(unit).find('k') == 0 || unit.find_first_of("mMgG") == 0)) {
    suggestion = fmt::format("{}iB", static_cast<char>(unit[0] == 'k' ? 'K' : lower(unit)[0] - 32));
  }
  return fmt::format("`{}` is not one of the units {}{}", unit, names,
                     suggestion.empty() ? "" : fmt::format("; did you mean `{}`?", suggestion));
}

// Value in base units of "number unit", at most 2^53 so that every whole number is exact.
Parsed<double> parse_quantity(std::string_view text, std::span<const Unit> units) {
  constexpr double kExactMax = 9007199254740992.0;
  const std::size_t number_end = std::min(text.find_first_not_of("0123456789.-"), text.size());
  const std::string_view number = text.substr(0, number_end);
  std::string_view unit = text.substr(number_end);
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  const std::string trouble = decimal_trouble(number);
  if (!trouble.empty()) return Parsed<double>::bad(trouble);
  const auto known = std::find_if(units.begin(), units.end(), [&](const Unit& candidate) { return candidate.name == unit; });
  if (known == units.end()) return Parsed<double>::bad(unit_trouble(unit, units));
  double value = 0.0;
  std::from_chars(number.data(), number.data() + number.size(), value);
  value *= known->factor;
  if (value < 0.0) return Parsed<double>::bad("negative");
  if (value > kExactMax) return Parsed<double>::bad("too large");
  return Parsed<double>::good(value);
}

// Whole base units, tolerating the last bit of a decimal fraction such as 0.1 s.
std::optional<std::uint64_t> whole(double value) {
  const double rounded = std::round(value);
  if (std::abs(value - rounded) > 1e-6) return std::nullopt;
  return static_cast<std::uint64_t>(rounded);
}

std::string format_quantity(double value, std::span<const Unit> units) {
  for (std::size_t index = units.size(); index-- > 1;) {
    const double scaled = value / units[index].factor;
    if (scaled >= 1.0 && scaled == std::floor(scaled)) return fmt::format("{} {}", scaled, units[index].name);
  }
  return fmt::format("{} {}", value, units[0].name);
}

// Optimal string alignment distance: insert, delete, replace, swap of neighbours cost one each.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({replace, cost[i - 1][j] + 1, cost[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

bool is_host(std::string_view host) {
  if (host.empty() || host.size() > 253 || host.front() == '-' || host.front() == '.') return false;
  return std::all_of(host.begin(), host.end(),
                     [](char c) { return is_lower_or_digit(c) || (c >= 'A' && c <= 'Z') || c == '-' || c == '.' || c == '_'; });
}

bool is_ipv6(std::string_view host) {
  if (host.size() < 2 || host.size() > 45 || host.find(':') == std::string_view::npos) return false;
  return host.find_first_not_of("0123456789abcdefABCDEF:.") == std::string_view::npos;
}

}  // namespace

Parsed<bool> parse_strict_bool(std::string_view text) {
  if (text == "true") return Parsed<bool>::good(true);
  if (text == "false") return Parsed<bool>::good(false);
  const std::string word = lower(text);
  const bool yes = word == "yes" || word == "on" || word == "y" || word == "true" || word == "1";
  const bool no = word == "no" || word == "off" || word == "n" || word == "false" || word == "0";
  if (yes || no) return Parsed<bool>::bad(fmt::format("write `{}`", yes ? "true" : "false"));
  return Parsed<bool>::bad("neither true nor false");
}

Parsed<std::int64_t> parse_strict_integer(std::string_view text) {
  using P = Parsed<std::int64_t>;
  std::string_view digits = text;
  if (!digits.empty() && digits.front() == '-') digits.remove_prefix(1);
  if (digits.size() > 1 && digits[0] == '0' && lower(digits).find_first_of("xob") == 1) return P::bad("only decimal numbers are read");
  if (!all_digits(digits)) return P::bad("not a whole number");
  if (digits.size() > 1 && digits.front() == '0') return P::bad(octal_trouble(digits));
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return P::bad("too large");
  return P::good(value);
}

Parsed<double> parse_strict_real(std::string_view text) {
  const std::string word = lower(text);
  if (word.find("nan") != std::string::npos || word.find("inf") != std::string::npos) return Parsed<double>::bad("not a finite number");
  const std::string trouble = decimal_trouble(text);
  if (!trouble.empty()) return Parsed<double>::bad(trouble);
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return Parsed<double>::bad("too large or too small for a number");
  return Parsed<double>::good(value);
}

Parsed<std::chrono::milliseconds> parse_duration(std::string_view text) {
  using P = Parsed<std::chrono::milliseconds>;
  const Parsed<double> quantity = parse_quantity(text, kDurationUnits);
  if (!quantity.value) return P::bad(quantity.trouble);
  const auto count = whole(*quantity.value);
  if (!count) return P::bad("not a whole number of milliseconds");
  return P::good(std::chrono::milliseconds(static_cast<std::int64_t>(*count)));
}

Parsed<Bytes> parse_size(std::string_view text) {
  const Parsed<double> quantity = parse_quantity(text, kSizeUnits);
  if (!quantity.value) return Parsed<Bytes>::bad(quantity.trouble);
  const auto count = whole(*quantity.value);
  if (!count) return Parsed<Bytes>::bad("not a whole number of bytes");
  return Parsed<Bytes>::good(Bytes{*count});
}

Parsed<BitsPerSecond> parse_rate(std::string_view text) {
  const Parsed<double> quantity = parse_quantity(text, kRateUnits);
  if (!quantity.value) return Parsed<BitsPerSecond>::bad(quantity.trouble);
  return Parsed<BitsPerSecond>::good(BitsPerSecond{*quantity.value});
}

Parsed<Endpoint> parse_endpoint(std::string_view text) {
  using P = Parsed<Endpoint>;
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return P::bad("the port is missing");
  std::string_view host = text.substr(0, colon);
  const std::string_view port_text = text.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    if (!is_ipv6(host)) return P::bad("no IPv6 address between the brackets");
  } else if (host.find(':') != std::string_view::npos) {
    return P::bad("an IPv6 address goes in brackets: [::1]:7400");
  } else if (!is_host(host)) {
    return P::bad(host.empty() ? "the host is missing" : "the host is not a name or address");
  }
  const Parsed<std::int64_t> port = parse_strict_integer(port_text);
  if (!port.value) return P::bad(fmt::format("port `{}`: {}", port_text, port_text.empty() ? "missing" : port.trouble));
  if (*port.value < 0 || *port.value > 65535) return P::bad(fmt::format("port {} is not in 0..65535", *port.value));
  return P::good(Endpoint{std::string(host), static_cast<std::uint16_t>(*port.value)});
}

Parsed<std::string> parse_name(std::string_view text) {
  using P = Parsed<std::string>;
  if (text.empty()) return P::bad("empty");
  if (text.size() > 63) return P::bad(fmt::format("{} characters, at most 63", text.size()));
  const bool known = std::all_of(text.begin(), text.end(), [](char c) { return is_lower_or_digit(c) || c == '-'; });
  if (!known) {
    const std::string hint = lower(text);
    return P::bad("only a-z, 0-9 and hyphens" + (hint != text ? fmt::format("; did you mean `{}`?", hint) : std::string()));
  }
  if (text.front() == '-' || text.back() == '-') return P::bad("first and last must be a letter or digit");
  return P::good(std::string(text));
}

Parsed<std::string> parse_domain(std::string_view text) {
  using P = Parsed<std::string>;
  if (text.empty() || text.size() > 255) return P::bad("1 to 255 characters are needed");
  if (text.find("://") != std::string_view::npos) return P::bad("the domain alone, without `spiffe://`");
  const bool good = std::all_of(text.begin(), text.end(), [](char c) { return is_lower_or_digit(c) || c == '.' || c == '-' || c == '_'; });
  if (!good) return P::bad("only a-z, 0-9, dots, hyphens and underscores");
  return P::good(std::string(text));
}

std::string format_duration(std::chrono::milliseconds duration) {
  return format_quantity(static_cast<double>(duration.count()), kDurationUnits);
}

std::string format_size(Bytes size) { return format_quantity(static_cast<double>(size.count), kSizeUnits); }

std::string format_rate(BitsPerSecond rate) { return format_quantity(rate.value, kRateUnits); }

std::optional<std::string> nearest_word(std::string_view word, std::span<const std::string> candidates) {
  if (word.size() > 64) return std::nullopt;
  std::optional<std::string> best;
  std::size_t best_distance = 1 + std::max<std::size_t>(1, word.size() / 3);
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(lower(word), candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace sluice::gateway
