#include "tests/tidy/function_length.h"

#include <fmt/format.h>

#include <array>

namespace sluice::tidy {
namespace {

// Walks the code of a C++ file. Outside functions every '{' opens either a scope that can hold functions (namespace, class, enum,
// extern "C"), an initialiser, or a function; what was written since the last ';', '{' or '}' tells which. Inside a function only the
// depth matters. Preprocessor lines are skipped, so that macros do not unbalance the count.
class CppFunctionFinder {
 public:
  explicit CppFunctionFinder(const SourceFile& file) : file_(file) {}

  std::vector<Function> find() {
    bool continues_directive = false;
    for (line_ = 0; line_ < file_.code.size(); ++line_) {
      const std::string& text = file_.code[line_];
      const bool is_directive = continues_directive || trim(text).starts_with('#');
      continues_directive = is_directive && trim(text).ends_with('\\');
      if (is_directive) continue;
      for (const char character : text) step(character);
      if (!pending_.empty()) pending_ += ' ';
    }
    return std::move(functions_);
  }

 private:
  void step(char character) {
    if (character == '{') {
      open();
    } else if (character == '}') {
      close();
    } else if (character == ';' && parentheses_ == 0) {
      pending_.clear();
    } else {
      if (character == '(') ++parentheses_;
      if (character == ')') --parentheses_;
      if (pending_.empty()) {
        if (character == ' ' || character == '\t') return;  // blanks before a signature are not part of it
        pending_line_ = line_;
      }
      pending_ += character;
    }
  }

  void open() {
    ++depth_;
    // A brace straight after a name initialises it ("x{0}"), and one inside parentheses is an argument: the signature goes on after both.
    const bool is_initialiser = parentheses_ != 0 || (!pending_.empty() && (is_identifier_char(pending_.back()) || pending_.back() == '>'));
    if (function_depth_ == 0 && !is_initialiser && is_function(trim(pending_))) {
      function_depth_ = depth_;
      functions_.push_back({std::string(trim(file_.lines[pending_line_])), pending_line_ + 1, 0});
    }
    initialiser_depth_ = is_initialiser && initialiser_depth_ == 0 ? depth_ : initialiser_depth_;
    if (initialiser_depth_ == 0) pending_.clear();
  }

  void close() {
    if (function_depth_ != 0 && function_depth_ == depth_) {
      functions_.back().last_line = line_ + 1;
      function_depth_ = 0;
      parentheses_ = 0;
    }
    if (initialiser_depth_ == 0) pending_.clear();
    if (initialiser_depth_ == depth_) initialiser_depth_ = 0;
    if (depth_ > 0) --depth_;
  }

  [[nodiscard]] bool is_function(std::string_view head) const {
    if (is_lambda(head)) return true;
    if (head.find('(') == std::string_view::npos) return false;
    for (const std::string_view keyword : {"namespace", "enum"}) {
      if (head.starts_with(keyword)) return false;
    }
    // A base class may be written with parentheses; a function returning "struct X" is not written here.
    for (const std::string_view keyword : {"class ", "struct ", "union "}) {
      if (head.starts_with(keyword)) return false;
    }
    return !head.ends_with('=');
  }
  // A lambda with a name, at namespace scope.
  [[nodiscard]] static bool is_lambda(std::string_view head) {
    const std::size_t open = head.find("= [");
    return open != std::string_view::npos && !head.ends_with('=') && !head.ends_with(',');
  }

  const SourceFile& file_;
  std::vector<Function> functions_;
  std::string pending_;
  std::size_t pending_line_ = 0;
  std::size_t line_ = 0;
  int depth_ = 0;
  int function_depth_ = 0;     // depth of the function's own brace; 0 outside
  int initialiser_depth_ = 0;  // depth of the outermost initialiser brace that is open; 0 outside
  int parentheses_ = 0;
};

std::size_t indent_of(std::string_view line) { return line.find_first_not_of(' '); }

// A Python function ends before the next line that is not indented deeper than its `def`.
std::vector<Function> find_python_functions(const SourceFile& file) {
  std::vector<Function> functions;
  for (std::size_t start = 0; start < file.code.size(); ++start) {
    const std::string_view head = trim(file.code[start]);
    if (!head.starts_with("def ") && !head.starts_with("async def ")) continue;
    const std::size_t indent = indent_of(file.code[start]);
    std::size_t last = start;
    bool in_signature = true;
    for (std::size_t index = start; index < file.code.size(); ++index) {
      const std::string_view text = trim(file.code[index]);
      if (text.empty()) continue;
      if (!in_signature && indent_of(file.code[index]) <= indent) break;
      if (in_signature && text.ends_with(':')) in_signature = false;
      last = index;
    }
    functions.push_back({std::string(head), start + 1, last + 1});
  }
  return functions;
}

}  // namespace

std::vector<Function> find_functions(const SourceFile& file) {
  if (file.language == Language::kPython) return find_python_functions(file);
  if (file.language == Language::kCpp && file.extension() != ".proto") return CppFunctionFinder(file).find();
  return {};
}

Findings check_function_length(const Tree& tree) {
  Findings findings;
  for (const auto& [path, file] : tree.files) {
    for (const Function& function : find_functions(file)) {
      if (function.last_line == 0) {
        findings.push_back({path, function.first_line, fmt::format("no end found for: {}", function.signature)});
      } else if (function.lines() > kFunctionLinesMax) {
        findings.push_back({path, function.first_line,
                            fmt::format("{} lines of at most {}: {}", function.lines(), kFunctionLinesMax, function.signature)});
      }
    }
  }
  return findings;
}

}  // namespace sluice::tidy
