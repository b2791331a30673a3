// Goal: the metrics follow Prometheus' conventions, say what happened, and are all in docs/reference/metrics.md. Method: the text that a
// scrape would get is read back; promtool judges it where it is installed.

#include "gateway/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "tests/support/temporary_directory.h"

namespace sluice::gateway {
namespace {

constexpr SiteId kFra{1};
constexpr SiteId kNyc{2};

MetricsOptions three_sites() { return {"ams", {"ams", "fra", "nyc"}, "0.1.0"}; }

// Every line "name{labels} value" of a scrape, by its name and labels.
std::map<std::string, double> scrape(const Metrics& metrics) {
  std::map<std::string, double> samples;
  std::istringstream text(metrics.render());
  for (std::string line; std::getline(text, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t space = line.rfind(' ');
    samples[line.substr(0, space)] = std::stod(line.substr(space + 1));
  }
  return samples;
}

// "sluice_rounds_total counter" and so on, of every family.
std::map<std::string, std::string> types_of(const std::string& text) {
  std::map<std::string, std::string> types;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, std::regex("# TYPE (\\S+) (\\S+)"))) types[match[1]] = match[2];
  }
  return types;
}

TEST(Metrics, EverySeriesIsThereAtZeroBeforeItsFirstEvent) {
  const auto samples = scrape(Metrics(three_sites()));
  EXPECT_EQ(samples.at("sluice_rounds_total{site=\"ams\",outcome=\"aborted\"}"), 0.0);
  EXPECT_EQ(samples.at("sluice_rejects_total{site=\"ams\",reason=\"san\"}"), 0.0);
  EXPECT_EQ(samples.at("sluice_link_up{site=\"ams\",peer=\"nyc\"}"), 0.0);
  EXPECT_EQ(samples.at("sluice_build_info{site=\"ams\",version=\"0.1.0\"}"), 1.0);
  EXPECT_FALSE(samples.contains("sluice_link_up{site=\"ams\",peer=\"ams\"}")) << "no link to itself";
}

TEST(Metrics, LinkTotalsAreCountersThatNeverGoBack) {
  Metrics metrics(three_sites());
  metrics.set_link_totals(kFra, {.sent_payload_bytes = 900,
                                 .sent_wire_bytes = 1000,
                                 .received_payload_bytes = 5,
                                 .received_wire_bytes = 7,
                                 .reconnects = 2,
                                 .resent_frames = 3});
  metrics.set_link_totals(kFra, {.sent_payload_bytes = 1900, .sent_wire_bytes = 2050});
  const auto samples = scrape(metrics);
  EXPECT_EQ(samples.at("sluice_wan_sent_bytes_total{site=\"ams\",kind=\"payload\",peer=\"fra\"}"), 1900.0);
  EXPECT_EQ(samples.at("sluice_wan_sent_bytes_total{site=\"ams\",kind=\"overhead\",peer=\"fra\"}"), 150.0);
  EXPECT_EQ(samples.at("sluice_wan_received_bytes_total{site=\"ams\",kind=\"overhead\",peer=\"fra\"}"), 2.0);
  EXPECT_EQ(samples.at("sluice_link_reconnects_total{site=\"ams\",peer=\"fra\"}"), 2.0);
  EXPECT_EQ(samples.at("sluice_wan_sent_bytes_total{site=\"ams\",kind=\"payload\",peer=\"nyc\"}"), 0.0);
}

TEST(Metrics, CountersOfTerabytesKeepEveryByte) {
  Metrics metrics(three_sites());
  const std::uint64_t many = (1ULL << 52) + 3;
  metrics.set_link_totals(kNyc, {.sent_payload_bytes = many, .sent_wire_bytes = many + 1});
  metrics.set_link_totals(kNyc, {.sent_payload_bytes = many + 2, .sent_wire_bytes = many + 4});
  EXPECT_THAT(metrics.render(), testing::HasSubstr("4503599627370501"));
}

TEST(Metrics, ACommittedRoundIsTimedAndAnAbortedOneOnlyCounted) {
  Metrics metrics(three_sites());
  metrics.round_finished(RoundOutcome::kCommitted, 2.0, {0.25, 0.75, 0.5, 0.5}, 3);
  metrics.round_finished(RoundOutcome::kAborted, 60.0, {}, 0);
  const auto samples = scrape(metrics);
  EXPECT_EQ(samples.at("sluice_rounds_total{site=\"ams\",outcome=\"committed\"}"), 1.0);
  EXPECT_EQ(samples.at("sluice_rounds_total{site=\"ams\",outcome=\"aborted\"}"), 1.0);
  EXPECT_EQ(samples.at("sluice_round_duration_seconds_count{site=\"ams\"}"), 1.0);
  EXPECT_EQ(samples.at("sluice_round_duration_seconds_bucket{site=\"ams\",le=\"2.5\"}"), 1.0);
  EXPECT_EQ(samples.at("sluice_round_duration_seconds_bucket{site=\"ams\",le=\"1\"}"), 0.0);
  EXPECT_EQ(samples.at("sluice_round_phase_duration_seconds_sum{site=\"ams\",phase=\"contribute\"}"), 0.75);
  EXPECT_EQ(samples.at("sluice_round_participants{site=\"ams\"}"), 3.0);
}

