#include "topology/internal/json_text.h"

#include <fmt/format.h>

#include "topology/limits.h"

namespace sluice::topology {
namespace {

bool is_nested_too_deep(std::string_view text) {
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '[' || c == '{') ++depth;
    if ((c == ']' || c == '}') && depth != 0) --depth;
    if (depth > kJsonDepthMax) return true;
  }
  return false;
}

}  // namespace

Result<nlohmann::json> parse_json(std::string_view text, const std::string& name) {
  if (is_nested_too_deep(text))
    return fail(ErrorCode::kTopologyTooLarge, "read " + name, fmt::format("JSON nested deeper than {}", kJsonDepthMax));
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    return fail(ErrorCode::kTopologySyntax, "read " + name, fmt::format("byte {}: no JSON", error.byte));
  }
}

}  // namespace sluice::topology
