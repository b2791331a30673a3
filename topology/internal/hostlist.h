#pragma once

// Lists of hosts as Slurm writes them: "node[01-04,7],login", "rack[1-2]n[01-18]". Pure.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::topology {

// The names in order. Fails with kTopologyInvalid on a list that is none, and with kTopologyTooLarge beyond `names_max` names, before
// they are made. `operation` and `where` stand in messages.
Result<std::vector<std::string>> expand_hostlist(std::string_view text, std::size_t names_max, const std::string& operation,
                                                 const std::string& where);

// Whether the list has the name in it, without making the others.
bool hostlist_contains(std::string_view text, std::string_view name);

}  // namespace sluice::topology
