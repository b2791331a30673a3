#pragma once

// Rules about the tree as a whole: names of files, pages that folders owe, tables that must agree, files that the build must know.
// Pure, any thread.

#include "tests/tidy/source_tree.h"

namespace sluice::tidy {

// snake_case; no name twice, except those every folder has and those that backends of one family share.
Findings check_file_names(const Tree& tree);
// A README.md in each folder of the project; exactly one title in each page; links inside the repository lead somewhere.
Findings check_pages(const Tree& tree);
// base/error_codes.def and docs/ERRORS.md say the same, number by number.
Findings check_error_table(const Tree& tree);
// Each .cc, .cu and public header is named by a CMakeLists.txt of its folder: what the build does not list, nobody compiles or checks.
Findings check_files_are_listed(const Tree& tree);
// A test opens with a comment that states goal and method.
Findings check_tests_say_their_goal(const Tree& tree);

}  // namespace sluice::tidy
