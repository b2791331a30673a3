#pragma once

// A YAML text as plain values, with bounds on everything: no anchors, aliases, tags or merge keys, no repeated keys. The only file of this
// folder that names the YAML library. Pure.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::topology {

struct YamlEntry;

struct YamlValue {
  enum class Kind { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  std::string text;  // of a scalar
  std::vector<YamlValue> items;
  std::vector<YamlEntry> entries;  // of a map, in the order of the file
  std::size_t line = 0;

  [[nodiscard]] bool is_null() const { return kind == Kind::kNull; }
  [[nodiscard]] bool is_scalar() const { return kind == Kind::kScalar; }
  [[nodiscard]] bool is_list() const { return kind == Kind::kList; }
  [[nodiscard]] bool is_map() const { return kind == Kind::kMap; }
  // The value of a key of a map; nullptr when it is not there.
  [[nodiscard]] const YamlValue* find(std::string_view key) const;
  // "a list", for messages.
  [[nodiscard]] std::string_view kind_name() const;
};

struct YamlEntry {
  std::string key;
  YamlValue value;
};

// All documents of the text, at most kYamlDocumentsMax. kTopologySyntax with the line; kTopologyTooLarge.
Result<std::vector<YamlValue>> parse_yaml(std::string_view text, const std::string& name);

}  // namespace sluice::topology
