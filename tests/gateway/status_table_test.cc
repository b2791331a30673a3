// Goal: the commands show what the gateway published, and stay readable and harmless when it answers something else or nothing.
// Method: tables of a known snapshot; a real admin server asked by the client; sockets that answer nonsense.

#include "gateway/status_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "gateway/admin_client.h"
#include "gateway/admin_server.h"
#include "gateway/metrics.h"
#include "gateway/status.h"

namespace sluice::gateway {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

StatusSnapshot make_snapshot() {
  StatusSnapshot snapshot;
  snapshot.site = "ams";
  snapshot.run = "demo";
  snapshot.version = "0.1.0";
  snapshot.epoch = 4;
  snapshot.round = 17;
  snapshot.phase = "open";
  snapshot.description = "waiting for fra";
  RoundStatus round;
  round.round = 17;
  round.sites = {"ams", "fra"};
  round.plan = "direct";
  round.bits_per_value = 2.125;
  round.step = 0.5;
  round.seconds = 1.5;
  round.sent_bytes = 3 * kMiB;
  round.state_digest = "00112233445566778899aabbccddeeff";
  round.reason = "all members counted";
  snapshot.rounds.push_back(std::make_shared<const RoundStatus>(round));
  LinkStatus link;
  link.peer = "fra";
  link.is_up = true;
  link.sent_bytes = 3 * kMiB;
  link.rtt_seconds_p50 = 0.0849;
  link.streams = 4;
  link.send_bits_per_second = 2e8;
  snapshot.links = {link};
  snapshot.wan = {3 * kMiB, 2 * kMiB, 693 * kMiB};
  snapshot.agents = {{0, true, 17, 3.25, 4096}};
  snapshot.sites = {{"ams", "self", 17, std::nullopt, "", std::nullopt}};
  snapshot.announcements = {{WallTime{}, true, "training alone: no quorum"}};
  snapshot.memory_used_bytes = 12 * kMiB;
  snapshot.memory_budget_bytes = 512 * kMiB;
  return snapshot;
}

TEST(StatusTable, QuantitiesAreShownForPeople) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1.5 * 1024 * 1024 * 1024), "1.5 GiB");
  EXPECT_EQ(human_rate(2e8), "200.0 Mbit/s");
  EXPECT_EQ(human_rate(1e20), "100000000.0 Tbit/s");
  EXPECT_EQ(human_seconds(0.0849), "84.9 ms");
  EXPECT_EQ(human_seconds(12.34), "12.3 s");
  EXPECT_EQ(human_seconds(150), "2.5 min");
}

TEST(StatusTable, ColumnsLineUpAndLinesEndWithoutSpaces) {
  EXPECT_EQ(format_table({"A", "LONG"}, {{"wide cell", "x"}, {"y", ""}}), "A          LONG\nwide cell  x\ny\n");
  EXPECT_EQ(format_table({"A", "B"}, {}), "A  B\n");
}

TEST(StatusTable, StatusTellsRoundTrafficAndWhoIsThere) {
  const std::string table = status_table(to_json(make_snapshot()));
  EXPECT_THAT(table, HasSubstr("site ams of run demo, sluice 0.1.0, epoch 4\nround 17, open: waiting for fra\n"));
  EXPECT_THAT(table, HasSubstr("WAN 3.0 MiB sent, 2.0 MiB received, 231 times less than fp32 data parallel\n"));
  EXPECT_THAT(table, HasSubstr("memory 12.0 MiB of 512.0 MiB"));
  EXPECT_THAT(table, HasSubstr("training alone: no quorum"));
  EXPECT_THAT(table, HasSubstr("fra   up    84.9 ms  4"));
  EXPECT_THAT(table, HasSubstr("RANK  AGENT"));
}