TEST(Metrics, TheReductionIsTheQuotientOfTwoCounters) {
  Metrics metrics(three_sites());
  metrics.add_raw_bytes(3'000'000);
  metrics.add_raw_bytes(1'000'000);
  metrics.set_link_totals(kFra, {.sent_payload_bytes = 9'000, .sent_wire_bytes = 10'000});
  const auto samples = scrape(metrics);
  double sent = 0.0;
  for (const auto& [name, value] : samples) sent += name.starts_with("sluice_wan_sent_bytes_total") ? value : 0.0;
  EXPECT_EQ(samples.at("sluice_raw_bytes_total{site=\"ams\"}") / sent, 400.0);
}

TEST(Metrics, EveryRejectReasonHasItsOwnLabelAndComesBackFromIt) {
  Metrics metrics(three_sites());
  std::set<std::string_view> names;
  for (std::size_t index = 0; index < kRejectReasonCount; ++index) {
    const auto reason = static_cast<RejectReason>(index);
    metrics.count_reject(reason);
    names.insert(reject_reason_name(reason));
    EXPECT_EQ(reject_reason_from(reject_reason_name(reason)), reason);
  }
  EXPECT_EQ(names.size(), kRejectReasonCount);
  EXPECT_EQ(reject_reason_from("no such reason"), RejectReason::kOther);
  EXPECT_EQ(reject_reason_of(ErrorCode::kFrameHashMismatch), RejectReason::kFrameHash);
  EXPECT_EQ(reject_reason_of(ErrorCode::kInternal), RejectReason::kOther);
  const auto samples = scrape(metrics);
  for (const std::string_view name : names) {
    EXPECT_EQ(samples.at("sluice_rejects_total{site=\"ams\",reason=\"" + std::string(name) + "\"}"), 1.0);
  }
}

TEST(Metrics, NamesFollowTheConventions) {
  const auto types = types_of(Metrics(three_sites()).render());
  EXPECT_GT(types.size(), 25U);
  for (const auto& [name, type] : types) {
    EXPECT_TRUE(name.starts_with("sluice_")) << name;
    EXPECT_EQ(name.ends_with("_total"), type == "counter") << name;
    EXPECT_THAT(name, testing::Not(testing::ContainsRegex("_(milliseconds|ms|us|kb|mb|mib|percent)(_|$)")));
    EXPECT_EQ(name.ends_with("_duration_seconds"), type == "histogram") << name;
  }
}

// Rows are `| `name` | type | labels | meaning |`.
TEST(Metrics, TheReferencePageListsExactlyTheseMetrics) {
  std::ifstream page(SLUICE_SOURCE_DIR "/docs/reference/metrics.md");
  ASSERT_TRUE(page);
  std::map<std::string, std::string> documented;
  for (std::string line; std::getline(page, line);) {
    std::smatch match;
    if (std::regex_search(line, match, std::regex("^\\| `(sluice_[a-z0-9_]+)` \\| (\\w+) \\|"))) documented[match[1]] = match[2];
  }
  EXPECT_EQ(documented, types_of(Metrics(three_sites()).render()));
}

TEST(Metrics, PromtoolFindsNothingToComplainOf) {
  if (std::system("command -v promtool >/dev/null 2>&1") != 0) GTEST_SKIP() << "promtool (package prometheus) is not installed";
  Metrics metrics(three_sites());
  metrics.round_finished(RoundOutcome::kCommitted, 2.0, {0.25, 0.75, 0.5, 0.5}, 3);
  metrics.set_loss(std::numeric_limits<double>::quiet_NaN());
  const test_support::TemporaryDirectory directory;
  const std::string scrape_file = (directory.path() / "scrape").string();
  std::ofstream(scrape_file) << metrics.render();
  const std::string report = scrape_file + ".report";
  const int status = std::system(("promtool check metrics < " + scrape_file + " > " + report + " 2>&1").c_str());
  std::ifstream complaints(report);
  EXPECT_EQ(status, 0) << std::string(std::istreambuf_iterator<char>(complaints), {});
}

}  // namespace
}  // namespace sluice::gateway
