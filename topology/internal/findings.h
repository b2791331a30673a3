#pragma once

// Collects what checks find, with a bound for each check. Pure.

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topology/diagnosis.h"

namespace sluice::topology {

// A fault of one kind on a thousand nodes is one fault.
inline constexpr std::size_t kFindingsPerCheck = 10;

class Findings {
 public:
  // Opens the findings of one check of the table. REQUIRES: an id of the table.
  void open(std::string_view id);
  // A finding of the open check.
  void add(std::string where, std::string evidence);
  std::vector<Problem> take();

 private:
  void close();

  const Check* check_ = nullptr;
  std::size_t found_ = 0;
  std::vector<Problem> problems_;
};

// The checks of one machine, of the machines of a site against each other, and of the network between them.
void check_nodes(const SiteGraph& graph, Findings& findings);
void check_site(const SiteGraph& graph, Findings& findings);
void check_network(const SiteGraph& graph, Findings& findings);

}  // namespace sluice::topology
