#pragma once

// What the tests of topology/ share: reading a text as a file, and asking what was found.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "topology/site_graph.h"
#include "topology/topology_reader.h"

namespace sluice::topology {

inline SiteGraph graph_of(std::string_view text, const std::string& name = "test") {
  auto graph = read_topology_file(text, name);
  EXPECT_TRUE(graph) << graph.error().to_string();
  return graph ? std::move(*graph) : SiteGraph{};
}

inline bool has_problem(const std::vector<Problem>& problems, std::string_view id, std::string_view where = "") {
  return std::ranges::any_of(problems,
                             [&](const Problem& problem) { return problem.id == id && (where.empty() || problem.where == where); });
}

// The refusal has the code and its text holds `part`.
inline void expect_refusal(std::string_view text, ErrorCode code, std::string_view part) {
  const auto graph = read_topology_file(text, "test");
  ASSERT_FALSE(graph) << "was read: " << text.substr(0, 200);
  EXPECT_EQ(graph.error().code, code) << graph.error().to_string();
  EXPECT_NE(graph.error().to_string().find(part), std::string::npos) << graph.error().to_string();
}

}  // namespace sluice::topology
