#pragma once

// Rules about what may include and call what: the folder table of docs/STYLE.md, third parties at the edge, pure cores. Pure, any thread.

#include "tests/tidy/source_tree.h"

namespace sluice::tidy {

// Includes follow the arrows of the folder table; private headers stay inside their folder; a quoted path exists.
Findings check_include_directions(const Tree& tree);
// Each third-party header only where the table at the top of include_rules.cc allows it.
Findings check_third_party(const Tree& tree);
// compression/, topology/ and sync/ do no IO, read no clock, start no thread, do not log; backends and readers are exempt.
Findings check_pure_cores(const Tree& tree);
// #pragma once opens each header; the own header comes first in its .cc.
Findings check_header_form(const Tree& tree);

}  // namespace sluice::tidy
