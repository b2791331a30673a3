// Goal: what we ship in configs/ is good: for the loader, for an editor with the schema, and for the reader of the reference page.
// Method: parse each file; turn each into JSON as it is written and have an independent validator (python3-jsonschema) compare it with
// the schema, and some of the broken files too, which it must refuse; compare the keys of schema and docs/reference/config.md.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "gateway/config.h"
#include "gateway/internal/config_scalar.h"
#include "gateway/internal/config_tree.h"

namespace sluice::gateway {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kSource = SLUICE_SOURCE_DIR;

std::string read_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream) << path;
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<fs::path> yaml_files(const fs::path& directory) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// As an editor sees it: plain scalars by the rules of YAML 1.2, ${...} left alone.
json to_json(const ConfigNode& node) {
  if (node.kind == ConfigNode::Kind::kNull) return nullptr;
  if (node.kind == ConfigNode::Kind::kMap) {
    json object = json::object();
    for (const auto& entry : node.entries) object[entry.key] = to_json(entry.value);
    return object;
  }
  if (node.kind == ConfigNode::Kind::kList) {
    json list = json::array();
    for (const auto& item : node.items) list.push_back(to_json(item));
    return list;
  }
  if (node.quoted) return node.text;
  if (const auto number = parse_strict_integer(node.text); number.value) return *number.value;
  if (const auto number = parse_strict_real(node.text); number.value) return *number.value;
  if (const auto truth = parse_strict_bool(node.text); truth.value) return *truth.value;
  return node.text;
}

std::string literal_json(const std::string& text) {
  const ConfigTree tree = read_config_tree(text, nullptr);
  return tree.root ? to_json(*tree.root).dump() : std::string();
}

