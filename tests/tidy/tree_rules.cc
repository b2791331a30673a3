#include "tests/tidy/tree_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace sluice::tidy {
namespace {

bool is_source(const SourceFile& file) { return file.language != Language::kOther || file.extension() == ".cmake"; }

bool is_testdata(const SourceFile& file) {
  return file.path.find("/testdata/") != std::string::npos || file.path.find("/corpus/") != std::string::npos;
}

bool is_snake_case(std::string_view stem) {
  return std::ranges::all_of(stem, [](char character) {
    return (character >= 'a' && character <= 'z') || (character >= '0' && character <= '9') || character == '_' || character == '.';
  });
}

// Each backend of a family repeats the file names of the others.
bool is_backend(const SourceFile& file) {
  return std::ranges::any_of(std::array{"/gloo/", "/nccl/", "/cuda/"},
                             [&](std::string_view part) { return file.path.find(part) != std::string::npos; });
}

bool may_repeat(const SourceFile& file) {
  return file.name() == "__init__.py" || file.name() == "__main__.py" || file.name() == "limits.h" || is_backend(file) || is_testdata(file);
}

constexpr std::array<std::string_view, 10> kFoldersWithReadme = {"base",    "proto",      "compression", "topology", "sync",
                                                                 "gateway", "site-agent", "configs",     "docs",     "tests"};

void check_title(const SourceFile& file, Findings& findings) {
  std::size_t titles = 0;
  bool in_block = false;
  for (const std::string& line : file.lines) {
    if (line.starts_with("```")) in_block = !in_block;
    if (!in_block && (line.starts_with("# ") || trim(line).starts_with("<h1"))) ++titles;
  }
  if (titles != 1) findings.push_back({file.path, 0, fmt::format("{} titles instead of one", titles)});
}

// "docs/img" + "../STYLE.md#x" -> "docs/STYLE.md"
std::string resolve(std::string_view from, std::string_view link) {
  const std::string target(link.substr(0, link.find('#')));
  return (std::filesystem::path(from).parent_path() / target).lexically_normal().generic_string();
}

bool leads_somewhere(const Tree& tree, std::string target) {
  while (target.ends_with('/')) target.pop_back();
  if (tree.contains(target)) return true;
  const auto below = tree.files.lower_bound(target + "/");
  return target.empty() || (below != tree.files.end() && below->first.starts_with(target + "/"));
}

void check_links(const Tree& tree, const SourceFile& file, Findings& findings) {
  bool in_block = false;
  for (std::size_t index = 0; index < file.lines.size(); ++index) {
    const std::string_view line = file.lines[index];
    if (line.starts_with("```")) in_block = !in_block;
    if (in_block) continue;
    for (std::size_t at = line.find("]("); at != std::string_view::npos; at = line.find("](", at + 1)) {
      const std::size_t end = line.find(')', at);
      if (end == std::string_view::npos) break;
      const std::string_view link = line.substr(at + 2, end - at - 2);
      if (link.empty() || link.starts_with('#') || link.find("://") != std::string_view::npos || link.starts_with("mailto:")) continue;
      if (!leads_somewhere(tree, resolve(file.path, link))) {
        findings.push_back({file.path, index + 1, fmt::format("the link {} leads nowhere", link)});
      }
    }
  }
}

struct ErrorRow {
  std::string name;
  unsigned number = 0;
  std::string advice;
  std::size_t line = 0;
};

std::optional<unsigned> parse_number(std::string_view text) {
  unsigned number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

constexpr std::string_view kErrorDefinitions = "base/error_codes.def";
constexpr std::string_view kErrorPage = "docs/ERRORS.md";

// SLUICE_ERROR_CODE(kName, 300, "advice")
std::vector<ErrorRow> read_definitions(const SourceFile& file) {
  std::vector<ErrorRow> rows;
  for (std::size_t index = 0; index < file.lines.size(); ++index) {
    std::string_view line = trim(file.lines[index]);
    if (!line.starts_with("SLUICE_ERROR_CODE(")) continue;
    line.remove_prefix(18);
    const std::size_t first = line.find(',');
    const std::size_t second = line.find(',', first + 1);
    const std::size_t open = line.find('"');
    const std::size_t close = line.rfind('"');
    if (second == std::string_view::npos || open == std::string_view::npos || close <= open) {
      rows.push_back({std::string(line), 0, {}, index + 1});
      continue;
    }
    const auto number = parse_number(trim(line.substr(first + 1, second - first - 1)));
    rows.push_back(
        {std::string(trim(line.substr(0, first))), number.value_or(0), std::string(line.substr(open + 1, close - open - 1)), index + 1});
  }
  return rows;
}

// | 300 | `kName` | advice |
std::vector<ErrorRow> read_error_page(const SourceFile& file) {
  std::vector<ErrorRow> rows;
  for (std::size_t index = 0; index < file.lines.size(); ++index) {
    std::vector<std::string_view> cells;
    std::string_view line = trim(file.lines[index]);
    if (!line.starts_with('|')) continue;
    line.remove_prefix(1);
    for (std::size_t bar = line.find('|'); bar != std::string_view::npos; bar = line.find('|')) {
      cells.push_back(trim(line.substr(0, bar)));
      line.remove_prefix(bar + 1);
    }
    if (cells.size() != 3) continue;
    const auto number = parse_number(cells[0]);
    if (!number) continue;
    std::string_view name = cells[1];
    if (name.size() > 2 && name.front() == '`' && name.back() == '`') name = name.substr(1, name.size() - 2);
    rows.push_back({std::string(name), *number, std::string(cells[2]), index + 1});
  }
  return rows;
}

void check_numbers_grow(const std::vector<ErrorRow>& rows, Findings& findings) {
  for (std::size_t index = 1; index < rows.size(); ++index) {
    if (rows[index].number != 0 && rows[index].number <= rows[index - 1].number) {
      findings.push_back({std::string(kErrorDefinitions), rows[index].line,
                          fmt::format("number {} does not follow {}", rows[index].number, rows[index - 1].number)});
    }
  }
}

// In a CMakeLists.txt of its folder or of one above, by its path from there; or in a CMake module, by its path from the root.
bool is_listed(const Tree& tree, const SourceFile& file) {
  const auto names = [](const SourceFile& lists, std::string_view path) {
    return std::ranges::any_of(lists.lines, [&](const std::string& line) { return contains_word(line, path); });
  };
  for (const auto& [path, module] : tree.files) {
    if (module.extension() == ".cmake" && names(module, file.path)) return true;
  }
  for (std::string folder = file.path; !folder.empty();) {
    const std::size_t slash = folder.rfind('/');
    if (slash == std::string::npos) return false;
    folder.resize(slash);
    const SourceFile* lists = tree.find(folder + "/CMakeLists.txt");
    if (lists != nullptr && names(*lists, std::string_view(file.path).substr(folder.size() + 1))) return true;
  }
  return false;
}

}  // namespace

Findings check_file_names(const Tree& tree) {
  Findings findings;
  std::map<std::string_view, std::string_view> seen;
  for (const auto& [path, file] : tree.files) {
    if (!is_source(file)) continue;
    if (!is_snake_case(file.name()) && !is_testdata(file)) findings.push_back({path, 0, "file names are snake_case"});
    if (may_repeat(file)) continue;
    const auto [first, is_new] = seen.emplace(file.name(), path);
    if (!is_new) findings.push_back({path, 0, fmt::format("the name is taken by {}", first->second)});
  }
  return findings;
}

Findings check_pages(const Tree& tree) {
  Findings findings;
  for (const std::string_view folder : kFoldersWithReadme) {
    std::string page = fmt::format("{}/README.md", folder);
    if (!tree.contains(page)) findings.push_back({std::move(page), 0, "each folder has a page"});
  }
  for (const auto& [path, file] : tree.files) {
    if (file.extension() != ".md" || is_testdata(file)) continue;
    check_title(file, findings);
    check_links(tree, file, findings);
  }
  return findings;
}

Findings check_error_table(const Tree& tree) {
  const SourceFile* definitions = tree.find(kErrorDefinitions);
  const SourceFile* page = tree.find(kErrorPage);
  if (definitions == nullptr || page == nullptr) return {{std::string(kErrorPage), 0, "the table or the definitions are missing"}};
  const std::vector<ErrorRow> codes = read_definitions(*definitions);
  const std::vector<ErrorRow> rows = read_error_page(*page);
  Findings findings;
  check_numbers_grow(codes, findings);
  for (const ErrorRow& code : codes) {
    if (code.number == 0) {
      findings.push_back({std::string(kErrorDefinitions), code.line, "write SLUICE_ERROR_CODE(kName, number, \"advice\") on one line"});
      continue;
    }
    const auto row = std::ranges::find(rows, code.number, &ErrorRow::number);
    if (row == rows.end()) {
      findings.push_back({std::string(kErrorDefinitions), code.line,
                          fmt::format("add to {}: | {} | `{}` | {} |", kErrorPage, code.number, code.name, code.advice)});
    } else if (row->name != code.name || row->advice != code.advice) {
      findings.push_back(
          {std::string(kErrorPage), row->line, fmt::format("write: | {} | `{}` | {} |", code.number, code.name, code.advice)});
    }
  }
  for (const ErrorRow& row : rows) {
    if (std::ranges::find(codes, row.number, &ErrorRow::number) == codes.end()) {
      findings.push_back({std::string(kErrorPage), row.line, fmt::format("no such code: {}", row.number)});
    }
  }
  return findings;
}

Findings check_files_are_listed(const Tree& tree) {
  Findings findings;
  for (const auto& [path, file] : tree.files) {
    const bool is_public_header = file.is_header() && !file.is_under("tests/") && path.find("/internal/") == std::string::npos;
    const bool is_compiled = file.extension() == ".cc" || file.extension() == ".cu";
    if ((is_public_header || is_compiled) && !is_listed(tree, file)) {
      findings.push_back({path, 0, "no CMakeLists.txt of its folder lists it"});
    }
  }
  return findings;
}

Findings check_tests_say_their_goal(const Tree& tree) {
  Findings findings;
  for (const auto& [path, file] : tree.files) {
    if (!file.is_under("tests/") || !file.name().ends_with("_test.cc")) continue;
    if (file.lines.empty() || !file.lines.front().starts_with("// ")) {
      findings.push_back({path, 1, "a test opens with a comment: // Goal: ... Method: ..."});
    }
  }
  return findings;
}

}  // namespace sluice::tidy
