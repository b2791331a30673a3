// The JSON schema of the configuration file, from the same list of fields that reads it. Draft-07, which is the newest that editors'
// YAML servers understand. A schema cannot say everything that the loader checks: that takes `sluice config check`.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "gateway/config.h"
#include "gateway/internal/config_fields.h"
#include "gateway/internal/config_scalar.h"

namespace sluice::gateway {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kNamePattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$";
constexpr std::string_view kDomainPattern = "^[a-z0-9._-]{1,255}$";
constexpr std::string_view kEndpointPattern = R"(^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):[0-9]{1,5}$)";
constexpr std::string_view kEnvironmentPattern = R"(\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\})";

// A number and one of the units, as parse_duration and its like read them.
std::string quantity_pattern(std::string_view units) { return fmt::format(R"(^(0|[1-9][0-9]*)(\.[0-9]+)? *({})$)", units); }

// The description with the range, which a pattern cannot hold.
std::string with_range(std::string_view help, const std::string& min, const std::string& max) {
  return fmt::format("{} From {} to {}.", help, min, max);
}

class SchemaWriter : public FieldVisitor {
 public:
  explicit SchemaWriter(Json& root) { open_section(root); }

  bool begin_section(const Field& field) override {
    Json& section = declare(field);
    section["type"] = "object";
    open_section(section);
    return true;
  }
  void end_section() override { open_.pop_back(); }

  void list(const Field& field, const ListAccess& access) override {
    Json& list = declare(field);
    list["type"] = "array";
    list["minItems"] = 2;
    list["maxItems"] = access.max;
    Json item = Json::object();
    item["type"] = "object";
    open_section(item);
    access.append();
    access.visit(0);
    open_.pop_back();
    list["items"] = std::move(item);
  }

  void boolean(const Field& field, bool& value) override { scalar(field, {{"type", "boolean"}}, value); }
  void integer(const Field& field, std::uint64_t& value, Range<std::uint64_t> range) override {
    const bool has_default = value >= range.min;
    scalar(field, {{"type", "integer"}, {"minimum", range.min}, {"maximum", range.max}}, has_default ? Json(value) : Json());
  }
  void real(const Field& field, double& value, Range<double> range) override {
    scalar(field, {{"type", "number"}, {"minimum", range.min}, {"maximum", range.max}}, value);
  }
  void duration(const Field& field, std::chrono::milliseconds& value, Range<std::chrono::milliseconds> range) override {
    quantity(field, "ms|s|min|h", format_duration(value), format_duration(range.min), format_duration(range.max));
  }
  void size(const Field& field, Bytes& value, Range<Bytes> range) override {
    quantity(field, "B|KiB|MiB|GiB", format_size(value), format_size(range.min), format_size(range.max));
  }
  void rate(const Field& field, BitsPerSecond& value, Range<BitsPerSecond> range) override {
    const Json fallback = value.value > 0.0 ? Json(format_rate(value)) : Json();
    quantity(field, "bit/s|kbit/s|Mbit/s|Gbit/s", fallback, format_rate(range.min), format_rate(range.max));
  }
  void name(const Field& field, std::string&, NameKind kind) override {
    scalar(field, pattern(kind == NameKind::kName ? kNamePattern : kDomainPattern), {});
  }
  void path(const Field& field, std::filesystem::path&) override {
    Json& text = declare(field);
    text["type"] = "string";
    text["minLength"] = 1;
  }
  void endpoint(const Field& field, Endpoint&, EndpointUse) override { scalar(field, pattern(kEndpointPattern), {}); }
  void optional_endpoint(const Field& field, std::optional<Endpoint>&, EndpointUse) override {
    scalar(field, pattern(kEndpointPattern), {});
  }
  void endpoint_list(const Field& field, std::vector<Endpoint>&) override {
    Json& list = declare(field);
    list["type"] = "array";
    list["items"] = or_environment(pattern(kEndpointPattern));
  }
  void endpoint_map(const Field& field, std::map<std::string, Endpoint>&) override {
    Json& map = declare(field);
    map["type"] = "object";
    map["propertyNames"] = pattern(kNamePattern);
    map["additionalProperties"] = or_environment(pattern(kEndpointPattern));
  }
  void choice(const Field& field, std::size_t& index, std::span<const std::string_view> names) override {
    Json values = Json::array();
    for (const std::string_view name : names) values.push_back(name);
    scalar(field, {{"enum", std::move(values)}}, names[index]);
  }

 private:
  static Json pattern(std::string_view text) { return {{"type", "string"}, {"pattern", text}}; }

  // ${NAME} may stand in place of any scalar.
  static Json or_environment(Json form) {
    Json both = Json::object();
    both["anyOf"] = Json::array({std::move(form), {{"$ref", "#/definitions/environment"}}});
    return both;
  }

  void open_section(Json& section) {
    section["additionalProperties"] = false;
    section["required"] = Json::array();
    section["properties"] = Json::object();
    open_.push_back(&section);
  }

  Json& declare(const Field& field) {
    Json& section = *open_.back();
    if (field.need == Need::kRequired) section["required"].push_back(field.key);
    Json& declared = section["properties"][std::string(field.key)];
    declared["description"] = field.help;
    return declared;
  }

  // A default is shown for optional fields only, and only where there is one.
  void scalar(const Field& field, Json form, const Json& fallback) {
    Json& declared = declare(field);
    declared.update(or_environment(std::move(form)));
    if (field.need == Need::kOptional && !fallback.is_null()) declared["default"] = fallback;
  }

  void quantity(const Field& field, std::string_view units, const Json& fallback, const std::string& min, const std::string& max) {
    scalar(field, pattern(quantity_pattern(units)), fallback);
    (*open_.back())["properties"][std::string(field.key)]["description"] = with_range(field.help, min, max);
  }

  std::vector<Json*> open_;
};

}  // namespace

std::string config_schema() {
  Json root = Json::object();
  root["$schema"] = "http://json-schema.org/draft-07/schema#";
  root["title"] = "Sluice gateway configuration";
  root["description"] = "Printed by `sluice config schema`. `sluice config check` also checks what a schema cannot express.";
  root["type"] = "object";
  SchemaWriter writer(root);
  GatewayConfig defaults;
  visit_config(writer, defaults);
  root["definitions"]["environment"] = {{"type", "string"},
                                        {"pattern", kEnvironmentPattern},
                                        {"description", "${NAME} or ${NAME:-default}: the gateway's environment fills it in."}};
  return root.dump(2) + "\n";
}

}  // namespace sluice::gateway
