#pragma once

// Finds the functions of a C++ or Python file and measures them from signature to closing brace, by braces and indentation rather than by a
// grammar: good enough for code that clang-format has laid out. Lambdas and local classes count into the function around them. Pure.

#include "tests/tidy/source_tree.h"

namespace sluice::tidy {

struct Function {
  std::string signature;  // first line of it
  std::size_t first_line = 0;
  std::size_t last_line = 0;

  [[nodiscard]] std::size_t lines() const { return last_line - first_line + 1; }
};

inline constexpr std::size_t kFunctionLinesMax = 70;  // a screen

std::vector<Function> find_functions(const SourceFile& file);

Findings check_function_length(const Tree& tree);

}  // namespace sluice::tidy
