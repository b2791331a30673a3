#include "tests/tidy/text_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

namespace sluice::tidy {
namespace {

bool is_code(const SourceFile& file) {
  return file.language != Language::kOther || file.extension() == ".cmake" || file.name() == "CMakeLists.txt" ||
         file.extension() == ".sh" || file.name() == "run";
}

// Recorded input of tests keeps the form in which it was found.
bool is_data(const SourceFile& file) {
  return file.path.find("/testdata/") != std::string::npos || file.path.find("/corpus/") != std::string::npos ||
         file.path.find("/vendor/") != std::string::npos || file.name() == "LICENSE" || file.extension() == ".svg";
}

std::size_t columns(std::string_view line) {
  // UTF-8 continuation bytes take no column.
  return static_cast<std::size_t>(std::ranges::count_if(line, [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }));
}

void check_file_length(const SourceFile& file, Findings& findings) {
  if (file.language == Language::kOther) return;
  const auto lines = std::ranges::count_if(file.lines, [](const std::string& line) { return !trim(line).empty(); });
  if (static_cast<std::size_t>(lines) > kFileLinesMax) {
    findings.push_back({file.path, 0, fmt::format("{} non-blank lines of at most {}", lines, kFileLinesMax)});
  }
}

constexpr std::array<std::string_view, 2> kUnfinishedMarkers = {"FIXME", "XXX"};
constexpr std::array<std::string_view, 4> kOpenPointKinds = {"perf", "security", "cleanup", "test"};

// "TODO(perf): text, issue #12"
bool is_open_point_well_formed(std::string_view text) {
  const std::string_view rest = text.substr(text.find("TODO") + 4);
  const std::size_t issue = rest.find("issue #");
  const bool names_issue = issue != std::string_view::npos && issue + 7 < rest.size() && rest[issue + 7] >= '0' && rest[issue + 7] <= '9';
  return names_issue &&
         std::ranges::any_of(kOpenPointKinds, [&](std::string_view kind) { return rest.starts_with(fmt::format("({}): ", kind)); });
}

// A comment that reads as a statement or as a call of its own. Examples in comments are indented by four or more and are left alone.
bool is_commented_out_cpp(std::string_view comment) {
  const std::string_view text = trim(comment);
  if (!text.starts_with("//") || text.starts_with("///") || text.starts_with("//    ")) return false;
  const std::string_view body = trim(text.substr(2));
  if (body == "}" || body == "{" || body.starts_with("#include")) return true;
  if (!body.ends_with(';') && !body.ends_with('{')) return false;
  for (const std::string_view start : {"return ", "if (", "for (", "while (", "const ", "auto ", "std::", "int ", "delete ", "} else"}) {
    if (body.starts_with(start)) return true;
  }
  const std::string_view before = body.substr(0, body.size() - 1);
  return before.ends_with(')') && before.find(' ') > before.find('(');  // a call
}

bool is_commented_out_python(std::string_view comment) {
  const std::string_view text = trim(comment);
  if (!text.starts_with('#') || text.starts_with("#    ")) return false;
  const std::string_view body = trim(text.substr(1));
  for (const std::string_view start : {"import ", "return ", "print(", "def ", "elif ", "self."}) {
    const bool is_prose = body.find(' ', start.size()) != std::string_view::npos && !body.ends_with(':') && !body.ends_with(')');
    if (body.starts_with(start) && !is_prose) return true;
  }
  return false;
}

void check_leftovers_of(const SourceFile& file, Findings& findings) {
  for (std::size_t index = 0; index < file.lines.size(); ++index) {
    const std::string_view comment = file.language == Language::kOther ? file.lines[index] : file.comments[index];
    for (const std::string_view marker : kUnfinishedMarkers) {
      if (contains_word(comment, marker)) findings.push_back({file.path, index + 1, fmt::format("{} does not merge", marker)});
    }
    if (contains_word(comment, "TODO") && !is_open_point_well_formed(comment)) {
      findings.push_back({file.path, index + 1, "write TODO(perf|security|cleanup|test): text, issue #n"});
    }
    const bool is_statement = (file.language == Language::kCpp && is_commented_out_cpp(comment)) ||
                              (file.language == Language::kPython && is_commented_out_python(comment));
    if (is_statement) findings.push_back({file.path, index + 1, "code kept as a comment does not merge"});
  }
}

struct Ban {
  std::string_view text;
  std::string_view reason;
};
constexpr std::array<Ban, 7> kSleeps = {{
    {"sleep_for(", "wait for a condition or use virtual time"},
    {"sleep_until(", "wait for a condition or use virtual time"},
    {"usleep(", "wait for a condition or use virtual time"},
    {"nanosleep(", "wait for a condition or use virtual time"},
    {"sleep(", "wait for a condition or use virtual time"},
    {"time.sleep(", "wait for a condition or use virtual time"},
    {"asyncio.sleep(", "wait for a condition or use virtual time"},
}};
constexpr std::array<Ban, 5> kCppBans = {{
    {".detach()", "an owner joins its threads"},
    {"asio::detached", "use sluice::spawn: detached loses an escaped exception"},
    {"using namespace std;", "name what is used"},
    {"DISABLED_", "a test runs, or skips with a reason"},
    {"std::rand(", "draw from a seeded generator"},
}};
constexpr std::array<Ban, 3> kBuildBans = {{
    {"-ffast-math", "it turns isnan into a constant"},
    {"file(GLOB", "sources are listed"},
    {"aux_source_directory(", "sources are listed"},
}};

void report(std::span<const Ban> bans, const SourceFile& file, std::size_t index, Findings& findings) {
  for (const Ban& ban : bans) {
    if (!contains_word(file.code[index], ban.text)) continue;
    findings.push_back({file.path, index + 1, fmt::format("{} is not used here: {}", ban.text, ban.reason)});
    return;
  }
}

// GTEST_SKIP() << "why"; the reason may stand on the next line.
bool skips_without_reason(const SourceFile& file, std::size_t index) {
  const std::size_t at = file.code[index].find("GTEST_SKIP()");
  if (at == std::string::npos) return false;
  std::string rest = file.code[index].substr(at + 12);
  if (trim(rest).empty() && index + 1 < file.code.size()) rest = file.code[index + 1];
  return !trim(rest).starts_with("<<");
}

void check_cpp_line(const SourceFile& file, std::size_t index, Findings& findings) {
  report(kCppBans, file, index, findings);
  if (file.is_header() && contains_word(file.code[index], "using namespace")) {
    findings.push_back({file.path, index + 1, "a header has no using namespace"});
  }
  if (skips_without_reason(file, index)) findings.push_back({file.path, index + 1, "GTEST_SKIP() says why: << \"reason\""});
}

}  // namespace

Findings check_layout(const Tree& tree) {
  Findings findings;
  for (const auto& [path, file] : tree.files) {
    if (is_data(file)) continue;
    check_file_length(file, findings);
    for (std::size_t index = 0; index < file.lines.size(); ++index) {
      const std::string& line = file.lines[index];
      if (is_code(file) && file.extension() != ".def" && columns(line) > kLineColumnsMax) {
        findings.push_back({path, index + 1, fmt::format("{} columns of at most {}", columns(line), kLineColumnsMax)});
      }
      if (line.find('\t') != std::string::npos) findings.push_back({path, index + 1, "a tab"});
      if (line.ends_with(' ') || line.ends_with('\r')) findings.push_back({path, index + 1, "a blank or carriage return at the end"});
    }
  }
  return findings;
}

Findings check_leftovers(const Tree& tree) {
  Findings findings;
  for (const auto& [path, file] : tree.files) {
    if (is_code(file) && !is_data(file)) check_leftovers_of(file, findings);
  }
  return findings;
}

Findings check_banned_calls(const Tree& tree) {
  Findings findings;
  for (const auto& [path, file] : tree.files) {
    if (!is_code(file) || is_data(file)) continue;
    for (std::size_t index = 0; index < file.code.size(); ++index) {
      if (file.language == Language::kOther) {
        report(kBuildBans, file, index, findings);
        continue;
      }
      if (file.is_under("tests/")) report(kSleeps, file, index, findings);
      if (file.language == Language::kCpp) check_cpp_line(file, index, findings);
    }
  }
  return findings;
}

}  // namespace sluice::tidy
