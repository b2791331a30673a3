#pragma once

// The repository as text: every file of ours, split into lines, with code and comments told apart. Used by the tidy test only.
// Single-threaded; value types. Paths are relative to the root, with '/'.

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::tidy {

enum class Language { kCpp, kPython, kOther };

struct SourceFile {
  std::string path;
  Language language = Language::kOther;
  std::vector<std::string> lines;     // as written
  std::vector<std::string> code;      // comments and the insides of literals replaced by spaces; same shape as `lines`
  std::vector<std::string> comments;  // everything but comments replaced by spaces; same shape as `lines`

  [[nodiscard]] std::string_view name() const;       // "frame.h"
  [[nodiscard]] std::string_view stem() const;       // "frame"
  [[nodiscard]] std::string_view extension() const;  // ".h", or empty
  [[nodiscard]] std::string_view folder() const;     // "compression", or empty at the root
  [[nodiscard]] bool is_under(std::string_view prefix) const { return path.starts_with(prefix); }
  [[nodiscard]] bool is_header() const { return extension() == ".h" || extension() == ".cuh"; }
};

struct Tree {
  std::map<std::string, SourceFile, std::less<>> files;  // by path

  void add(std::string path, std::string_view text);
  [[nodiscard]] bool contains(std::string_view path) const { return files.find(path) != files.end(); }
  [[nodiscard]] const SourceFile* find(std::string_view path) const;
};

// What a rule reports. Line 0 is the file as a whole.
struct Finding {
  std::string path;
  std::size_t line = 0;
  std::string message;

  [[nodiscard]] std::string to_string() const;
};
using Findings = std::vector<Finding>;

SourceFile make_source_file(std::string path, std::string_view text);

// Reads the project's folders and the files at the root; build outputs, hidden folders and caches are left out.
Tree read_tree(const std::filesystem::path& root);

// Small helpers of the rules.
bool is_identifier_char(char character);
std::string_view trim(std::string_view text);
// True where `word` stands in `line` with no identifier character on either side that `word` itself could continue into.
bool contains_word(std::string_view line, std::string_view word);

}  // namespace sluice::tidy
