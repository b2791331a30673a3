// Goal: certificates carry exactly the identity asked for, are accepted by OpenSSL's own rules, and never overwrite or leak a key.
// Method: make them in memory and in a temporary directory, read them back with OpenSSL through our reader, look at modes and contents.

#include "gateway/certs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "gateway/tls_context.h"

namespace sluice::gateway {
namespace {

namespace fs = std::filesystem;
using std::chrono::hours;
using std::chrono::minutes;
using testing::ElementsAre;
using testing::HasSubstr;

// On a whole second, as certificates keep time. The real time: TlsContext looks at the clock.
WallTime test_now() { return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()); }

class Certificates : public testing::Test {
 protected:
  Certificates() {
    std::string pattern = (fs::temp_directory_path() / "sluice-certs-XXXXXX").native();
    directory_ = ::mkdtemp(pattern.data());
  }
  ~Certificates() override { fs::remove_all(directory_); }

  static std::string read(const fs::path& path) {
    std::ifstream stream(path);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  static unsigned mode(const fs::path& path) {
    struct ::stat status {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
    return status.st_mode & 0777U;
  }
  CertificateRun run(std::vector<std::string> sites) const { return {"demo", "demo.example", std::move(sites)}; }
  KeyAndCertificate authority() const {
    auto made = make_authority({"demo", "demo.example", valid_for_days(test_now(), 100)});
    EXPECT_TRUE(made);
    return *made;
  }

  fs::path directory_;
};

TEST_F(Certificates, LeafCarriesItsIdentityAndTimes) {
  const WallTime now = test_now();
  const auto leaf = issue_certificate(authority(), {"a", {site_uri("demo.example", "a")}, valid_for_days(now, 30)});
  ASSERT_TRUE(leaf) << leaf.error().to_string();
  const auto facts = read_certificate(leaf->certificate_pem);
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->common_name, "a");
  EXPECT_THAT(facts->identities, ElementsAre("spiffe://demo.example/site/a"));
  EXPECT_EQ(facts->validity.not_before, now - minutes(5));
  EXPECT_EQ(facts->validity.not_after, now + hours(24 * 30));
  EXPECT_FALSE(facts->is_authority);
}

TEST_F(Certificates, AuthoritySaysThatItIsOne) {
  const auto facts = read_certificate(authority().certificate_pem);
  ASSERT_TRUE(facts);
  EXPECT_TRUE(facts->is_authority);
  EXPECT_THAT(facts->identities, ElementsAre("spiffe://demo.example"));
}

TEST_F(Certificates, WrongOnesCanBeMadeForTests) {
  const Validity past{test_now() - hours(48), test_now() - hours(24)};
  const auto leaf = issue_certificate(authority(), {"x", {"spiffe://other/site/a", "spiffe://demo.example/site/a,b"}, past, false});
  ASSERT_TRUE(leaf) << leaf.error().to_string();
  const auto facts = read_certificate(leaf->certificate_pem);
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->validity.not_after, test_now() - hours(24));
  EXPECT_THAT(facts->identities, ElementsAre("spiffe://other/site/a", "spiffe://demo.example/site/a,b"));
  const auto anonymous = issue_certificate(authority(), {"x", {}, past});
  ASSERT_TRUE(anonymous);
  EXPECT_TRUE(read_certificate(anonymous->certificate_pem)->identities.empty());
}

TEST_F(Certificates, GarbageIsRefusedWithAReason) {
  EXPECT_FALSE(read_certificate("not PEM"));
  EXPECT_FALSE(read_certificate(""));
  EXPECT_FALSE(issue_certificate({"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", ""}, {"a", {}, {}}));
  const auto other_key = issue_certificate({authority().certificate_pem, authority().key_pem}, {"a", {}, {}});
  ASSERT_FALSE(other_key);
  EXPECT_EQ(other_key.error().code, ErrorCode::kCertificateRefused);
  EXPECT_THAT(other_key.error().detail, HasSubstr("of another certificate"));
}

TEST_F(Certificates, FilesHaveTheirNamesAndKeysAreForTheOwnerOnly) {
  CertificateRun wanted = run({"a", "b"});
  wanted.with_agents = true;
  const auto written = write_certificates(directory_ / "made" / "here", wanted, test_now());
  ASSERT_TRUE(written) << written.error().to_string();
  EXPECT_EQ(written->size(), 10U);
  const fs::path at = directory_ / "made" / "here";
  EXPECT_EQ(mode(at), 0700U);
  for (const char* key : {"ca.key", "site-a.key", "site-b.key", "agent-a.key", "agent-b.key"}) EXPECT_EQ(mode(at / key), 0600U) << key;
  EXPECT_EQ(mode(at / "site-a.pem"), 0644U);
  const auto agent = read_certificate(read(at / "agent-b.pem"));
  ASSERT_TRUE(agent);
  EXPECT_THAT(agent->identities, ElementsAre("spiffe://demo.example/agent/b"));
  const auto loaded = TlsContext::load({at / "ca.pem", at / "site-b.pem", at / "site-b.key"});
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  EXPECT_EQ((*loaded)->uri(), "spiffe://demo.example/site/b");
}

TEST_F(Certificates, ExistingFilesStayUnlessForced) {
  ASSERT_TRUE(write_certificates(directory_, run({"a"}), test_now()));
  const std::string before = read(directory_ / "site-a.key");
  const auto again = write_certificates(directory_, run({"b", "a"}), test_now());
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kCertificateExists);
  EXPECT_FALSE(fs::exists(directory_ / "site-b.pem")) << "nothing is written when one file is in the way";
  CertificateRun forced = run({"a"});
  forced.overwrite = true;
  ASSERT_TRUE(write_certificates(directory_, forced, test_now()));
  EXPECT_NE(read(directory_ / "site-a.key"), before);
}

