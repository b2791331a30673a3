#pragma once

// What is wrong with a machine or site, as far as its graph shows it. Each check has a stable id, and docs/reference/topology.md a row for
// it. Pure. The checks come from faults that people have reported; the page says which.

#include <string_view>
#include <vector>

#include "topology/site_graph.h"

namespace sluice::topology {

struct Check {
  std::string_view id;
  Severity severity;
  std::string_view what;    // is wrong
  std::string_view advice;  // what to do
};

// All checks, in the order in which they run.
const std::vector<Check>& diagnosis_checks();
// Of a problem of this id, "" for one that is no check's.
std::string_view advice_of(std::string_view id);

// The findings, at most kFindingsPerCheck of a check, the last of them with the number of those left out. Linear in devices and links.
// REQUIRES: at most kEndpointsMax GPUs and NICs in a node, more are not looked at in pairs.
std::vector<Problem> diagnose(const SiteGraph& graph);

// What differs between the nodes that both graphs have: devices, what they hang on, and labels; found when a machine's tree changes from
// one boot to the next ("topology-changed"), and GPUs that a file has and the machine does not show ("gpu-not-visible").
std::vector<Problem> compare_with_baseline(const SiteGraph& graph, const SiteGraph& baseline);

}  // namespace sluice::topology
