#include "tests/tidy/include_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

namespace sluice::tidy {
namespace {

struct Include {
  std::string_view path;
  bool quoted = false;
};

std::optional<Include> parse_include(const SourceFile& file, std::size_t index) {
  std::string_view code = trim(file.code[index]);
  if (!code.starts_with('#') || !trim(code.substr(1)).starts_with("include")) return std::nullopt;
  const std::string_view line = file.lines[index];
  const std::size_t open = line.find_first_of("\"<");
  if (open == std::string_view::npos) return std::nullopt;
  const std::size_t close = line.find_first_of("\">", open + 1);
  if (close == std::string_view::npos) return std::nullopt;
  return Include{line.substr(open + 1, close - open - 1), line[open] == '"'};
}

template <typename Visit>
void for_each_include(const Tree& tree, Visit&& visit) {
  for (const auto& [path, file] : tree.files) {
    if (file.language != Language::kCpp || file.extension() == ".proto") continue;
    for (std::size_t index = 0; index < file.code.size(); ++index) {
      if (const auto include = parse_include(file, index)) visit(file, index + 1, *include);
    }
  }
}

struct FolderRule {
  std::string_view folder;
  std::array<std::string_view, 6> may_include;
};
constexpr std::array<FolderRule, 7> kFolderRules = {{
    {"base", {}},
    {"proto", {}},
    {"compression", {"base"}},
    {"topology", {"base"}},
    {"sync", {"base", "compression", "topology"}},
    {"gateway", {"base", "proto", "compression", "topology", "sync"}},
    {"site-agent", {"base", "proto", "compression", "topology", "sync"}},
}};

bool may_include(std::string_view from, std::string_view to) {
  if (from == to || from == "tests") return true;
  const auto rule = std::ranges::find(kFolderRules, from, &FolderRule::folder);
  return rule != kFolderRules.end() && std::ranges::find(rule->may_include, to) != rule->may_include.end();
}

struct ThirdParty {
  std::string_view prefix;                 // of the path between the brackets
  std::array<std::string_view, 5> places;  // prefixes of paths of ours; "*x" means: contains x
};
constexpr std::array<ThirdParty, 29> kThirdParties = {{
    {"asio", {"gateway/", "site-agent/", "tests/"}},
    {"openssl/", {"gateway/", "site-agent/", "tests/"}},
    {"yaml-cpp/", {"*config", "topology/internal/yaml_value.cc"}},
    {"gloo/", {"sync/gloo/", "tests/"}},
    {"prometheus/", {"gateway/", "tests/gateway/"}},
    {"httplib.h", {"gateway/", "tests/"}},
    {"cuda", {"*/cuda/", "*/nccl/"}},
    {"nccl.h", {"sync/nccl/", "tests/sync/"}},
    {"nvml.h", {"topology/"}},
    {"spdlog/", {"base/log.cc"}},
    {"tl/expected.hpp", {"base/result.h"}},
    {"xxhash.h", {"base/hash.cc", "compression/internal/frame_hash_avx512.cc"}},
    {"zstd", {"compression/", "gateway/", "tests/compression/"}},
    {"hwy/", {"compression/"}},
    {"CLI/", {"gateway/", "site-agent/", "tests/"}},
    {"hwloc", {"topology/", "tests/topology/"}},
    {"expat", {"topology/"}},
    {"google/protobuf/", {"gateway/", "site-agent/", "proto/", "tests/"}},
    {"gtest/", {"tests/"}},
    {"gmock/", {"tests/"}},
    {"benchmark/", {"tests/bench/"}},
    {"torch/", {}},
    {"boost/", {}},
    {"sys/", {"base/", "gateway/", "site-agent/", "sync/gloo/", "tests/"}},
    {"netinet/", {"gateway/", "site-agent/", "sync/gloo/", "tests/"}},
    {"arpa/", {"gateway/", "site-agent/", "sync/gloo/", "tests/"}},
    {"netdb.h", {"gateway/", "site-agent/", "sync/gloo/", "tests/"}},
    {"poll.h", {"gateway/", "site-agent/", "tests/"}},
    {"nlohmann/", {"gateway/", "site-agent/", "topology/", "sync/", "tests/"}},
}};

bool is_place(const SourceFile& file, std::string_view place) {
  if (place.empty()) return false;
  return place.front() == '*' ? file.path.find(place.substr(1)) != std::string::npos : file.is_under(place);
}

bool is_pure_core(const SourceFile& file) {
  if (file.language != Language::kCpp) return false;
  if (!file.is_under("compression/") && !file.is_under("topology/") && !file.is_under("sync/")) return false;
  for (const std::string_view backend : {"/cuda/", "/nccl/", "/gloo/", "/readers/"}) {
    if (file.path.find(backend) != std::string::npos) return false;
  }
  return !(file.is_under("topology/") && file.stem().ends_with("_reader"));
}

// Left out on purpose: <chrono>, which names durations, and std::snprintf-like formatting, which touches no stream.
constexpr std::array<std::string_view, 12> kImpureHeaders = {"fstream", "iostream",           "filesystem", "thread",   "mutex",
                                                             "future",  "condition_variable", "fcntl.h",    "unistd.h", "ctime",
                                                             "time.h",  "base/log.h"};
constexpr std::array<std::string_view, 17> kImpureCalls = {
    "::now(",    "std::random_device", "std::rand(",  "fopen(",       "printf(",     "std::fprintf(", "std::getenv(", "getenv(",
    "system(",   "std::this_thread",   "std::thread", "std::jthread", "std::async(", "log_info(",     "log_warning(", "log_error(",
    "log_debug("};

Findings check_pure_calls(const SourceFile& file) {
  Findings findings;
  for (std::size_t index = 0; index < file.code.size(); ++index) {
    for (const std::string_view call : kImpureCalls) {
      if (contains_word(file.code[index], call)) {
        findings.push_back({file.path, index + 1, fmt::format("a pure core may not use {}", call)});
      }
    }
  }
  return findings;
}

// The header a .cc implements, or nothing when there is no such file.
std::optional<std::string> own_header(const Tree& tree, const SourceFile& file) {
  const std::string folder = file.path.substr(0, file.path.size() - file.name().size());
  for (const std::string& place : {folder, folder + "internal/"}) {
    std::string candidate = fmt::format("{}{}.h", place, file.stem());
    if (tree.contains(candidate)) return candidate;
  }
  const std::string_view internal = "internal/";
  if (folder.ends_with(internal)) {
    std::string candidate = fmt::format("{}{}.h", folder.substr(0, folder.size() - internal.size()), file.stem());
    if (tree.contains(candidate)) return candidate;
  }
  return std::nullopt;
}

void check_pragma_once(const SourceFile& file, Findings& findings) {
  const auto first = std::ranges::find_if(file.code, [](const std::string& line) { return !trim(line).empty(); });
  if (first == file.code.end() || trim(*first) != "#pragma once") {
    findings.push_back({file.path, static_cast<std::size_t>(first - file.code.begin()) + 1, "a header opens with #pragma once"});
  }
}

void check_own_header_first(const Tree& tree, const SourceFile& file, Findings& findings) {
  const auto own = own_header(tree, file);
  if (!own) return;
  for (std::size_t index = 0; index < file.code.size(); ++index) {
    const auto include = parse_include(file, index);
    if (!include) continue;
    if (include->path != *own) findings.push_back({file.path, index + 1, fmt::format("the own header \"{}\" comes first", *own)});
    return;
  }
  findings.push_back({file.path, 0, fmt::format("does not include its own header \"{}\"", *own)});
}

}  // namespace

Findings check_include_directions(const Tree& tree) {
  Findings findings;
  for_each_include(tree, [&](const SourceFile& file, std::size_t line, const Include& include) {
    if (!include.quoted) return;
    const std::string_view to = include.path.substr(0, include.path.find('/'));
    const bool is_generated = include.path.ends_with(".pb.h");
    if (!is_generated && !tree.contains(include.path)) {
      findings.push_back({file.path, line, fmt::format("\"{}\" is no file of ours by its full path from the root", include.path)});
    } else if (!may_include(file.folder(), to)) {
      findings.push_back({file.path, line, fmt::format("{}/ may not include \"{}\"", file.folder(), include.path)});
    } else if (include.path.find("/internal/") != std::string_view::npos && file.folder() != to && file.folder() != "tests") {
      findings.push_back({file.path, line, fmt::format("\"{}\" is private to {}/", include.path, to)});
    }
  });
  return findings;
}

Findings check_third_party(const Tree& tree) {
  Findings findings;
  for_each_include(tree, [&](const SourceFile& file, std::size_t line, const Include& include) {
    if (include.quoted) return;
    for (const ThirdParty& rule : kThirdParties) {
      if (!include.path.starts_with(rule.prefix)) continue;
      if (std::ranges::none_of(rule.places, [&](std::string_view place) { return is_place(file, place); })) {
        findings.push_back({file.path, line, fmt::format("<{}> has no place here", include.path)});
      }
    }
  });
  return findings;
}

Findings check_pure_cores(const Tree& tree) {
  Findings findings;
  for_each_include(tree, [&](const SourceFile& file, std::size_t line, const Include& include) {
    if (is_pure_core(file) && std::ranges::find(kImpureHeaders, include.path) != kImpureHeaders.end()) {
      findings.push_back({file.path, line, fmt::format("a pure core may not include {}", include.path)});
    }
  });
  for (const auto& [path, file] : tree.files) {
    if (!is_pure_core(file)) continue;
    std::ranges::move(check_pure_calls(file), std::back_inserter(findings));
  }
  return findings;
}

Findings check_header_form(const Tree& tree) {
  Findings findings;
  for (const auto& [path, file] : tree.files) {
    if (file.is_header()) check_pragma_once(file, findings);
    if (file.extension() == ".cc" || file.extension() == ".cu") check_own_header_first(tree, file, findings);
  }
  return findings;
}

}  // namespace sluice::tidy