TEST_F(Certificates, ASiteIsAddedLaterUnderTheSameAuthority) {
  ASSERT_TRUE(write_certificates(directory_, run({"a", "b"}), test_now()));
  const std::string ca = read(directory_ / "ca.pem");
  const auto added = write_certificates(directory_, run({"c"}), test_now());
  ASSERT_TRUE(added) << added.error().to_string();
  EXPECT_EQ(read(directory_ / "ca.pem"), ca);
  const auto loaded = TlsContext::load({directory_ / "ca.pem", directory_ / "site-c.pem", directory_ / "site-c.key"});
  EXPECT_TRUE(loaded) << loaded.error().to_string();
}

TEST_F(Certificates, TheAuthorityOfAnotherRunIsNotUsed) {
  ASSERT_TRUE(write_certificates(directory_, run({"a"}), test_now()));
  CertificateRun other = run({"b"});
  other.run = "other";
  const auto refused = write_certificates(directory_, other, test_now());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().detail, HasSubstr("is of run `demo`"));
  other = run({"b"});
  other.domain = "elsewhere.example";
  EXPECT_FALSE(write_certificates(directory_, other, test_now()));
}

TEST_F(Certificates, ALeafDoesNotOutliveItsAuthorityAndAnExpiredAuthoritySignsNothing) {
  ASSERT_TRUE(write_certificates(directory_, run({"a"}), test_now()));
  const auto ca = read_certificate(read(directory_ / "ca.pem"));
  ASSERT_TRUE(ca);
  ASSERT_TRUE(write_certificates(directory_, run({"b"}), ca->validity.not_after - hours(24)));
  EXPECT_EQ(read_certificate(read(directory_ / "site-b.pem"))->validity.not_after, ca->validity.not_after);
  const auto late = write_certificates(directory_, run({"c"}), ca->validity.not_after);
  ASSERT_FALSE(late);
  EXPECT_THAT(late.error().detail, HasSubstr("expired"));
}

TEST_F(Certificates, NamesThatWouldNotSurviveAreRefused) {
  for (const char* name : {"", "Upper", "../a", "a b", "a,b", "-a", "a-", "a/b"}) {
    const auto refused = write_certificates(directory_, run({name}), test_now());
    ASSERT_FALSE(refused) << name;
    EXPECT_EQ(refused.error().code, ErrorCode::kCertificateRefused);
  }
  EXPECT_FALSE(write_certificates(directory_, run({"a", "a"}), test_now()));
  EXPECT_FALSE(write_certificates(directory_, run({}), test_now()));
  EXPECT_TRUE(fs::is_empty(directory_));
}

}  // namespace
}  // namespace sluice::gateway
