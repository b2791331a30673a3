#pragma once

// A YAML document as a plain tree with positions, after everything that makes YAML ambiguous has been refused: duplicate keys, anchors,
// aliases, tags, merge keys, a second document, other encodings than UTF-8, excessive size or depth. Environment variables in scalar
// values are already filled in. Value type, any thread.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/config.h"

namespace sluice::gateway {

struct ConfigNode {
  enum class Kind { kNull, kScalar, kMap, kList };
  struct Entry;

  Kind kind = Kind::kNull;
  int line = 0;  // from 1
  int column = 0;
  std::string text;          // scalar
  bool quoted = false;       // scalar: quotes in the file; a number in quotes is text
  bool substituted = false;  // scalar: part of the text came from the environment
  std::vector<Entry> entries;
  std::vector<ConfigNode> items;
};

struct ConfigNode::Entry {
  std::string key;
  int line = 0;
  int column = 0;
  ConfigNode value;
};

struct ConfigTree {
  std::optional<ConfigNode> root;  // a map; set when the text could be read at all
  std::vector<ConfigProblem> problems;
};

// Value of an environment variable, or nothing when it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

// An empty `environment` leaves ${...} as it is written.
ConfigTree read_config_tree(std::string_view text, const EnvironmentLookup& environment);

}  // namespace sluice::gateway
