#pragma once

// Rules that a line of text keeps or breaks by itself. Pure, any thread.

#include "tests/tidy/source_tree.h"

namespace sluice::tidy {

inline constexpr std::size_t kLineColumnsMax = 140;
inline constexpr std::size_t kFileLinesMax = 1000;  // non-blank

// Columns (a .def is a table, one row a line, and may be wider), tabs, trailing blanks; length of files of code.
Findings check_layout(const Tree& tree);
// Markers of unfinished work, open points without kind and issue, code kept as a comment.
Findings check_leftovers(const Tree& tree);
// Sleeps in tests, detached threads and coroutines, using namespace, skips without reason, switched-off tests, -ffast-math, globbing.
Findings check_banned_calls(const Tree& tree);

}  // namespace sluice::tidy
