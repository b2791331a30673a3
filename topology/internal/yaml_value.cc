// yaml-cpp turns text into events, and these into our values. Its Node interface is not used: it accepts repeated keys and expands aliases.

#include "topology/internal/yaml_value.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <unordered_set>

#include "topology/limits.h"

namespace sluice::topology {
namespace {

// Leaves the parser; caught in parse_yaml.
struct Refusal {
  ErrorCode code;
  std::size_t line;
  std::string text;
};

class ValueBuilder : public YAML::EventHandler {
 public:
  std::vector<YamlValue> take() { return std::move(documents_); }
  [[nodiscard]] std::size_t document_count() const { return documents_.size(); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_.size() >= kYamlDocumentsMax) {
      refuse(mark, ErrorCode::kTopologyTooLarge, fmt::format("more than {} documents", kYamlDocumentsMax));
    }
    has_root_ = false;
  }
  void OnDocumentEnd() override {
    if (!has_root_) documents_.emplace_back();
  }

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    if (expects_key()) refuse(mark, ErrorCode::kTopologySyntax, "an empty key");
    add(make(YamlValue::Kind::kNull, mark));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { refuse(mark, ErrorCode::kTopologySyntax, "aliases are not read"); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    refuse_anchor(mark, anchor);
    if (!tag.empty() && tag != "?" && tag != "!") refuse(mark, ErrorCode::kTopologySyntax, "tags are not read");
    if (expects_key()) return begin_entry(mark, value);
    YamlValue scalar = make(YamlValue::Kind::kScalar, mark);
    scalar.text = value;
    add(std::move(scalar));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    begin(YamlValue::Kind::kList, mark, anchor);
  }
  void OnSequenceEnd() override { end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    begin(YamlValue::Kind::kMap, mark, anchor);
  }
  void OnMapEnd() override { end(); }

 private:
  struct Open {
    YamlValue value;
    bool has_key = false;
    std::unordered_set<std::string> keys = {};
  };

  [[noreturn]] static void refuse(const YAML::Mark& mark, ErrorCode code, std::string text) {
    throw Refusal{code, static_cast<std::size_t>(mark.line) + 1, std::move(text)};
  }
  static void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != 0) refuse(mark, ErrorCode::kTopologySyntax, "anchors are not read");
  }

  [[nodiscard]] bool expects_key() const { return !stack_.empty() && stack_.back().value.is_map() && !stack_.back().has_key; }

  YamlValue make(YamlValue::Kind kind, const YAML::Mark& mark) {
    if (++values_ > kYamlValuesMax) refuse(mark, ErrorCode::kTopologyTooLarge, fmt::format("more than {} values", kYamlValuesMax));
    YamlValue value;
    value.kind = kind;
    value.line = static_cast<std::size_t>(mark.line) + 1;
    return value;
  }

  void begin_entry(const YAML::Mark& mark, const std::string& key) {
    Open& open = stack_.back();
    const bool is_repeated = !open.keys.insert(key).second;
    if (is_repeated) refuse(mark, ErrorCode::kTopologySyntax, fmt::format("the key {} stands there again", key));
    open.value.entries.push_back(YamlEntry{key, YamlValue{}});
    open.has_key = true;
  }

  void begin(YamlValue::Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
    refuse_anchor(mark, anchor);
    if (expects_key()) refuse(mark, ErrorCode::kTopologySyntax, "a key must be a word");
    if (stack_.size() >= kYamlDepthMax) refuse(mark, ErrorCode::kTopologyTooLarge, fmt::format("nested deeper than {}", kYamlDepthMax));
    stack_.push_back({make(kind, mark), false});
  }

  void end() {
    YamlValue value = std::move(stack_.back().value);
    stack_.pop_back();
    add(std::move(value));
  }

  void add(YamlValue value) {
    if (stack_.empty()) {
      documents_.push_back(std::move(value));
      has_root_ = true;
    } else if (stack_.back().value.is_list()) {
      stack_.back().value.items.push_back(std::move(value));
    } else {
      stack_.back().value.entries.back().value = std::move(value);
      stack_.back().has_key = false;
    }
  }

  std::vector<YamlValue> documents_;
  std::vector<Open> stack_;
  std::size_t values_ = 0;
  bool has_root_ = false;
};

std::optional<Refusal> parse_into(std::string_view text, ValueBuilder& builder) {
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const Refusal& refusal) {
    return refusal;
  } catch (const YAML::Exception& error) {
    return Refusal{ErrorCode::kTopologySyntax, static_cast<std::size_t>(std::max(error.mark.line, 0)) + 1, error.msg};
  }
  return std::nullopt;
}

}  // namespace

const YamlValue* YamlValue::find(std::string_view key) const {
  const auto found = std::ranges::find(entries, key, &YamlEntry::key);
  return found == entries.end() ? nullptr : &found->value;
}

std::string_view YamlValue::kind_name() const {
  switch (kind) {
    case Kind::kNull:
      return "nothing";
    case Kind::kScalar:
      return "a single value";
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      return "a map";
  }
  return "";
}

Result<std::vector<YamlValue>> parse_yaml(std::string_view text, const std::string& name) {
  if (text.size() > kYamlBytesMax) {
    return fail(ErrorCode::kTopologyTooLarge, "read " + name, fmt::format("{} bytes of YAML, at most {}", text.size(), kYamlBytesMax));
  }
  // The library guesses other encodings from zero bytes.
  if (text.find('\0') != std::string_view::npos) return fail(ErrorCode::kTopologySyntax, "read " + name, "a zero byte in the text");
  ValueBuilder builder;
  if (auto refusal = parse_into(text, builder)) {
    return fail(refusal->code, "read " + name, fmt::format("line {}: {}", refusal->line, refusal->text));
  }
  return builder.take();
}

}  // namespace sluice::topology
