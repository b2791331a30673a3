#pragma once

// Certificates for tests: one authority in memory, files in a directory that goes away with the object. Throws nothing; a failure ends the
// test process, since nothing can be tested without them.

#include <stdlib.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/assert.h"
#include "gateway/certs.h"
#include "gateway/tls_context.h"

namespace sluice::test {

class TestCertificates {
 public:
  static constexpr const char* kDomain = "run.example";
  gateway::TlsRecords records = gateway::TlsRecords::kEncrypted;  // of contexts made from now on

  TestCertificates() {
    char name[] = "/tmp/sluice-test-XXXXXX";
    SLUICE_ASSERT(::mkdtemp(name) != nullptr);
    directory_ = name;
    authority_ = make_ca();
    write("ca.pem", authority_.certificate_pem);
  }
  ~TestCertificates() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  TestCertificates(const TestCertificates&) = delete;
  TestCertificates& operator=(const TestCertificates&) = delete;

  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }

  // A context that trusts this authority and shows a certificate with these URIs.
  std::shared_ptr<const gateway::TlsContext> context(const std::vector<std::string>& uris, gateway::Validity validity,
                                                     bool with_usage = true, bool of_other_authority = false) {
    const gateway::KeyAndCertificate other = of_other_authority ? make_ca() : authority_;
    const auto leaf = gateway::issue_certificate(other, {"test", uris, validity, with_usage});
    SLUICE_ASSERT(leaf.has_value(), "{}", leaf.error().to_string());
    const std::string stem = std::to_string(++count_);
    write(stem + ".pem", leaf->certificate_pem);
    write(stem + ".key", leaf->key_pem);
    auto context = gateway::TlsContext::load({directory_ / "ca.pem", directory_ / (stem + ".pem"), directory_ / (stem + ".key")},
                                             gateway::TlsSelfCheck::kSkip, records);
    SLUICE_ASSERT(context.has_value(), "{}", context.error().to_string());
    return *context;
  }
  std::shared_ptr<const gateway::TlsContext> site(const std::string& name) {
    return context({gateway::site_uri(kDomain, name)}, now_for_days(1));
  }
  std::shared_ptr<const gateway::TlsContext> agent(const std::string& name) {
    return context({gateway::agent_uri(kDomain, name)}, now_for_days(1));
  }
  static gateway::Validity now_for_days(int days) { return gateway::valid_for_days(std::chrono::system_clock::now(), days); }
  static gateway::Validity expired() {
    const auto now = std::chrono::system_clock::now();
    return {now - std::chrono::hours(48), now - std::chrono::hours(1)};
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream file(directory_ / name);
    file << text;
    file.close();
    std::filesystem::permissions(directory_ / name, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    SLUICE_ASSERT(file.good(), "write {}", name);
  }
  [[nodiscard]] const gateway::KeyAndCertificate& authority() const { return authority_; }

 private:
  static gateway::KeyAndCertificate make_ca() {
    auto made = gateway::make_authority({"test", kDomain, now_for_days(2)});
    SLUICE_ASSERT(made.has_value(), "{}", made.error().to_string());
    return *made;
  }

  std::filesystem::path directory_;
  gateway::KeyAndCertificate authority_;
  int count_ = 0;
};

}  // namespace sluice::test
