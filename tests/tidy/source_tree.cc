#include "tests/tidy/source_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <iterator>

namespace sluice::tidy {
namespace {

// Tells code, comments and literals apart, one character at a time. Understands what the two languages need and no more: line and
// block comments, escapes, raw strings, digit separators, triple quotes.
class Splitter {
 public:
  Splitter(std::string_view text, Language language) : text_(text), language_(language), code_(text), comments_(text) {
    while (at_ < text_.size()) step();
  }

  [[nodiscard]] const std::string& code() const { return code_; }
  [[nodiscard]] const std::string& comments() const { return comments_; }

 private:
  void step() {
    const std::string_view rest = text_.substr(at_);
    if (language_ == Language::kCpp && rest.starts_with("//")) return comment(line_end());
    if (language_ == Language::kCpp && rest.starts_with("/*")) return comment(after(rest.find("*/", 2), 2));
    if (language_ == Language::kPython && rest.front() == '#') return comment(line_end());
    if (language_ == Language::kPython && (rest.starts_with(R"(""")") || rest.starts_with("'''"))) {
      return literal(3, after(rest.find(rest.substr(0, 3), 3), 3), 3);
    }
    if (language_ == Language::kCpp && is_raw_string()) return raw_string();
    if (rest.front() == '"' || (rest.front() == '\'' && !is_digit_separator())) return literal(1, quoted_end(), 1);
    blank(comments_, at_, at_ + 1);
    ++at_;
  }

  static void blank(std::string& text, std::size_t from, std::size_t to) {
    for (std::size_t index = from; index < to; ++index) {
      if (text[index] != '\n') text[index] = ' ';
    }
  }

  void comment(std::size_t end) {
    blank(code_, at_, end);
    at_ = end;
  }

  // Keeps `open` and `close` characters at the ends, blanks what is between.
  void literal(std::size_t open, std::size_t end, std::size_t close) {
    blank(comments_, at_, end);
    if (end >= at_ + open + close) blank(code_, at_ + open, end - close);
    at_ = end;
  }

  void raw_string() {
    const std::size_t open = text_.find('(', at_);
    if (open == std::string_view::npos) return literal(1, text_.size(), 0);
    const std::string close = ")" + std::string(text_.substr(at_ + 1, open - at_ - 1)) + "\"";
    const std::size_t found = text_.find(close, open);
    literal(1, found == std::string_view::npos ? text_.size() : found + close.size(), 1);
  }

  [[nodiscard]] std::size_t after(std::size_t found, std::size_t length) const {
    return found == std::string_view::npos ? text_.size() : at_ + found + length;
  }
  [[nodiscard]] std::size_t line_end() const { return std::min(text_.find('\n', at_), text_.size()); }
  [[nodiscard]] std::size_t quoted_end() const {
    const char quote = text_[at_];
    for (std::size_t index = at_ + 1; index < text_.size(); ++index) {
      if (text_[index] == '\\') {
        ++index;
      } else if (text_[index] == quote) {
        return index + 1;
      } else if (text_[index] == '\n') {
        return index;
      }
    }
    return text_.size();
  }
  // 1'000'000
  [[nodiscard]] bool is_digit_separator() const {
    return language_ == Language::kCpp && at_ > 0 && std::isxdigit(static_cast<unsigned char>(text_[at_ - 1])) != 0 &&
           at_ + 1 < text_.size() && std::isxdigit(static_cast<unsigned char>(text_[at_ + 1])) != 0;
  }
  [[nodiscard]] bool is_raw_string() const {
    return text_[at_] == '"' && at_ > 0 && text_[at_ - 1] == 'R' && (at_ < 2 || !is_identifier_char(text_[at_ - 2]));
  }

  std::string_view text_;
  Language language_;
  std::string code_;
  std::string comments_;
  std::size_t at_ = 0;
};

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return lines;
}

constexpr std::array<std::string_view, 10> kFolders = {"base",    "proto",      "compression", "topology", "sync",
                                                       "gateway", "site-agent", "configs",     "docs",     "tests"};

constexpr std::size_t kFileBytesMax = 4 << 20;  // larger files are data

bool is_left_out(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  return name == "__pycache__" || (name.starts_with('.') && name != ".ci") || name == "build";
}

void read_file(Tree& tree, const std::filesystem::path& root, const std::filesystem::path& path) {
  if (std::filesystem::file_size(path) > kFileBytesMax) return;
  std::ifstream stream(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (text.find('\0') != std::string::npos) return;  // binary test data
  tree.add(path.lexically_relative(root).generic_string(), text);
}

}  // namespace

std::string_view SourceFile::name() const {
  const std::size_t slash = path.rfind('/');
  return std::string_view(path).substr(slash == std::string::npos ? 0 : slash + 1);
}

std::string_view SourceFile::stem() const {
  const std::string_view file = name();
  return file.substr(0, file.rfind('.'));
}

std::string_view SourceFile::extension() const {
  const std::string_view file = name();
  const std::size_t dot = file.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : file.substr(dot);
}

std::string_view SourceFile::folder() const {
  const std::size_t slash = path.find('/');
  return slash == std::string::npos ? std::string_view() : std::string_view(path).substr(0, slash);
}

void Tree::add(std::string path, std::string_view text) {
  SourceFile file = make_source_file(std::move(path), text);
  files.insert_or_assign(file.path, std::move(file));
}

const SourceFile* Tree::find(std::string_view path) const {
  const auto found = files.find(path);
  return found == files.end() ? nullptr : &found->second;
}

std::string Finding::to_string() const { return fmt::format("{}:{}: {}", path, line, message); }

SourceFile make_source_file(std::string path, std::string_view text) {
  SourceFile file;
  file.path = std::move(path);
  const std::string_view extension = file.extension();
  if (extension == ".h" || extension == ".cc" || extension == ".cu" || extension == ".cuh" || extension == ".def" ||
      extension == ".proto") {
    file.language = Language::kCpp;
  } else if (extension == ".py") {
    file.language = Language::kPython;
  }
  file.lines = split_lines(text);
  if (file.language == Language::kOther) {
    file.code = file.lines;
    file.comments.resize(file.lines.size());
  } else {
    const Splitter splitter(text, file.language);
    file.code = split_lines(splitter.code());
    file.comments = split_lines(splitter.comments());
  }
  return file;
}

Tree read_tree(const std::filesystem::path& root) {
  Tree tree;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (entry.is_regular_file()) read_file(tree, root, entry.path());
  }
  for (const std::string_view folder : kFolders) {
    if (!std::filesystem::is_directory(root / folder)) continue;
    std::filesystem::recursive_directory_iterator walk(root / folder);
    for (const auto end = std::filesystem::end(walk); walk != end; ++walk) {
      if (is_left_out(walk->path())) {
        walk.disable_recursion_pending();
      } else if (walk->is_regular_file()) {
        read_file(tree, root, walk->path());
      }
    }
  }
  return tree;
}

bool is_identifier_char(char character) { return std::isalnum(static_cast<unsigned char>(character)) != 0 || character == '_'; }

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

bool contains_word(std::string_view line, std::string_view word) {
  for (std::size_t at = line.find(word); at != std::string_view::npos; at = line.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    const bool continues_left = at > 0 && is_identifier_char(line[at - 1]) && is_identifier_char(word.front());
    const bool continues_right = end < line.size() && is_identifier_char(line[end]) && is_identifier_char(word.back());
    if (!continues_left && !continues_right) return true;
  }
  return false;
}

}  // namespace sluice::tidy
