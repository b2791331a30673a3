// Goal: the admin interface tells exactly what was published, to this machine only, and cannot be made to change or hold up anything.
// Method: a real server on a free loopback port, asked by an HTTP client and by raw sockets.

#include "gateway/admin_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace sluice::gateway {
namespace {

using nlohmann::json;

std::shared_ptr<const RoundStatus> make_round(std::uint64_t number) {
  RoundStatus round;
  round.round = number;
  round.sites = {"ams", "fra"};
  round.members = {"ams", "fra", "nyc"};
  round.bits_per_value = 2.125;
  round.step = 0.5;
  round.state_digest = to_hex(Digest{number, 1});
  round.update_digest = to_hex(Digest{number, 2});
  round.seconds = 1.5;
  round.phase_seconds = {0.1, 0.5, 0.6, 0.3};
  round.reason = "all members counted";
  round.loss = 3.25;
  return std::make_shared<const RoundStatus>(round);
}

StatusSnapshot make_snapshot(std::uint64_t rounds = 3) {
  StatusSnapshot snapshot;
  snapshot.site = "ams";
  snapshot.run = "demo";
  snapshot.version = "0.1.0";
  snapshot.epoch = 4;
  snapshot.round = rounds;
  snapshot.phase = "committed";
  for (std::uint64_t round = 1; round <= rounds; ++round) snapshot.rounds.push_back(make_round(round));
  LinkStatus link;
  link.peer = "fra";
  link.is_up = true;
  link.sent_bytes = 1000;
  link.received_bytes = 2000;
  link.rtt_seconds_min = 0.084;
  link.rtt_seconds_p50 = 0.085;
  link.streams = 4;
  snapshot.links = {link};
  snapshot.wan = {1000, 2000, 250'000};
  snapshot.agents = {{0, true, rounds, 3.25, 4096}, {1, false, rounds, std::nullopt, 4096}};
  snapshot.sites = {{"ams", "self", rounds, std::nullopt, "", std::nullopt}, {"fra", "up", rounds, WallTime{}, "", std::nullopt}};
  snapshot.announcements = {{WallTime{}, false, "round 3 committed"}};
  return snapshot;
}

std::vector<std::string> keys_of(const json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

class AdminServerTest : public testing::Test {
 protected:
  AdminServerTest() : metrics_({"ams", {"ams", "fra", "nyc"}, "0.1.0"}) {
    auto started = AdminServer::start({}, board_, metrics_);
    EXPECT_TRUE(started) << started.error().to_string();
    server_ = std::move(*started);
  }
  void publish(const StatusSnapshot& snapshot, TimePoint at = Clock::now()) {
    board_.publish(std::make_shared<const StatusSnapshot>(snapshot), at);
  }
  httplib::Client client() const { return httplib::Client("127.0.0.1", server_->port()); }
  httplib::Result get(const std::string& path, const httplib::Headers& headers = {}) const {
    auto connection = client();
    return connection.Get(path, headers);
  }
  json get_json(const std::string& path) const {
    const auto response = get(path);
    EXPECT_TRUE(response);
    EXPECT_EQ(response->status, 200) << response->body;
    EXPECT_THAT(response->get_header_value("Content-Type"), testing::StartsWith("application/json"));
    return json::parse(response->body);
  }

  StatusBoard board_;
  Metrics metrics_;
  std::unique_ptr<AdminServer> server_;
};

TEST_F(AdminServerTest, BeforeTheFirstSnapshotItIsAliveAndNotReady) {
  EXPECT_EQ(get("/livez")->status, 200);
  EXPECT_EQ(get("/readyz")->status, 503);
  EXPECT_EQ(get("/api/v1/status")->status, 503);
  EXPECT_EQ(get("/metrics")->status, 200);
}

TEST_F(AdminServerTest, StatusHasTheDocumentedKeysAndValues) {
  publish(make_snapshot());
  const json status = get_json("/api/v1/status");
  EXPECT_THAT(keys_of(status), testing::IsSupersetOf({"site", "run", "epoch", "round", "phase", "rounds", "links", "wan", "agents"}));
  EXPECT_EQ(status["site"], "ams");
  EXPECT_EQ(status["epoch"], 4);
  EXPECT_EQ(status["rounds"].size(), 3U);
  const json& round = status["rounds"].back();
  EXPECT_THAT(keys_of(round), testing::IsSupersetOf({"round", "outcome", "sites", "bits_per_value", "step", "state_digest", "update_digest",
                                                     "seconds", "reason", "phase_seconds"}));
  EXPECT_EQ(round["outcome"], "committed");
  EXPECT_EQ(round["sites"], json({"ams", "fra"}));
  EXPECT_EQ(round["state_digest"], "00000000000000010000000000000003");
  const json& link = status["links"].front();
  EXPECT_THAT(keys_of(link), testing::IsSupersetOf({"peer", "up", "sent_bytes", "received_bytes", "rtt_seconds", "streams", "reason"}));
  EXPECT_EQ(link["rtt_seconds"]["p50"], 0.085);
  EXPECT_EQ(status["wan"]["reduction"], 250.0);
  EXPECT_EQ(status["agents"][0]["connected"], true);
  EXPECT_EQ(status["agents"][1]["loss"], nullptr);
  EXPECT_EQ(status["sites"][1]["last_seen"], "1970-01-01T00:00:00.000Z");
}

TEST_F(AdminServerTest, TheNumberOfRoundsCanBeLimited) {
  publish(make_snapshot(40));
  EXPECT_EQ(get_json("/api/v1/status?rounds=5")["rounds"].size(), 5U);
  EXPECT_EQ(get_json("/api/v1/status?rounds=5")["rounds"][0]["round"], 36);
  EXPECT_EQ(get_json("/api/v1/status?rounds=0")["rounds"].size(), 0U);
  EXPECT_EQ(get_json("/api/v1/rounds?rounds=999999")["rounds"].size(), 40U);
  EXPECT_EQ(get_json("/api/v1/links")["links"].size(), 1U);
  for (const char* bad : {"rounds=", "rounds=x", "rounds=-1", "rounds=99999999999999999999999"}) {
    EXPECT_EQ(get(std::string("/api/v1/rounds?") + bad)->status, 400) << bad;
  }
}

TEST_F(AdminServerTest, HostileStringsAndNumbersStillMakeValidJson) {
  StatusSnapshot snapshot = make_snapshot();
  snapshot.links[0].reason = "\"}]<script>\x01\xff\xfe";
  snapshot.links[0].rtt_seconds_p50 = std::numeric_limits<double>::quiet_NaN();
  publish(snapshot);
  const json status = get_json("/api/v1/status");
  EXPECT_THAT(status["links"][0]["reason"].get<std::string>(), testing::StartsWith("\"}]<script>\x01"));
  EXPECT_EQ(status["links"][0]["rtt_seconds"]["p50"], nullptr);
}

TEST_F(AdminServerTest, LivenessDependsOnTheLoopAndNotOnPeers) {
  StatusSnapshot snapshot = make_snapshot();
  snapshot.links[0].is_up = false;
  publish(snapshot);
  EXPECT_EQ(get("/livez")->status, 200);
  EXPECT_EQ(get("/healthz")->status, 200);
  publish(snapshot, Clock::now() - std::chrono::minutes(5));
  const auto response = get("/livez");
  EXPECT_EQ(response->status, 503);
  EXPECT_THAT(response->body, testing::HasSubstr("[-]loop failed"));
}

TEST_F(AdminServerTest, ReadinessNamesWhatIsMissing) {
  StatusSnapshot snapshot = make_snapshot();
  snapshot.readiness = {true, true, false, true};
  publish(snapshot);
  EXPECT_EQ(get("/readyz")->status, 503);
  EXPECT_THAT(get("/readyz")->body, testing::AllOf(testing::HasSubstr("[-]agent-socket failed"), testing::HasSubstr("[+]config ok")));
  snapshot.readiness.is_agent_socket_up = true;
  publish(snapshot);
  EXPECT_EQ(get("/readyz")->body, "ready\n");
  EXPECT_THAT(get("/readyz?verbose")->body, testing::HasSubstr("[+]agent-socket ok"));
}

TEST_F(AdminServerTest, MetricsAreServedAsPrometheusText) {
  metrics_.set_round(17, 2);
  const auto response = get("/metrics");
  EXPECT_THAT(response->get_header_value("Content-Type"), testing::HasSubstr("version=0.0.4"));
  EXPECT_THAT(response->body, testing::HasSubstr("sluice_round{site=\"ams\"} 17"));
}

TEST_F(AdminServerTest, TheDashboardNeedsNothingFromOutsideAndRunsOnlyItsOwnScript) {
  const auto first = get("/");
  ASSERT_EQ(first->status, 200);
  EXPECT_THAT(first->get_header_value("Content-Type"), testing::StartsWith("text/html"));
  const std::string policy = first->get_header_value("Content-Security-Policy");
  EXPECT_THAT(policy, testing::AllOf(testing::HasSubstr("default-src 'none'"), testing::HasSubstr("frame-ancestors 'none'"),
                                     testing::Not(testing::HasSubstr("unsafe-eval"))));
  const std::size_t start = policy.find("'nonce-") + 7;
  const std::string nonce = policy.substr(start, policy.find('\'', start) - start);
  EXPECT_EQ(nonce.size(), 32U);
  EXPECT_THAT(first->body, testing::HasSubstr("<script nonce=\"" + nonce + "\">"));
  EXPECT_THAT(first->body, testing::Not(testing::HasSubstr("SLUICE-NONCE")));
  EXPECT_NE(get("/")->body, first->body) << "each response has its own nonce";
  for (const char* outside : {"https://", "src=\"http", "href=\"http", "@import", "innerHTML", "eval("}) {
    EXPECT_THAT(first->body, testing::Not(testing::HasSubstr(outside)));
  }
}

TEST_F(AdminServerTest, OtherNamesThanLoopbackAreRefused) {
  publish(make_snapshot());
  for (const char* host : {"evil.example", "evil.example:80", "10.0.0.1", "", "localhost.evil.example", "127.0.0.1.evil.example"}) {
    EXPECT_EQ(get("/api/v1/status", {{"Host", host}})->status, 403) << host;
  }
  for (const char* host : {"localhost", "localhost:9999", "127.0.0.1", "127.8.8.8:1", "[::1]:7480"}) {
    EXPECT_EQ(get("/api/v1/status", {{"Host", host}})->status, 200) << host;
  }
}

TEST_F(AdminServerTest, OnlyReadingIsAllowed) {
  publish(make_snapshot());
  auto connection = client();
  EXPECT_EQ(connection.Head("/api/v1/status")->status, 200);
  EXPECT_EQ(client().Post("/api/v1/status")->status, 405);
  EXPECT_EQ(client().Put("/")->status, 405);
  EXPECT_EQ(client().Delete("/api/v1/rounds")->status, 405);
  EXPECT_EQ(client().Options("/")->status, 405);
}

TEST_F(AdminServerTest, UnknownPathsSayWhatThereIs) {
  const auto response = get("/admin/../etc/passwd");
  EXPECT_EQ(response->status, 404);
  EXPECT_THAT(response->body, testing::HasSubstr("/api/v1/status"));
}

TEST_F(AdminServerTest, ManyClientsAtOnceAreAllAnswered) {
  publish(make_snapshot(10));
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int thread = 0; thread < 12; ++thread) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < 3; ++turn) {
        auto connection = client();
        connection.set_read_timeout(60);  // a machine under load is slow, not wrong
        const auto response = connection.Get("/api/v1/status");
        if (response && response->status == 200 && json::accept(response->body)) ++good;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 36);
}

TEST_F(AdminServerTest, TwoServersCannotShareAPort) {
  const auto second = AdminServer::start({.port = server_->port()}, board_, metrics_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kListen);
}

TEST_F(AdminServerTest, AStoppedServerFreesItsPort) {
  const std::uint16_t port = server_->port();
  server_->stop();
  server_->stop();
  EXPECT_FALSE(get("/livez"));
  const auto next = AdminServer::start({.port = port}, board_, metrics_);
  ASSERT_TRUE(next) << next.error().to_string();
  EXPECT_EQ((*next)->url(), "http://127.0.0.1:" + std::to_string(port) + "/");
}

TEST(AdminServer, ListensOnLoopbackOnly) {
  StatusBoard board;
  Metrics metrics({"ams", {"ams"}, "0.1.0"});
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "example.org", "", "128.0.0.1", "::ffff:127.0.0.1"}) {
    const auto server = AdminServer::start({.host = host}, board, metrics);
    ASSERT_FALSE(server) << host;
    EXPECT_EQ(server.error().code, ErrorCode::kListen);
    EXPECT_THAT(server.error().detail, testing::HasSubstr("loopback"));
  }
  const auto server = AdminServer::start({.host = "localhost"}, board, metrics);
  ASSERT_TRUE(server);
  EXPECT_THAT((*server)->url(), testing::StartsWith("http://127.0.0.1:"));
}

// A client that connects and says nothing is let go after the timeout, and stopping does not wait for it longer than that.
TEST(AdminServer, SilentClientsHoldNobodyUpForLong) {
  StatusBoard board;
  Metrics metrics({"ams", {"ams"}, "0.1.0"});
  auto server = AdminServer::start({.io_timeout = std::chrono::milliseconds(300)}, board, metrics);
  ASSERT_TRUE(server);
  std::vector<int> silent;
  for (std::size_t index = 0; index < kAdminThreads; ++index) {
    silent.push_back(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons((*server)->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::connect(silent.back(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  httplib::Client client("127.0.0.1", (*server)->port());
  EXPECT_EQ(client.Get("/livez")->status, 200) << "answered once a silent client's time is over";
  const auto start = Clock::now();
  (*server)->stop();
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(4));
  for (const int socket : silent) ::close(socket);
}

}  // namespace
}  // namespace sluice::gateway
