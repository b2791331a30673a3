#pragma once

// A small XML file as a list of its elements, with bounds on everything. Entities are refused, and document types unless they only name an
// outside file, which is never looked at: expanding entities is the known way to blow up a parser. Pure.

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
  std::string text;        // directly inside, as it stands
  std::size_t parent = 0;  // position in the list, before the element itself; the root is its own parent
  std::size_t line = 0;

  // Empty when absent.
  [[nodiscard]] std::string_view attribute(std::string_view wanted) const;
  [[nodiscard]] bool has(std::string_view wanted) const;
};

// The elements in document order; at least the root. kTopologySyntax, kTopologyTooLarge.
Result<std::vector<XmlElement>> parse_xml_elements(std::string_view text, const std::string& name);

}  // namespace sluice::topology
