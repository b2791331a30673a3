#pragma once

// The one list of configuration keys. visit_config walks a GatewayConfig in file order and hands every field to a visitor, with its
// limits and a sentence of help. Reading, `config show`, the JSON schema and the shared settings are visitors, so that they cannot differ.
// Visitors are used by one thread.

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/config.h"

namespace sluice::gateway {

enum class Need : std::uint8_t { kOptional, kRequired };

struct Field {
  std::string_view key;
  std::string_view help;  // one sentence, for the schema
  Need need = Need::kOptional;
};

template <typename T>
struct Range {
  T min;
  T max;
};

enum class EndpointUse : std::uint8_t { kConnect, kListen };  // port 0 (any free one) only makes sense for kListen
enum class NameKind : std::uint8_t { kName, kDomain };

// How a visitor gets at the elements of a list of sections.
struct ListAccess {
  std::size_t max = 0;
  std::function<std::size_t()> size;
  std::function<void()> append;
  std::function<void(std::size_t)> visit;  // visits the fields of one element
};

class FieldVisitor {
 public:
  virtual ~FieldVisitor() = default;

  // false: the section is absent, its fields are not visited and end_section is not called.
  virtual bool begin_section(const Field& field) = 0;
  virtual void end_section() = 0;
  virtual void list(const Field& field, const ListAccess& access) = 0;

  virtual void boolean(const Field& field, bool& value) = 0;
  virtual void integer(const Field& field, std::uint64_t& value, Range<std::uint64_t> range) = 0;
  virtual void real(const Field& field, double& value, Range<double> range) = 0;
  virtual void duration(const Field& field, std::chrono::milliseconds& value, Range<std::chrono::milliseconds> range) = 0;
  virtual void size(const Field& field, Bytes& value, Range<Bytes> range) = 0;
  virtual void rate(const Field& field, BitsPerSecond& value, Range<BitsPerSecond> range) = 0;
  virtual void name(const Field& field, std::string& value, NameKind kind) = 0;
  virtual void path(const Field& field, std::filesystem::path& value) = 0;
  virtual void endpoint(const Field& field, Endpoint& value, EndpointUse use) = 0;
  virtual void optional_endpoint(const Field& field, std::optional<Endpoint>& value, EndpointUse use) = 0;
  virtual void endpoint_list(const Field& field, std::vector<Endpoint>& value) = 0;
  virtual void endpoint_map(const Field& field, std::map<std::string, Endpoint>& value) = 0;
  virtual void choice(const Field& field, std::size_t& index, std::span<const std::string_view> names) = 0;
};

// REQUIRES: the visitor is between sections. Calls begin_section/end_section in pairs; the top level itself is no section.
void visit_config(FieldVisitor& visitor, GatewayConfig& config);

}  // namespace sluice::gateway
