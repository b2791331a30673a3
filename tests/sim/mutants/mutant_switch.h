#pragma once

// Comes before everything else in the copies of the machine's sources that make_mutants writes: which bug is on, and failed assertions as
// exceptions, because an assertion that a bug trips is a way of finding it.

#include <span>
#include <stdexcept>

#include "base/assert.h"

namespace sluice::sim {

extern int machine_mutant;  // entry of the list, from 1; 0 = none
std::span<const char* const> machine_mutant_names();

struct AssertionTripped : std::logic_error {
  using std::logic_error::logic_error;
};

}  // namespace sluice::sim

#undef SLUICE_ASSERT
#define SLUICE_ASSERT(condition, ...)                                                                             \
  do {                                                                                                            \
    if (!(condition)) [[unlikely]] throw ::sluice::sim::AssertionTripped("assertion failed: " #condition);        \
  } while (false)
