#include "gateway/internal/config_writer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "gateway/internal/config_fields.h"
#include "gateway/internal/config_scalar.h"

namespace sluice::gateway {
namespace {

using Json = nlohmann::ordered_json;

// Builds JSON of the shape of the file. Values keep the file's spelling ("30 s"), so that the schema holds for them too.
class JsonWriter : public FieldVisitor {
 public:
  explicit JsonWriter(Json& root) { open_.push_back(&root); }

  bool begin_section(const Field& field) override {
    Json& section = at(field) = Json::object();
    open_.push_back(&section);
    return true;
  }
  void end_section() override { open_.pop_back(); }
  void list(const Field& field, const ListAccess& access) override {
    Json& list = at(field) = Json::array();
    for (std::size_t index = 0; index < access.size(); ++index) {
      Json item = Json::object();
      open_.push_back(&item);
      access.visit(index);
      open_.pop_back();
      list.push_back(std::move(item));
    }
  }
  void boolean(const Field& field, bool& value) override { at(field) = value; }
  void integer(const Field& field, std::uint64_t& value, Range<std::uint64_t>) override { at(field) = value; }
  void real(const Field& field, double& value, Range<double>) override { at(field) = value; }
  void duration(const Field& field, std::chrono::milliseconds& value, Range<std::chrono::milliseconds>) override {
    at(field) = format_duration(value);
  }
  void size(const Field& field, Bytes& value, Range<Bytes>) override { at(field) = format_size(value); }
  void rate(const Field& field, BitsPerSecond& value, Range<BitsPerSecond>) override {
    if (value.value > 0.0) at(field) = format_rate(value);
  }
  void name(const Field& field, std::string& value, NameKind) override { at(field) = value; }
  void path(const Field& field, std::filesystem::path& value) override {
    if (!value.empty()) at(field) = value.native();
  }
  void endpoint(const Field& field, Endpoint& value, EndpointUse) override { at(field) = value.to_string(); }
  void optional_endpoint(const Field& field, std::optional<Endpoint>& value, EndpointUse) override {
    if (value) at(field) = value->to_string();
  }
  void endpoint_list(const Field& field, std::vector<Endpoint>& value) override {
    for (const Endpoint& endpoint : value) at(field).push_back(endpoint.to_string());
  }
  void endpoint_map(const Field& field, std::map<std::string, Endpoint>& value) override {
    for (const auto& [peer, endpoint] : value) at(field)[peer] = endpoint.to_string();
  }
  void choice(const Field& field, std::size_t& index, std::span<const std::string_view> names) override { at(field) = names[index]; }

 private:
  Json& at(const Field& field) { return (*open_.back())[std::string(field.key)]; }

  std::vector<Json*> open_;
};

Json to_json(const GatewayConfig& config) {
  Json root = Json::object();
  JsonWriter writer(root);
  GatewayConfig copy = config;  // visitors may write, this one does not
  visit_config(writer, copy);
  return root;
}

void flatten(const Json& json, const std::string& path, std::vector<Setting>& settings) {
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) flatten(value, path.empty() ? key : path + "." + key, settings);
  } else if (json.is_array()) {
    for (std::size_t index = 0; index < json.size(); ++index) flatten(json[index], fmt::format("{}[{}]", path, index), settings);
  } else {
    settings.push_back({path, json.is_string() ? json.get<std::string>() : json.dump()});
  }
}

}  // namespace

std::vector<Setting> list_settings(const GatewayConfig& config) {
  std::vector<Setting> settings;
  flatten(to_json(config), "", settings);
  return settings;
}

std::string config_to_json(const GatewayConfig& config) { return to_json(config).dump(2) + "\n"; }

}  // namespace sluice::gateway
