#include "gateway/internal/config_substitution.h"

#include <fmt/format.h>

#include <algorithm>

#include "gateway/internal/config_limits.h"

namespace sluice::gateway {
namespace {

bool is_variable_name(std::string_view name) {
  if (name.empty() || (name.front() >= '0' && name.front() <= '9')) return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; });
}

// Value of the inside of one ${...}.
Parsed<std::string> expand(std::string_view inside, const EnvironmentLookup& environment) {
  using P = Parsed<std::string>;
  const std::size_t separator = inside.find(":-");
  const std::string name(inside.substr(0, separator));
  if (!is_variable_name(name)) return P::bad(fmt::format("`${{{}}}` does not name an environment variable", inside));
  std::optional<std::string> value = environment(name);
  if (separator != std::string_view::npos && (!value || value->empty())) return P::good(std::string(inside.substr(separator + 2)));
  if (!value) return P::bad(fmt::format("the environment variable {} is not set; set it or write ${{{}:-default}}", name, name));
  const bool control = std::any_of(value->begin(), value->end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
  if (control) return P::bad(fmt::format("the environment variable {} holds a control character", name));
  return P::good(std::move(*value));
}

}  // namespace

Parsed<std::string> substitute_environment(std::string_view text, const EnvironmentLookup& environment) {
  using P = Parsed<std::string>;
  std::string result;
  std::size_t at = 0;
  while (at < text.size()) {
    if (text.substr(at, 3) == "$${") {
      result += "${";
      at += 3;
    } else if (text.substr(at, 2) == "${") {
      const std::size_t end = text.find('}', at);
      if (end == std::string_view::npos) return P::bad("`${` without its closing `}`");
      Parsed<std::string> value = expand(text.substr(at + 2, end - at - 2), environment);
      if (!value.value) return value;
      result += *value.value;
      at = end + 1;
    } else {
      result += text[at++];
    }
    if (result.size() > kConfigValueBytesMax) return P::bad(fmt::format("longer than {} bytes", kConfigValueBytesMax));
  }
  return P::good(std::move(result));
}

}  // namespace sluice::gateway
