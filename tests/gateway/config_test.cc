// Goal: a configuration file is either understood exactly or refused with its line and a suggestion.
// Method: one complete small file, parsed and checked field by field; then the same file with one edit a case.

#include "gateway/config.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::gateway {
namespace {

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

}  // namespace
}  // namespace sluice::gateway
