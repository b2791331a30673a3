#pragma once

// A small XML file as a list of its elements, with bounds on everything. Document types and entities are refused: no file of the kinds read
// here has one, and their expansion is the known way to blow up a parser. Text between elements is ignored. Pure.

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace sluice::topology {

struct XmlElement {
  std::string name;
  std::vector<std::pair<std::string, std::string>> attributes;
  std::size_t parent = 0;  // position in the list, before the element itself; the root is its own parent
  std::size_t line = 0;

  // Empty when absent.
  [[nodiscard]] std::string_view attribute(std::string_view wanted) const;
  [[nodiscard]] bool has(std::string_view wanted) const;
};

// The elements in document order; at least the root. kTopologySyntax, kTopologyTooLarge.
Result<std::vector<XmlElement>> parse_xml_elements(std::string_view text, const std::string& name);

}  // namespace sluice::topology
