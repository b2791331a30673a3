#include "topology/internal/hostlist.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "topology/internal/text_fields.h"

namespace sluice::topology {
namespace {

// More digits than any name has; keeps numbers inside 64 bits.
constexpr std::size_t kDigitsMax = 12;
constexpr std::size_t kBracketsMax = 4;

struct Range {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::size_t width = 0;  // digits of the first number, when it opens with a zero
};

// Of one name: text, ranges, text, ranges, ...; the last text may be empty.
struct Part {
  std::string_view text;
  std::vector<Range> ranges;
};

// Cuts at commas outside brackets.
std::optional<std::vector<std::string_view>> split_names(std::string_view text) {
  std::vector<std::string_view> names;
  std::size_t start = 0;
  bool is_inside = false;
  for (std::size_t at = 0; at <= text.size(); ++at) {
    const char c = at == text.size() ? ',' : text[at];
    if ((c == '[' && is_inside) || (c == ']' && !is_inside)) return std::nullopt;
    if (c == '[') is_inside = true;
    if (c == ']') is_inside = false;
    if (at == text.size() && is_inside) return std::nullopt;
    if (c != ',' || is_inside) continue;
    const std::string_view name = trim_blanks(text.substr(start, at - start));
    if (!name.empty()) names.push_back(name);
    start = at + 1;
  }
  return names;
}

std::optional<Range> parse_range(std::string_view text) {
  const std::size_t dash = text.find('-');
  const std::string_view first = trim_blanks(text.substr(0, dash));
  const std::string_view last = dash == std::string_view::npos ? first : trim_blanks(text.substr(dash + 1));
  const auto from = parse_whole<std::uint64_t>(first);
  const auto to = parse_whole<std::uint64_t>(last);
  if (!from || !to || *to < *from || first.size() > kDigitsMax || last.size() > kDigitsMax) return std::nullopt;
  return Range{*from, *to, first.size() > 1 && first.front() == '0' ? first.size() : 0};
}

std::optional<std::vector<Part>> parse_name(std::string_view name) {
  std::vector<Part> parts;
  while (!name.empty()) {
    const std::size_t open = name.find('[');
    Part part{name.substr(0, open), {}};
    if (open == std::string_view::npos) {
      parts.push_back(std::move(part));
      break;
    }
    if (parts.size() >= kBracketsMax) return std::nullopt;
    const std::size_t close = name.find(']', open);
    std::string_view inside = name.substr(open + 1, close - open - 1);
    while (true) {
      const std::size_t comma = inside.find(',');
      const auto range = parse_range(inside.substr(0, comma));
      if (!range) return std::nullopt;
      part.ranges.push_back(*range);
      if (comma == std::string_view::npos) break;
      inside.remove_prefix(comma + 1);
    }
    parts.push_back(std::move(part));
    name.remove_prefix(close + 1);
  }
  return parts;
}

// Number of names, or names_max + 1 when there are more.
std::size_t count_names(const std::vector<Part>& parts, std::size_t names_max) {
  std::size_t count = 1;
  for (const Part& part : parts) {
    if (part.ranges.empty()) continue;
    std::uint64_t numbers = 0;
    for (const Range& range : part.ranges) numbers = std::min<std::uint64_t>(numbers + range.last - range.first + 1, names_max + 1);
    count = std::min<std::size_t>(count * numbers, names_max + 1);
  }
  return count;
}

std::vector<std::string> make_names(const std::vector<Part>& parts) {
  std::vector<std::string> names = {""};
  for (const Part& part : parts) {
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      if (part.ranges.empty()) longer.push_back(name + std::string(part.text));
      for (const Range& range : part.ranges) {
        for (std::uint64_t number = range.first; number <= range.last; ++number) {
          longer.push_back(fmt::format("{}{}{:0{}}", name, part.text, number, range.width));
        }
      }
    }
    names = std::move(longer);
  }
  return names;
}

// Whether the name is what the parts from `index` on can make.
bool matches(const std::vector<Part>& parts, std::size_t index, std::string_view name) {
  if (index == parts.size()) return name.empty();
  const Part& part = parts[index];
  if (!name.starts_with(part.text)) return false;
  name.remove_prefix(part.text.size());
  if (part.ranges.empty()) return matches(parts, index + 1, name);
  const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  for (std::size_t length = 1; length <= std::min(digits, kDigitsMax); ++length) {
    const auto number = parse_whole<std::uint64_t>(name.substr(0, length));
    const bool has_number = std::ranges::any_of(part.ranges, [&](const Range& range) {
      return *number >= range.first && *number <= range.last && fmt::format("{:0{}}", *number, range.width) == name.substr(0, length);
    });
    if (has_number && matches(parts, index + 1, name.substr(length))) return true;
  }
  return false;
}

}  // namespace

Result<std::vector<std::string>> expand_hostlist(std::string_view text, std::size_t names_max, const std::string& operation,
                                                 const std::string& where) {
  const auto names = split_names(text);
  if (!names)
    return fail(ErrorCode::kTopologyInvalid, operation, fmt::format("{}: brackets do not match in \"{}\"", where, text.substr(0, 200)));
  std::vector<std::string> all;
  for (const std::string_view name : *names) {
    const auto parts = parse_name(name);
    if (!parts)
      return fail(ErrorCode::kTopologyInvalid, operation, fmt::format("{}: \"{}\" is no list of names", where, name.substr(0, 200)));
    if (all.size() + count_names(*parts, names_max) > names_max) {
      return fail(ErrorCode::kTopologyTooLarge, operation, fmt::format("{}: more than {} names", where, names_max));
    }
    std::ranges::move(make_names(*parts), std::back_inserter(all));
  }
  return all;
}

bool hostlist_contains(std::string_view text, std::string_view name) {
  const auto names = split_names(text);
  return names && std::ranges::any_of(*names, [&](std::string_view entry) {
           const auto parts = parse_name(entry);
           return parts && matches(*parts, 0, name);
         });
}

}  // namespace sluice::topology
