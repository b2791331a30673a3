// yaml-cpp turns text into events, and these into our tree. Its Node interface is not used: it accepts duplicate keys (the first wins),
// reads 010 as 8 and yes as true, ignores merge keys and second documents, and expands aliases. Every one of these is an error here.

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>

#include "gateway/internal/config_limits.h"
#include "gateway/internal/config_substitution.h"
#include "gateway/internal/config_tree.h"

namespace sluice::gateway {
namespace {

// Thrown by the handler to leave the parser, caught in read_config_tree; the problem has been recorded.
struct StopReading {};

// Whether a scalar that begins with a quote also ends with one. In double quotes a backslash hides the next character, in single quotes
// a doubled quote stands for itself. True for what is not quoted.
bool is_quote_closed(std::string_view scalar) {
  if (scalar.empty() || (scalar.front() != '"' && scalar.front() != '\'')) return true;
  const char quote = scalar.front();
  for (std::size_t at = 1; at < scalar.size(); ++at) {
    if (quote == '"' && scalar[at] == '\\') {
      ++at;
    } else if (scalar[at] == quote) {
      if (quote == '"' || scalar.substr(at, 2) != "''") return true;
      ++at;
    }
  }
  return false;
}

class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(ConfigTree& tree, std::string_view text, const EnvironmentLookup& environment)
      : tree_(tree), text_(text), environment_(environment) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) {
      report(mark, ErrorCode::kConfigSyntax, "a second document begins here; a configuration file holds one");
      throw StopReading{};
    }
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    if (expects_key()) {
      report(mark, ErrorCode::kConfigSyntax, "an empty key");
      throw StopReading{};
    }
    add(make_node(ConfigNode::Kind::kNull, mark));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    report(mark, ErrorCode::kConfigSyntax, "aliases (`*name`) are not supported; write the value out");
    throw StopReading{};
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    refuse_open_quote(mark);
    if (expects_key()) return begin_entry(mark, tag, value);
    ConfigNode node = make_node(ConfigNode::Kind::kScalar, mark);
    node.quoted = tag == "!";
    Parsed<std::string> text = environment_ ? substitute_environment(value, environment_) : Parsed<std::string>::good(value);
    if (!text.value) {
      report(mark, ErrorCode::kConfigBadValue, text.trouble);
      node.text = value;
    } else {
      node.text = std::move(*text.value);
    }
    node.substituted = node.text != value;
    add(std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    begin_container(ConfigNode::Kind::kList, mark, tag, anchor);
  }
  void OnSequenceEnd() override { end_container(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    begin_container(ConfigNode::Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { end_container(); }

 private:
  // A container under construction and, in a map, the key whose value comes next.
  struct Open {
    ConfigNode node;
    bool has_key = false;
  };

  void report(const YAML::Mark& mark, ErrorCode code, std::string text) {
    tree_.problems.push_back(ConfigProblem{code, mark.line + 1, mark.column + 1, key_path(), std::move(text)});
  }

  // The path of the value being read, as far as it is known: "wan.heartbeat".
  std::string key_path() const {
    std::string path;
    for (const Open& open : stack_) {
      if (open.node.kind == ConfigNode::Kind::kList) {
        path += fmt::format("[{}]", open.node.items.size());
      } else if (open.has_key) {
        path += (path.empty() ? "" : ".") + open.node.entries.back().key;
      }
    }
    return path;
  }

  bool expects_key() const { return !stack_.empty() && stack_.back().node.kind == ConfigNode::Kind::kMap && !stack_.back().has_key; }

  ConfigNode make_node(ConfigNode::Kind kind, const YAML::Mark& mark) {
    if (++nodes_ > kConfigNodesMax) {
      report(mark, ErrorCode::kConfigSyntax, fmt::format("more than {} values in one file", kConfigNodesMax));
      throw StopReading{};
    }
    ConfigNode node;
    node.kind = kind;
    node.line = mark.line + 1;
    node.column = mark.column + 1;
    return node;
  }

  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor == 0) return;
    report(mark, ErrorCode::kConfigSyntax, "anchors (`&name`) are not supported; write the value out where it is needed");
    throw StopReading{};
  }

  // "?" stands for a plain scalar or container without a tag, "!" for a quoted scalar.
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    report(mark, ErrorCode::kConfigSyntax, "tags (`!name`) are not supported");
  }

  // yaml-cpp takes the end of the file for a closing quote, and with it everything in between.
  void refuse_open_quote(const YAML::Mark& mark) {
    if (is_quote_closed(text_.substr(std::min(static_cast<std::size_t>(mark.pos), text_.size())))) return;
    report(mark, ErrorCode::kConfigSyntax, "the closing quote is missing");
    throw StopReading{};
  }

