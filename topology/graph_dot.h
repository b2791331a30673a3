#pragma once

// A site graph as a drawing for Graphviz. Pure.

#include <string>

#include "topology/site_graph.h"

namespace sluice::topology {

// `graph` in the language of dot: a cluster for each node, one line for each pair with a stated or measured link. Derived links are left
// out: they follow from the others.
std::string write_dot(const SiteGraph& graph);

}  // namespace sluice::topology
