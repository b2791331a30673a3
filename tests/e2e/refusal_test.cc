// Goal: who is not the site that its certificate should name is refused, each with its own reason in log and metric, and the others go on.
// Method: real gateways of two sites; the second one is given a wrong certificate, or a plain TCP client comes.
#include <httplib.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "gateway/certs.h"
#include "tests/e2e/e2e_fixture.h"

namespace sluice::e2e {
namespace {

class RefusalTest : public FleetTest {
 protected:
  std::optional<support::ChildProcess> client_;

  double rejects(std::uint16_t site, const std::string& reason) {
    const auto body = fleet_->get(site, "/metrics");
    if (!body) return -1.0;
    std::istringstream lines(*body);
    std::string line;
    while (std::getline(lines, line)) {
      if (line.rfind("sluice_", 0) == 0 && line.find("rejects_total") != std::string::npos &&
          line.find("reason=\"" + reason + "\"") != std::string::npos) {
        return std::stod(line.substr(line.rfind(' ') + 1));
      }
    }
    return -1.0;
  }

  // Comes to site 0 as a TLS client with a certificate made to order by the fleet's own authority.
  void present(const gateway::LeafRequest& request) {
    const auto certs = directory_ / "certs";
    const auto read = [&](const char* name) {
      std::ifstream file(certs / name);
      std::stringstream text;
      text << file.rdbuf();
      return text.str();
    };
    const auto made = gateway::issue_certificate({read("ca.pem"), read("ca.key")}, request);
    ASSERT_TRUE(made) << made.error().to_string();
    std::ofstream(certs / "client.pem") << made->certificate_pem;
    std::ofstream(certs / "client.key") << made->key_pem;
    support::ChildOptions client;
    client.arguments = {"/usr/bin/openssl",
                        "s_client",
                        "-connect",
                        fmt::format("127.0.0.1:{}", fleet_->wan_port(0)),
                        "-cert",
                        (certs / "client.pem").string(),
                        "-key",
                        (certs / "client.key").string(),
                        "-quiet"};
    client.stderr_file = (directory_ / "client.log").string();
    auto started = support::ChildProcess::start(client);
    ASSERT_TRUE(started) << started.error().to_string();
    client_.emplace(std::move(*started));
  }

  void wait_reject(std::uint16_t site, const std::string& reason) {
    const Status seen = fleet_->wait_status(site, "a refusal for " + reason, kAnswerTimeout,
                                            [&](const nlohmann::json&) { return rejects(site, reason) >= 1.0; });
    ASSERT_TRUE(seen) << seen.error().to_string();
    std::ifstream log(fleet_->log_file(site));
    std::stringstream text;
    text << log.rdbuf();
    EXPECT_NE(text.str().find("(" + reason + ")"), std::string::npos) << text.str();
  }
};

TEST_F(RefusalTest, CertificateOfTheRightAuthorityWithTheWrongName) {
  support::FleetOptions options;
  options.sites = 2;
  ASSERT_NO_FATAL_FAILURE(start(options));
  const auto now = std::chrono::system_clock::now();
  present({"dc-z", {"spiffe://fleet.test/site/dc-z"}, gateway::valid_for_days(now, 30)});
  wait_reject(0, "san");
  EXPECT_TRUE(step_until_together({0, 1}, 3));
}

TEST_F(RefusalTest, ExpiredCertificate) {
  support::FleetOptions options;
  options.sites = 2;
  ASSERT_NO_FATAL_FAILURE(start(options));
  const auto now = std::chrono::system_clock::now();
  present({"dc-b", {"spiffe://fleet.test/site/dc-b"}, {now - std::chrono::hours(48), now - std::chrono::hours(1)}});
  wait_reject(0, "expired");
  EXPECT_TRUE(step_until_together({0, 1}, 3));
}

TEST_F(RefusalTest, GatewayDoesNotStartWithTheCertificateOfAnotherSite) {
  support::FleetOptions options;
  options.sites = 2;
  ASSERT_NO_FATAL_FAILURE(start(options));
  ASSERT_TRUE(fleet_->stop_site(1));
  const auto certs = directory_ / "certs";
  std::filesystem::copy_file(certs / "site-dc-a.pem", certs / "site-dc-b.pem", std::filesystem::copy_options::overwrite_existing);
  std::filesystem::copy_file(certs / "site-dc-a.key", certs / "site-dc-b.key", std::filesystem::copy_options::overwrite_existing);
  EXPECT_FALSE(fleet_->start_site(1));
}

TEST_F(RefusalTest, PlainTcpIsNotSpokenTo) {
  support::FleetOptions options;
  options.sites = 2;
  ASSERT_NO_FATAL_FAILURE(start(options));
  httplib::Client client("127.0.0.1", fleet_->wan_port(0));
  EXPECT_FALSE(client.Get("/"));
  wait_reject(0, "not_tls");
  EXPECT_TRUE(step_until_together({0, 1}, 3));
}

}  // namespace
}  // namespace sluice::e2e
