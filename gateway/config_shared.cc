// The settings that all sites must share, as text and as a hash: sites with other ones are refused before a byte is averaged.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/bytes.h"
#include "base/hash.h"
#include "gateway/config.h"
#include "gateway/internal/config_limits.h"
#include "gateway/internal/config_writer.h"

namespace sluice::gateway {
namespace {

// Addresses may differ from site to site (each sees the others through its own network), names and their order may not.
bool is_shared(std::string_view path) {
  constexpr std::array<std::string_view, 5> kSections{"run.", "coordination.", "training.", "round.", "compression."};
  if (path.substr(0, 6) == "sites[") return path.size() > 5 && path.substr(path.size() - 5) == ".name";
  return std::any_of(kSections.begin(), kSections.end(),
                     [&](std::string_view section) { return path.substr(0, section.size()) == section; });
}

std::string printable(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    result += byte < 0x20 || byte >= 0x7f ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return result;
}

// Lines "key = value" by key; at most kSharedLinesMax of them and kConfigValueBytesMax bytes each.
std::map<std::string, std::string> split_settings(std::string_view text) {
  std::map<std::string, std::string> settings;
  while (!text.empty() && settings.size() < kSharedLinesMax) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, std::min(end, kConfigValueBytesMax));
    const std::size_t separator = line.find(" = ");
    if (separator != std::string_view::npos) settings.emplace(line.substr(0, separator), line.substr(separator + 3));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return settings;
}

}  // namespace

std::string shared_settings(const GatewayConfig& config) {
  std::string text;
  for (const Setting& setting : list_settings(config)) {
    if (is_shared(setting.path)) text += fmt::format("{} = {}\n", setting.path, setting.value);
  }
  return text;
}

std::uint64_t shared_digest(const GatewayConfig& config) {
  const std::string text = shared_settings(config);
  const ByteVector bytes(text.begin(), text.end());
  return xxh3_64(bytes);
}

std::string describe_shared_difference(std::string_view ours, std::string_view theirs) {
  constexpr std::size_t kDifferencesMax = 8;
  const auto here = split_settings(ours);
  const auto there = split_settings(theirs);
  std::vector<std::string> differences;
  for (const auto& [key, value] : here) {
    const auto found = there.find(key);
    if (found == there.end()) {
      differences.push_back(fmt::format("{}: `{}` here, absent there", printable(key), printable(value)));
    } else if (found->second != value) {
      differences.push_back(fmt::format("{}: `{}` here, `{}` there", printable(key), printable(value), printable(found->second)));
    }
  }
  for (const auto& [key, value] : there) {
    if (here.count(key) == 0) differences.push_back(fmt::format("{}: absent here, `{}` there", printable(key), printable(value)));
  }
  if (differences.size() > kDifferencesMax) {
    const std::size_t more = differences.size() - kDifferencesMax;
    differences.resize(kDifferencesMax);
    differences.push_back(fmt::format("{} more", more));
  }
  return fmt::format("{}", fmt::join(differences, "; "));
}

}  // namespace sluice::gateway