  void begin_entry(const YAML::Mark& mark, const std::string& tag, const std::string& key) {
    Open& open = stack_.back();
    if (key == "<<" && tag != "!") {
      report(mark, ErrorCode::kConfigSyntax, "merge keys (`<<`) are not supported; write the keys out");
      throw StopReading{};
    }
    const auto& entries = open.node.entries;
    const auto first = std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return entry.key == key; });
    const int first_line = first == entries.end() ? 0 : first->line;
    open.node.entries.push_back({key, mark.line + 1, mark.column + 1, {}});
    open.has_key = true;
    if (first_line != 0) report(mark, ErrorCode::kConfigDuplicateKey, fmt::format("the key is already given at line {}", first_line));
  }

  void begin_container(ConfigNode::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (expects_key()) {
      report(mark, ErrorCode::kConfigSyntax, "a key must be a word, not a list or map");
      throw StopReading{};
    }
    if (stack_.size() >= kConfigDepthMax) {
      report(mark, ErrorCode::kConfigSyntax, fmt::format("nested deeper than {} levels", kConfigDepthMax));
      throw StopReading{};
    }
    stack_.push_back({make_node(kind, mark), false});
  }

  void end_container() {
    ConfigNode node = std::move(stack_.back().node);
    stack_.pop_back();
    add(std::move(node));
  }

  void add(ConfigNode node) {
    if (stack_.empty()) {
      tree_.root = std::move(node);
      return;
    }
    Open& open = stack_.back();
    if (open.node.kind == ConfigNode::Kind::kList) {
      open.node.items.push_back(std::move(node));
      return;
    }
    ConfigNode::Entry& entry = open.node.entries.back();
    if (node.kind == ConfigNode::Kind::kNull) {
      node.line = entry.line;  // the mark of an empty value is that of the next token
      node.column = entry.column;
    }
    entry.value = std::move(node);
    open.has_key = false;
  }

  ConfigTree& tree_;
  std::string_view text_;
  const EnvironmentLookup& environment_;
  std::vector<Open> stack_;
  std::size_t nodes_ = 0;
  int documents_ = 0;
};

// Length of the UTF-8 sequence at the front of `text`, 0 when it is malformed (RFC 3629: shortest form, no surrogates, <= U+10FFFF).
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t index) { return index < text.size() ? static_cast<unsigned char>(text[index]) : 0U; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  for (std::size_t index = 1; index < length; ++index) {
    if ((byte(index) & 0xc0U) != 0x80U) return 0;
  }
  const bool overlong = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);
  const bool outside = (lead == 0xed && byte(1) > 0x9f) || (lead == 0xf4 && byte(1) > 0x8f);
  return overlong || outside ? 0 : length;
}

// The first byte that cannot be in a text file, as a problem. yaml-cpp would guess UTF-16 and replace what it cannot read.
std::optional<ConfigProblem> find_bad_character(std::string_view text) {
  int line = 1;
  int column = 1;
  for (std::size_t at = 0; at < text.size();) {
    const unsigned char byte = static_cast<unsigned char>(text[at]);
    const std::size_t length = utf8_length(text.substr(at));
    if (length == 0) return ConfigProblem{ErrorCode::kConfigSyntax, line, column, {}, fmt::format("byte 0x{:02x} is not UTF-8", byte)};
    if ((byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t') || byte == 0x7f) {
      return ConfigProblem{ErrorCode::kConfigSyntax, line, column, {}, fmt::format("control character 0x{:02x}", byte)};
    }
    line += byte == '\n' ? 1 : 0;
    column = byte == '\n' ? 1 : column + 1;
    at += length;
  }
  return std::nullopt;
}

}  // namespace

ConfigTree read_config_tree(std::string_view text, const EnvironmentLookup& environment) {
  ConfigTree tree;
  if (text.size() > kConfigBytesMax) {
    tree.problems.push_back(
        {ErrorCode::kConfigSyntax, 0, 0, {}, fmt::format("{} bytes, at most {} are read", text.size(), kConfigBytesMax)});
    return tree;
  }
  if (auto bad = find_bad_character(text)) {
    tree.problems.push_back(std::move(*bad));
    return tree;
  }
  if (text.substr(0, 3) == "\xef\xbb\xbf") text.remove_prefix(3);  // a byte order mark; positions count from behind it
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    TreeBuilder builder(tree, text, environment);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const StopReading&) {
    tree.root.reset();
  } catch (const YAML::Exception& exception) {
    tree.root.reset();
    tree.problems.push_back({ErrorCode::kConfigSyntax, exception.mark.line + 1, exception.mark.column + 1, {}, exception.msg});
  }
  if (tree.problems.empty() && (!tree.root || tree.root->kind != ConfigNode::Kind::kMap)) {
    tree.root.reset();
    tree.problems.push_back({ErrorCode::kConfigSyntax, 1, 1, {}, "a map of keys is expected; the first one is `version: 1`"});
  }
  return tree;
}

}  // namespace sluice::gateway