// Runs tests/gateway/validate_schema.py on documents, one a line of its input file; its exit status.
int run_validator(const std::string& verb, const std::vector<std::string>& documents) {
  const fs::path input = fs::temp_directory_path() / fmt::format("sluice-schema-{}-{}.jsonl", ::getpid(), verb);
  std::ofstream stream(input);
  for (const std::string& document : documents) stream << document << "\n";
  stream.close();
  const std::string command = fmt::format("'{}' '{}' {} '{}' '{}'", SLUICE_PYTHON, (kSource / "tests/gateway/validate_schema.py").native(),
                                          verb, (kSource / "configs/sluice.schema.json").native(), input.native());
  const int status = std::system(command.c_str());
  fs::remove(input);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

constexpr int kSkipped = 77;

TEST(ConfigExamples, EachIsAcceptedAsItIs) {
  const auto files = yaml_files(kSource / "configs");
  EXPECT_GE(files.size(), 4U);
  for (const fs::path& file : files) {
    const auto config = parse_config(read_file(file), file);
    EXPECT_TRUE(config) << config.error().to_string();
    EXPECT_THAT(read_file(file), testing::StartsWith("# yaml-language-server: $schema=sluice.schema.json\n")) << file;
  }
}

TEST(ConfigExamples, TheDemoSitesBelongTogether) {
  std::vector<GatewayConfig> sites;
  for (const char* name : {"us-east", "eu-west", "ap-northeast"}) {
    const fs::path file = kSource / fmt::format("configs/demo-{}.yaml", name);
    auto config = parse_config(read_file(file), file);
    ASSERT_TRUE(config) << config.error().to_string();
    EXPECT_EQ(config->site, name);
    EXPECT_EQ(config->sites[own_site_id(*config).value].address.port, config->wan.listen.port);
    sites.push_back(*config);
  }
  for (const GatewayConfig& site : sites) {
    EXPECT_EQ(shared_digest(site), shared_digest(sites[0])) << describe_shared_difference(shared_settings(sites[0]), shared_settings(site));
    for (std::size_t peer = 0; peer < sites.size(); ++peer) EXPECT_EQ(site.sites[peer].address, sites[0].sites[peer].address);
  }
}

TEST(ConfigExamples, TheProductionExampleWritesOutEveryKey) {
  const json schema = json::parse(config_schema());
  const fs::path file = kSource / "configs/production-example.yaml";
  const std::string text = read_file(file);
  const json written = json::parse(literal_json(text));
  for (const auto& [section, form] : schema["properties"].items()) {
    EXPECT_TRUE(written.contains(section)) << section;
    if (!form.contains("properties")) continue;
    for (const auto& [key, ignored] : form["properties"].items()) {
      if (section == "coordination" && key == "endpoints") continue;  // reserved
      EXPECT_TRUE(written[section].contains(key)) << section << "." << key;
    }
  }
}

TEST(ConfigSchema, TheFileIsWhatTheProgramPrints) {
  EXPECT_EQ(read_file(kSource / "configs/sluice.schema.json"), config_schema()) << "run: sluice config schema > configs/sluice.schema.json";
}

TEST(ConfigSchema, AnIndependentValidatorAcceptsTheExamples) {
  std::vector<std::string> documents;
  for (const fs::path& file : yaml_files(kSource / "configs")) {
    documents.push_back(literal_json(read_file(file)));
    documents.push_back(json::parse(config_to_json(*parse_config(read_file(file), file))).dump());
  }
  const int status = run_validator("valid", documents);
  if (status == kSkipped) GTEST_SKIP() << "python3-jsonschema is not installed";
  EXPECT_EQ(status, 0);
}

TEST(ConfigSchema, AnIndependentValidatorRefusesSlips) {
  std::vector<std::string> documents;
  for (const fs::path& file : yaml_files(kSource / "tests/testdata/broken_config")) {
    const std::string name = file.stem().string();
    const auto begins = [&](std::string_view prefix) { return name.compare(0, prefix.size(), prefix) == 0; };
    if (begins("unknown_") || begins("size_without") || begins("rate_") || begins("duration_wrong") || begins("missing_key") ||
        begins("empty_")) {
      documents.push_back(literal_json(read_file(file)));
    }
  }
  EXPECT_GE(documents.size(), 10U);
  const int status = run_validator("invalid", documents);
  if (status == kSkipped) GTEST_SKIP() << "python3-jsonschema is not installed";
  EXPECT_EQ(status, 0);
}

// "round.deadline" -> its default as the reference page shows it; "sites[].name" for keys of list elements.
void collect_keys(const json& form, const std::string& path, std::map<std::string, std::string>& keys) {
  if (form.contains("properties")) {
    for (const auto& [key, child] : form["properties"].items()) collect_keys(child, path.empty() ? key : path + "." + key, keys);
  } else if (form.contains("items") && form["items"].contains("properties")) {
    collect_keys(form["items"], path + "[]", keys);
  } else {
    const json fallback = form.value("default", json());
    keys[path] = fallback.is_string() ? fallback.get<std::string>() : fallback.is_null() ? "" : fallback.dump();
  }
}

// Rows "| `key` | `default` | ..." of the reference page.
std::map<std::string, std::string> documented_keys() {
  std::map<std::string, std::string> keys;
  std::istringstream page(read_file(kSource / "docs/reference/config.md"));
  for (std::string line; std::getline(page, line);) {
    if (line.compare(0, 3, "| `") != 0) continue;
    const std::size_t end = line.find('`', 3);
    std::string fallback = line.substr(line.find('|', end) + 2);
    fallback = fallback.substr(0, fallback.find(" |"));
    if (fallback.size() >= 2 && fallback.front() == '`')
      fallback = fallback.substr(1, fallback.size() - 2);
    else
      fallback.clear();  // "required", "a majority": words, not a value
    keys[line.substr(3, end - 3)] = fallback;
  }
  return keys;
}

TEST(ConfigReference, DescribesExactlyTheKeysOfTheSchemaWithTheirDefaults) {
  std::map<std::string, std::string> keys;
  collect_keys(json::parse(config_schema()), "", keys);
  EXPECT_GT(keys.size(), 50U);
  EXPECT_EQ(documented_keys(), keys);
}

}  // namespace
}  // namespace sluice::gateway
