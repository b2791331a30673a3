// Goal: every way that we know of to get a configuration wrong is refused with its code, its line and a hint.
// Method: each file in testdata/broken_config says in its first line what is expected of it.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "gateway/config.h"

namespace sluice::gateway {
namespace {

namespace fs = std::filesystem;

struct Expectation {
  std::string code;
  int line = 0;
  std::string substring;
};

std::string read_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// # expect: kConfigUnknownKey line 7 "did you mean"
std::optional<Expectation> read_expectation(const std::string& text) {
  static const std::regex pattern("# expect: (k[A-Za-z]+) line ([0-9]+) \"(.*)\"");
  const std::string first = text.substr(0, text.find('\n'));
  std::smatch match;
  if (!std::regex_match(first, match, pattern)) return std::nullopt;
  return Expectation{match[1], std::stoi(match[2]), match[3]};
}

std::vector<fs::path> broken_files() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(fs::path(SLUICE_SOURCE_DIR) / "tests/testdata/broken_config"))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

class BrokenConfig : public testing::TestWithParam<fs::path> {};

TEST_P(BrokenConfig, IsRefusedWithCodeLineAndHint) {
  const std::string text = read_file(GetParam());
  const auto expected = read_expectation(text);
  ASSERT_TRUE(expected) << "the first line says what is expected";
  const ConfigOutcome outcome = examine_config(text, "broken.yaml", FileChecks::kSkip);
  ASSERT_FALSE(outcome.config);
  ASSERT_FALSE(outcome.problems.empty());
  std::string all;
  bool found = false;
  for (const ConfigProblem& problem : outcome.problems) {
    const std::string shown = problem.to_string("broken.yaml");
    all += fmt::format("{} {}\n", error_code_name(problem.code), shown);
    found = found || (error_code_name(problem.code) == expected->code && problem.line == expected->line &&
                      shown.find(expected->substring) != std::string::npos);
  }
  EXPECT_TRUE(found) << "expected " << expected->code << " line " << expected->line << " \"" << expected->substring << "\", got\n" << all;
  EXPECT_LE(outcome.problems.size(), 2U) << "one mistake gives one problem, or two where a key is misspelt and therefore missing\n" << all;
  const auto parsed = parse_config(text, "broken.yaml");
  ASSERT_FALSE(parsed);
  EXPECT_THAT(parsed.error().detail, testing::StartsWith("broken.yaml:"));
}

INSTANTIATE_TEST_SUITE_P(Files, BrokenConfig, testing::ValuesIn(broken_files()),
                         [](const testing::TestParamInfo<fs::path>& file) { return file.param.stem().string(); });

TEST(BrokenConfigs, AreManyAndTheirBaseIsGood) {
  EXPECT_GE(broken_files().size(), 100U);
  // What the broken ones were made from, by undoing one of them.
  std::string text = read_file(fs::path(SLUICE_SOURCE_DIR) / "tests/testdata/broken_config/octal_number.yaml");
  text.replace(text.find("ranks: 010"), 10, "ranks: 2");
  const auto parsed = parse_config(text, "good.yaml");
  EXPECT_TRUE(parsed) << parsed.error().to_string();
}

}  // namespace
}  // namespace sluice::gateway
