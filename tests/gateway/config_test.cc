// Goal: a configuration file is either understood exactly or refused with its line and a suggestion.
// Method: one complete small file, parsed and checked field by field; then the same file with one edit a case.

#include "gateway/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gateway/certs.h"

namespace sluice::gateway {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Every required key and nothing else.
std::string minimal_config() {
  return R"(version: 1
run:
  name: demo
  domain: demo.example
site: b
sites:
  - name: a
    address: 127.0.0.1:7401
  - name: b
    address: 127.0.0.1:7402
    dial: {c: "127.0.0.1:7503"}
  - name: c
    address: "[::1]:7403"
coordination:
  store: local
  site: a
tls:
  ca: certs/ca.pem
  certificate: certs/b.pem
  key: certs/b.key
agents:
  socket: run/agents.sock
wan:
  listen: 127.0.0.1:0
state:
  directory: /var/lib/sluice
admin:
  listen: 127.0.0.1:0
)";
}

std::string with_edit(const std::string& from, const std::string& to) {
  std::string text = minimal_config();
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Config, MinimalFileGivesTypedValuesAndDefaults) {
  const auto config = parse_config(minimal_config(), "/etc/sluice/b.yaml");
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_EQ(config->run.name, "demo");
  EXPECT_EQ(config->sites.size(), 3U);
  EXPECT_EQ(config->sites[2].address, (Endpoint{"::1", 7403}));
  EXPECT_EQ(config->tls.key, "/etc/sluice/certs/b.key");
  EXPECT_EQ(config->state.directory, "/var/lib/sluice");
  EXPECT_EQ(config->round.quorum, 2);
  EXPECT_EQ(config->wan.rate_limit.value, 0.0);
  EXPECT_EQ(own_site_id(*config), SiteId(1));
  EXPECT_EQ(dial_endpoint(*config, SiteId(0)), (Endpoint{"127.0.0.1", 7401}));
  EXPECT_EQ(dial_endpoint(*config, SiteId(2)), (Endpoint{"127.0.0.1", 7503}));
  EXPECT_EQ(all_sites(*config).size(), 3);
}

TEST(Config, SlipOfTheFingersGetsASuggestionAndItsPlace) {
  const auto config = parse_config(with_edit("socket: run", "sockt: run"), "b.yaml");
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, ErrorCode::kConfigMissingKey);
  const auto outcome = examine_config(with_edit("socket: run", "sockt: run"), "b.yaml", FileChecks::kSkip);
  ASSERT_EQ(outcome.problems.size(), 2U);
  EXPECT_EQ(outcome.problems[1].to_string("b.yaml"), "b.yaml:22:3: agents.sockt: unknown key; did you mean `socket`?");
}

TEST(Config, AllProblemsAreListedInTheOrderOfTheirLines) {
  std::string text = with_edit("name: demo", "name: Demo");
  text += "log: {level: loud, format: xml}\nextra: 1\n";
  const auto outcome = examine_config(text, "b.yaml", FileChecks::kSkip);
  ASSERT_EQ(outcome.problems.size(), 4U);
  EXPECT_EQ(outcome.problems[0].path, "run.name");
  EXPECT_EQ(outcome.problems[1].path, "log.level");
  EXPECT_EQ(outcome.problems[2].path, "log.format");
  EXPECT_EQ(outcome.problems[3].path, "extra");
  const auto config = parse_config(text, "b.yaml");
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().detail, HasSubstr("(and 3 more; `sluice config check` lists all)"));
}

TEST(Config, ManyProblemsAreCapped) {
  std::string text = minimal_config();
  for (int index = 0; index < 1000; ++index) text += fmt::format("zebra{}: 1\n", index);
  EXPECT_EQ(examine_config(text, "b.yaml", FileChecks::kSkip).problems.size(), 50U);
}