TEST(StatusTable, LinksAndRoundsAreReadFromTheAnswerOrTheBareList) {
  const auto snapshot = make_snapshot();
  const json links = links_to_json(snapshot);
  EXPECT_THAT(links_table(links), HasSubstr("200.0 Mbit/s"));
  EXPECT_EQ(links_table(json{{"site", "ams"}, {"links", links}}), links_table(links));
  const json rounds = rounds_to_json(snapshot);
  EXPECT_THAT(rounds_table(rounds), HasSubstr("17     committed  ams,fra  direct  2.125  0.5   1.5 s  3.0 MiB  -     001122334455"));
  EXPECT_EQ(rounds_table(json{{"rounds", rounds}}), rounds_table(rounds));
}

TEST(StatusTable, WhatIsMissingOrOfAnotherTypeShowsAsADash) {
  for (const json& odd :
       {json(), json(7), json("text"), json::array(), json::object(), json{{"links", 7}, {"wan", "x"}, {"rounds", {1, "a", {}}}}}) {
    EXPECT_THAT(status_table(odd), HasSubstr("site - of run -")) << odd;
    EXPECT_THAT(links_table(odd), testing::StartsWith("PEER")) << odd;
    EXPECT_THAT(rounds_table(odd), testing::StartsWith("ROUND")) << odd;
  }
}

TEST(StatusTable, ControlCharactersDoNotReachTheTerminal) {
  StatusSnapshot snapshot = make_snapshot();
  snapshot.links[0].reason = "\x1b]0;title\a\x1b[31mred\nnext";
  snapshot.description = "\x1b[2J";
  const std::string table = status_table(to_json(snapshot));
  EXPECT_THAT(table, Not(HasSubstr("\x1b")));
  EXPECT_THAT(table, HasSubstr("?[31mred?next"));
}

TEST(AdminClient, AsksARealServer) {
  StatusBoard board;
  const Metrics metrics({"ams", {"ams", "fra"}, "0.1.0"});
  board.publish(std::make_shared<const StatusSnapshot>(make_snapshot()), Clock::now());
  const auto server = AdminServer::start({}, board, metrics);
  ASSERT_TRUE(server) << server.error().to_string();
  const Endpoint endpoint{"127.0.0.1", (*server)->port()};
  const auto status = fetch_admin_json(endpoint, "/api/v1/status");
  ASSERT_TRUE(status) << status.error().to_string();
  EXPECT_EQ((*status)["site"], "ams");
  const auto rounds = fetch_admin_json(endpoint, "/api/v1/rounds?rounds=1");
  ASSERT_TRUE(rounds);
  EXPECT_THAT(rounds_table(*rounds), HasSubstr("all members counted"));
  const auto absent = fetch_admin_json(endpoint, "/api/v1/nothing");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, ErrorCode::kUnexpectedAnswer);
}

// An HTTP server that is no gateway.
class OtherServer {
 public:
  explicit OtherServer(std::string body) {
    server_.Get("/api/v1/status",
                [body](const httplib::Request&, httplib::Response& response) { response.set_content(body, "text/plain"); });
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
  }
  ~OtherServer() {
    server_.stop();
    thread_.join();
  }
  [[nodiscard]] Endpoint endpoint() const { return {"127.0.0.1", static_cast<std::uint16_t>(port_)}; }

 private:
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
};

TEST(AdminClient, RefusesAnAnswerThatIsNotJsonOrTooLong) {
  for (const std::string& body : {std::string("<html>"), std::string(), std::string(kAdminAnswerBytesMax + 1, ' ')}) {
    const OtherServer other(body);
    const auto answer = fetch_admin_json(other.endpoint(), "/api/v1/status");
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, ErrorCode::kUnexpectedAnswer) << answer.error().to_string();
  }
}

TEST(AdminClient, SaysWhenNobodyListens) {
  // Port 1 (tcpmux) is below every port that bind(0) gives out.
  const auto answer = fetch_admin_json({"127.0.0.1", 1}, "/api/v1/status");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kUnavailable) << answer.error().to_string();
}

}  // namespace
}  // namespace sluice::gateway
