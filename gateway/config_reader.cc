#include "gateway/internal/config_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gateway/internal/config_scalar.h"

namespace sluice::gateway {
namespace {

std::string_view kind_name(const ConfigNode& node) {
  switch (node.kind) {
    case ConfigNode::Kind::kNull:
      return "nothing";
    case ConfigNode::Kind::kScalar:
      return "a single value";
    case ConfigNode::Kind::kMap:
      return "a map of keys";
    case ConfigNode::Kind::kList:
      return "a list";
  }
  return "something";
}

// Text from the file or environment as it may appear in a message.
std::string shown(std::string_view text) {
  constexpr std::size_t kShownMax = 80;
  std::string result(text.substr(0, kShownMax));
  std::replace_if(
      result.begin(), result.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return text.size() > kShownMax ? result + "..." : result;
}

class ReadingVisitor : public FieldVisitor {
 public:
  ReadingVisitor(ReadOutcome& outcome, const ConfigNode& root, const std::filesystem::path& base) : outcome_(outcome), base_(base) {
    enter(root, "");
  }
  void finish() { leave(); }

  bool begin_section(const Field& field) override {
    const ConfigNode::Entry* entry = find(field);
    if (entry == nullptr || !has_kind(*entry, ConfigNode::Kind::kMap)) return false;
    enter(entry->value, path_of(field.key));
    return true;
  }
  void end_section() override { leave(); }

  void list(const Field& field, const ListAccess& access) override {
    const ConfigNode::Entry* entry = find(field);
    if (entry == nullptr || !has_kind(*entry, ConfigNode::Kind::kList)) return;
    const std::string path = path_of(field.key);
    if (entry->value.items.size() > access.max) {
      return report(ErrorCode::kConfigBadValue, *entry, path, fmt::format("{} entries; at most {}", entry->value.items.size(), access.max));
    }
    for (std::size_t index = 0; index < entry->value.items.size(); ++index) {
      const ConfigNode& item = entry->value.items[index];
      const std::string item_path = fmt::format("{}[{}]", path, index);
      outcome_.positions[item_path] = {item.line, item.column};
      access.append();
      if (item.kind != ConfigNode::Kind::kMap) {
        report(ErrorCode::kConfigBadValue, item, item_path, fmt::format("found {}, expected a map of keys", kind_name(item)));
        continue;
      }
      enter(item, item_path);
      access.visit(index);
      leave();
    }
  }

  void boolean(const Field& field, bool& value) override {
    read(
        field, value, "true or false", [](std::string_view text) { return parse_strict_bool(text); }, kAnyValue<bool>);
  }
  void integer(const Field& field, std::uint64_t& value, Range<std::uint64_t> range) override {
    const std::string expected =
        range.min == range.max ? fmt::format("{}", range.min) : fmt::format("a whole number {} to {}", range.min, range.max);
    auto wide = static_cast<std::int64_t>(value);
    read(field, wide, expected, parse_strict_integer,
         [&](std::int64_t number) { return number >= 0 && in_range(std::uint64_t(number), range); });
    value = static_cast<std::uint64_t>(wide);
  }
  void real(const Field& field, double& value, Range<double> range) override {
    read(field, value, fmt::format("a number {} to {}", range.min, range.max), parse_strict_real,
         [&](double number) { return in_range(number, range); });
  }
  void duration(const Field& field, std::chrono::milliseconds& value, Range<std::chrono::milliseconds> range) override {
    read_quantity(field, value, fmt::format("a duration {} to {}, as `30 s`", format_duration(range.min), format_duration(range.max)),
                  parse_duration, [&](std::chrono::milliseconds parsed) { return in_range(parsed, range); });
  }
  void size(const Field& field, Bytes& value, Range<Bytes> range) override {
    read_quantity(field, value, fmt::format("a size {} to {}, as `64 MiB`", format_size(range.min), format_size(range.max)), parse_size,
                  [&](Bytes parsed) { return in_range(parsed, range); });
  }
  void rate(const Field& field, BitsPerSecond& value, Range<BitsPerSecond> range) override {
    read_quantity(field, value, fmt::format("a rate {} to {}, as `200 Mbit/s`", format_rate(range.min), format_rate(range.max)), parse_rate,
                  [&](BitsPerSecond parsed) { return in_range(parsed, range); });
  }
  void name(const Field& field, std::string& value, NameKind kind) override {
    if (kind == NameKind::kName) return read_text(field, value, "a name such as `eu-west`", parse_name);
    read_text(field, value, "a domain such as `train.example.org`", parse_domain);
  }
  void path(const Field& field, std::filesystem::path& value) override {
    std::string text;
    read_text(field, text, "a path", [](std::string_view given) {
      return given.empty() ? Parsed<std::string>::bad("empty") : Parsed<std::string>::good(std::string(given));
    });
    if (!text.empty()) value = (base_ / text).lexically_normal();
  }
  void endpoint(const Field& field, Endpoint& value, EndpointUse use) override {
    read_text(field, value, expected_endpoint(use), [use](std::string_view text) { return parse_endpoint_for(text, use); });
  }
  void optional_endpoint(const Field& field, std::optional<Endpoint>& value, EndpointUse use) override {
    if (!has(field.key)) return mark_known(field);
    endpoint(field, value.emplace(), use);
  }
  void endpoint_list(const Field& field, std::vector<Endpoint>& value) override {
    const ConfigNode::Entry* entry = find(field);
    if (entry == nullptr || !has_kind(*entry, ConfigNode::Kind::kList)) return;
    for (std::size_t index = 0; index < entry->value.items.size(); ++index) {
      const std::string path = fmt::format("{}[{}]", path_of(field.key), index);
      read_endpoint(entry->value.items[index], path, value.emplace_back());
    }
  }
  void endpoint_map(const Field& field, std::map<std::string, Endpoint>& value) override {
    const ConfigNode::Entry* entry = find(field);
    if (entry == nullptr || !has_kind(*entry, ConfigNode::Kind::kMap)) return;
    for (const ConfigNode::Entry& peer : entry->value.entries) {
      const std::string path = fmt::format("{}.{}", path_of(field.key), peer.key);
      outcome_.positions[path] = {peer.line, peer.column};
      read_endpoint(peer.value, path, value[peer.key]);
    }
  }
  void choice(const Field& field, std::size_t& index, std::span<const std::string_view> names) override {
    const std::vector<std::string> known(names.begin(), names.end());
    read_text(field, index, fmt::format("{}", fmt::join(names, " or ")), [&](std::string_view text) {
      const auto found = std::find(known.begin(), known.end(), text);
      if (found != known.end()) return Parsed<std::size_t>::good(static_cast<std::size_t>(found - known.begin()));
      const auto near = nearest_word(text, known);
      return Parsed<std::size_t>::bad(near ? fmt::format("unknown; did you mean `{}`?", *near) : std::string("unknown"));
    });
  }

 private:
  struct Section {
    const ConfigNode* node;
    std::string path;
    std::vector<std::string> known;
  };

  template <typename T>
  static constexpr auto kAnyValue = [](const T&) { return true; };

  template <typename T>
  static bool in_range(const T& value, const Range<T>& range) {
    return !(value < range.min) && !(range.max < value);
  }

  void enter(const ConfigNode& node, std::string path) { sections_.push_back({&node, std::move(path), {}}); }

  // Whatever the fields did not ask for is unknown.
  void leave() {
    const Section section = std::move(sections_.back());
    sections_.pop_back();
    for (const ConfigNode::Entry& entry : section.node->entries) {
      if (std::find(section.known.begin(), section.known.end(), entry.key) != section.known.end()) continue;
      const auto near = nearest_word(entry.key, section.known);
      const std::string advice =
          near ? fmt::format("did you mean `{}`?", *near) : fmt::format("known here: {}", fmt::join(section.known, ", "));
      const std::string path = section.path.empty() ? shown(entry.key) : section.path + "." + shown(entry.key);
      outcome_.problems.push_back({ErrorCode::kConfigUnknownKey, entry.line, entry.column, path, "unknown key; " + advice});
    }
  }

  std::string path_of(std::string_view key) const {
    const std::string& section = sections_.back().path;
    return section.empty() ? std::string(key) : fmt::format("{}.{}", section, key);
  }

  void mark_known(const Field& field) { sections_.back().known.emplace_back(field.key); }

  bool has(std::string_view key) const {
    const auto& entries = sections_.back().node->entries;
    return std::any_of(entries.begin(), entries.end(), [&](const auto& entry) { return entry.key == key; });
  }

  // The entry of a field; reports a required one that is missing.
  const ConfigNode::Entry* find(const Field& field) {
    mark_known(field);
    const Section& section = sections_.back();
    for (const ConfigNode::Entry& entry : section.node->entries) {
      if (entry.key != field.key) continue;
      outcome_.positions[path_of(field.key)] = {entry.line, entry.column};
      return &entry;
    }
    if (field.need == Need::kRequired) {
      report(ErrorCode::kConfigMissingKey, *section.node, path_of(field.key), fmt::format("the key is missing: {}", field.help));
    }
    return nullptr;
  }

  template <typename Where>
  void report(ErrorCode code, const Where& where, std::string path, std::string text) {
    outcome_.problems.push_back({code, where.line, where.column, std::move(path), std::move(text)});
  }

  bool has_kind(const ConfigNode::Entry& entry, ConfigNode::Kind kind) {
    if (entry.value.kind == kind) return true;
    ConfigNode wanted;
    wanted.kind = kind;
    report(ErrorCode::kConfigBadValue, entry.value, path_of(entry.key),
           fmt::format("found {}, expected {}", kind_name(entry.value), kind_name(wanted)));
    return false;
  }

  // Numbers and booleans: quotes make text of them, except where the environment fills in a flow map.
  template <typename T, typename Parse, typename Accept>
  void read(const Field& field, T& value, const std::string& expected, Parse parse, Accept accept) {
    const ConfigNode::Entry* entry = find(field);
    if (entry == nullptr) return;
    read_node(entry->value, path_of(field.key), value, expected, false, parse, accept);
  }

  // A number with its unit is text in any case.
  template <typename T, typename Parse, typename Accept>
  void read_quantity(const Field& field, T& value, const std::string& expected, Parse parse, Accept accept) {
    const ConfigNode::Entry* entry = find(field);
    if (entry == nullptr) return;
    read_node(entry->value, path_of(field.key), value, expected, true, parse, accept);
  }

  template <typename T, typename Parse>
  void read_text(const Field& field, T& value, const std::string& expected, Parse parse) {
    const ConfigNode::Entry* entry = find(field);
    if (entry == nullptr) return;
    read_node(entry->value, path_of(field.key), value, expected, true, parse, kAnyValue<T>);
  }

  void read_endpoint(const ConfigNode& node, const std::string& path, Endpoint& value) {
    const auto parse = [](std::string_view text) { return parse_endpoint_for(text, EndpointUse::kConnect); };
    read_node(node, path, value, expected_endpoint(EndpointUse::kConnect), true, parse, kAnyValue<Endpoint>);
  }

  template <typename T, typename Parse, typename Accept>
  void read_node(const ConfigNode& node, const std::string& path, T& value, const std::string& expected, bool quotes_allowed, Parse parse,
                 Accept accept) {
    if (node.kind != ConfigNode::Kind::kScalar) {
      return report(ErrorCode::kConfigBadValue, node, path, fmt::format("found {}, expected {}", kind_name(node), expected));
    }
    if (node.quoted && !node.substituted && !quotes_allowed) {
      return report(ErrorCode::kConfigBadValue, node, path,
                    fmt::format("found the quoted text \"{}\", expected {} without quotes", shown(node.text), expected));
    }
    auto parsed = parse(node.text);
    if (!parsed.value) {
      return report(ErrorCode::kConfigBadValue, node, path,
                    fmt::format("found `{}`: {}; expected {}", shown(node.text), parsed.trouble, expected));
    }
    if (!accept(*parsed.value)) {
      return report(ErrorCode::kConfigBadValue, node, path,
                    fmt::format("found `{}`: out of range; expected {}", shown(node.text), expected));
    }
    value = std::move(*parsed.value);
  }

  static std::string expected_endpoint(EndpointUse use) {
    return use == EndpointUse::kListen ? "host:port (port 0: any free one)" : "host:port";
  }

  static Parsed<Endpoint> parse_endpoint_for(std::string_view text, EndpointUse use) {
    Parsed<Endpoint> endpoint = parse_endpoint(text);
    if (endpoint.value && endpoint.value->port == 0 && use == EndpointUse::kConnect) {
      return Parsed<Endpoint>::bad("nobody can connect to port 0");
    }
    return endpoint;
  }

  ReadOutcome& outcome_;
  std::filesystem::path base_;
  std::vector<Section> sections_;
};

}  // namespace

ReadOutcome read_fields(const ConfigNode& root, const std::filesystem::path& base_directory) {
  ReadOutcome outcome;
  ReadingVisitor visitor(outcome, root, base_directory);
  visit_config(visitor, outcome.config);
  visitor.finish();
  return outcome;
}

}  // namespace sluice::gateway