TEST(Config, SizeAndNumberOfValuesAreLimited) {
  const std::string padding = "# " + std::string(1024 * 1024, 'x') + "\n";
  const auto large = parse_config(minimal_config() + padding, "b.yaml");
  ASSERT_FALSE(large);
  EXPECT_THAT(large.error().detail, HasSubstr("at most 1048576 are read"));
  std::string many = minimal_config() + "log: [";
  for (int index = 0; index < 20'000; ++index) many += "1,";
  const auto crowded = parse_config(many + "1]\n", "b.yaml");
  ASSERT_FALSE(crowded);
  EXPECT_THAT(crowded.error().detail, HasSubstr("more than 10000 values"));
  const auto deep = parse_config(minimal_config() + "log: " + std::string(100'000, '['), "b.yaml");
  ASSERT_FALSE(deep);
  EXPECT_EQ(deep.error().code, ErrorCode::kConfigSyntax);
}

class Environment : public testing::Test {
 protected:
  ~Environment() override { ::unsetenv("SLUICE_TEST_VALUE"); }
  static void set(const char* value) { ::setenv("SLUICE_TEST_VALUE", value, 1); }
};

TEST_F(Environment, FillsInValues) {
  set("7499");
  const auto config = parse_config(with_edit("listen: 127.0.0.1:0\nstate", "listen: 127.0.0.1:${SLUICE_TEST_VALUE}\nstate"), "b.yaml");
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_EQ(config->wan.listen.port, 7499);
}

TEST_F(Environment, DefaultIsTakenWhenUnsetOrEmpty) {
  const std::string text = with_edit("name: demo", "name: ${SLUICE_TEST_VALUE:-fallback}");
  EXPECT_EQ(parse_config(text, "b.yaml")->run.name, "fallback");
  set("");
  EXPECT_EQ(parse_config(text, "b.yaml")->run.name, "fallback");
  set("given");
  EXPECT_EQ(parse_config(text, "b.yaml")->run.name, "given");
}

TEST_F(Environment, NumbersInAFlowMapMayBeQuotedForIt) {
  const auto config = parse_config(minimal_config() + "compression: {bits: \"${SLUICE_TEST_VALUE:-2.5}\"}\n", "b.yaml");
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_EQ(config->compression.bits, 2.5);
}

TEST_F(Environment, CannotAddKeysOrLines) {
  set("demo\nsite: c");
  const std::string text = with_edit("name: demo", "name: ${SLUICE_TEST_VALUE}");
  const auto lines = parse_config(text, "b.yaml");
  ASSERT_FALSE(lines);
  EXPECT_THAT(lines.error().detail, HasSubstr("holds a control character"));
  set("{a: b}");
  EXPECT_FALSE(parse_config(text, "b.yaml"));
  set("${HOME}");
  EXPECT_FALSE(parse_config(text, "b.yaml")) << "a value is not expanded again";
}

TEST_F(Environment, DollarBraceCanBeWrittenLiterally) {
  const auto config = parse_config(with_edit("/var/lib/sluice", "/var/$${lib}"), "b.yaml");
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_EQ(config->state.directory, "/var/${lib}");
}

TEST(Config, QuorumOfHalfTheSitesIsAllowedWhenSaidSo) {
  EXPECT_FALSE(parse_config(minimal_config() + "round: {quorum: 1}\n", "b.yaml"));
  const auto config = parse_config(minimal_config() + "round: {quorum: 1, quorum_override: true}\n", "b.yaml");
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_EQ(config->round.quorum, 1);
}

TEST(Config, EffectiveConfigurationIsItselfAValidFile) {
  const auto config = parse_config(minimal_config() + "wan_extra: 1\n", "b.yaml");
  EXPECT_FALSE(config);
  const auto good = parse_config(minimal_config(), "/etc/b.yaml");
  ASSERT_TRUE(good);
  const std::string json = config_to_json(*good);
  const auto again = parse_config(json, "/elsewhere/b.json");  // JSON is YAML
  ASSERT_TRUE(again) << again.error().to_string() << json;
  EXPECT_EQ(config_to_json(*again), json);
  EXPECT_EQ(shared_digest(*again), shared_digest(*good));
}

TEST(ConfigShared, DigestCoversWhatSitesMustShareAndNothingElse) {
  const auto base = parse_config(minimal_config(), "b.yaml");
  ASSERT_TRUE(base);
  const std::uint64_t digest = shared_digest(*base);
  const std::vector<std::string> own_matters{"limits: {memory: 1 GiB}\n", "log: {level: debug}\n"};
  for (const std::string& edit : own_matters) EXPECT_EQ(shared_digest(*parse_config(minimal_config() + edit, "b.yaml")), digest) << edit;
  EXPECT_EQ(shared_digest(*parse_config(with_edit("site: b\n", "site: c\n"), "c.yaml")), digest);
  EXPECT_EQ(shared_digest(*parse_config(with_edit("127.0.0.1:7401", "10.0.0.9:7401"), "b.yaml")), digest);
  EXPECT_EQ(shared_digest(*parse_config(minimal_config() + "round: {quorum: 2}\n", "b.yaml")), digest) << "a default written out";
  const std::vector<std::string> shared{"round: {deadline: 59 s}\n", "training: {inner_steps: 21}\n", "compression: {bits: 2.9}\n",
                                        "training: {outer: {momentum: 0.8}}\n"};
  for (const std::string& edit : shared) EXPECT_NE(shared_digest(*parse_config(minimal_config() + edit, "b.yaml")), digest) << edit;
  EXPECT_NE(shared_digest(*parse_config(with_edit("name: demo", "name: demo2"), "b.yaml")), digest);
  EXPECT_NE(shared_digest(*parse_config(with_edit("  site: a\n", "  site: c\n"), "b.yaml")), digest);
}

TEST(ConfigShared, DifferenceNamesKeyAndBothValues) {
  const auto here = parse_config(minimal_config(), "b.yaml");
  const auto there = parse_config(minimal_config() + "round: {deadline: 90 s}\ncompression: {mode: fixed}\n", "b.yaml");
  ASSERT_TRUE(here && there);
  EXPECT_EQ(describe_shared_difference(shared_settings(*here), shared_settings(*here)), "");
  EXPECT_EQ(describe_shared_difference(shared_settings(*here), shared_settings(*there)),
            "compression.mode: `auto` here, `fixed` there; round.deadline: `1 min` here, `90 s` there");
}

TEST(ConfigShared, HostileTextIsCappedAndEscaped) {
  std::string hostile = "run.name = \x1b[31mred\n";
  for (int index = 0; index < 100'000; ++index) hostile += fmt::format("key{} = value\n", index);
  hostile += std::string(1'000'000, 'x');
  const auto here = parse_config(minimal_config(), "b.yaml");
  ASSERT_TRUE(here);
  const std::string difference = describe_shared_difference(shared_settings(*here), hostile);
  EXPECT_LT(difference.size(), 2000U);
  EXPECT_EQ(difference.find('\x1b'), std::string::npos);
  EXPECT_THAT(difference, HasSubstr("more"));
}

// A directory with certificates and a configuration file, removed at the end.
// The residual was carried whole in sparse rounds as well.
TEST(Config, SparseRoundsCarryLessOfTheResidual) {
  const auto share_with = [](const std::string& settings) {
    const auto config = parse_config(minimal_config() + settings, "b.yaml");
    EXPECT_TRUE(config) << config.error().to_string();
    return config ? residual_share(*config) : -1.0;
  };
  const std::string average = "training: {outer: {rule: average}}\n";
  EXPECT_EQ(share_with(""), 1.0);
  EXPECT_EQ(share_with("compression: {min_bits: 0.3}\n"), 1.0) << "outer momentum: dense";
  EXPECT_EQ(share_with("compression: {min_bits: 0.3}\n" + average), 0.95);
  EXPECT_EQ(share_with("compression: {regime: sparse}\n" + average), 0.95);
  EXPECT_EQ(share_with("compression: {mode: fixed, bits: 0.5}\n" + average), 0.95);
  EXPECT_EQ(share_with("compression: {mode: fixed, bits: 2}\n" + average), 1.0);
  EXPECT_EQ(share_with("compression: {error_feedback: 0.5}\n"), 0.5);
  EXPECT_EQ(share_with("compression: {error_feedback: 0}\n"), 0.0);
}

class ConfigFiles : public testing::Test {
 protected:
  ConfigFiles() {
    std::string pattern = (fs::temp_directory_path() / "sluice-config-XXXXXX").native();
    directory_ = ::mkdtemp(pattern.data());
    CertificateRun run{"demo", "demo.example", {"a", "b"}};
    EXPECT_TRUE(write_certificates(directory_ / "certs", run, std::chrono::system_clock::now()));
    write("b.yaml", with_edit("certs/b.pem", "certs/site-b.pem")
                        .replace(with_edit("certs/b.pem", "certs/site-b.pem").find("certs/b.key"), 11, "certs/site-b.key"));
  }
  ~ConfigFiles() override { fs::remove_all(directory_); }

  void write(const std::string& name, const std::string& text) const { std::ofstream(directory_ / name) << text; }
  std::string first_error(const std::string& name = "b.yaml") const {
    const auto config = load_config(directory_ / name);
    return config ? std::string() : config.error().to_string();
  }

  fs::path directory_;
};

TEST_F(ConfigFiles, GoodOnesAreLoaded) { EXPECT_EQ(first_error(), ""); }

TEST_F(ConfigFiles, KeyThatOthersCanReadIsRefused) {
  fs::permissions(directory_ / "certs/site-b.key", fs::perms(0640));
  EXPECT_THAT(first_error(), HasSubstr("b.yaml:20:3: tls.key: "));
  EXPECT_THAT(first_error(), HasSubstr("can be read by others (mode 640); run chmod 600 on it"));
}

TEST_F(ConfigFiles, CertificateOfAnotherSiteIsRefused) {
  fs::copy_file(directory_ / "certs/site-a.pem", directory_ / "certs/site-b.pem", fs::copy_options::overwrite_existing);
  fs::copy_file(directory_ / "certs/site-a.key", directory_ / "certs/site-b.key", fs::copy_options::overwrite_existing);
  EXPECT_THAT(first_error(), HasSubstr("is of spiffe://demo.example/site/a, and this is spiffe://demo.example/site/b"));
}

TEST_F(ConfigFiles, KeyOfAnotherCertificateIsRefused) {
  fs::copy_file(directory_ / "certs/site-a.key", directory_ / "certs/site-b.key", fs::copy_options::overwrite_existing);
  EXPECT_THAT(first_error(), HasSubstr("b.yaml:17:1: tls: "));
}

TEST_F(ConfigFiles, MissingFilesAreNamedTogether) {
  fs::remove(directory_ / "certs/ca.pem");
  fs::remove(directory_ / "certs/site-b.key");
  const auto outcome = examine_config_file(directory_ / "b.yaml", FileChecks::kTlsFiles);
  ASSERT_TRUE(outcome);
  ASSERT_EQ(outcome->problems.size(), 2U);
  EXPECT_THAT(outcome->problems[0].text, HasSubstr("certs/ca.pem: No such file"));
  EXPECT_THAT(outcome->problems[1].text, HasSubstr("certs/site-b.key: No such file"));
}

TEST_F(ConfigFiles, WhatIsNoFileIsRefused) {
  EXPECT_THAT(first_error("absent.yaml"), HasSubstr("[kConfigUnreadable 207]"));
  EXPECT_THAT(load_config(directory_).error().detail, HasSubstr("not a file"));
  write("empty.yaml", "");
  EXPECT_THAT(first_error("empty.yaml"), HasSubstr("a map of keys is expected"));
}

}  // namespace
}  // namespace sluice::gateway
