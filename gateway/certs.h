#pragma once

// Certificates of a run: one authority, one certificate for each site, one for the agents of each site. P-256, signed with SHA-256; the
// identity is one URI SAN, spiffe://DOMAIN/site/NAME or spiffe://DOMAIN/agent/NAME, and nothing else in the certificate counts.
// Used by `sluice certs`, by `sluice config check` and by tests, which need wrong and expired ones: identity and validity are parameters.
// Functions are free of state and may be called from any thread. Only those with a path touch files. Errors: kCertificateRefused with
// OpenSSL's own reason, kCertificateExists.
// Private keys are PEM text in memory; they are never logged and are written with mode 0600.

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::gateway {

using WallTime = std::chrono::system_clock::time_point;

struct Validity {
  WallTime not_before;
  WallTime not_after;
};

// From five minutes ago, because the clocks of two sites differ, until `days` from now.
Validity valid_for_days(WallTime now, int days);

struct KeyAndCertificate {
  std::string certificate_pem;
  std::string key_pem;
};

// "spiffe://<domain>/agent/<site>"; a site's own is site_uri in gateway/tls_context.h.
std::string agent_uri(std::string_view domain, std::string_view site);

struct AuthorityRequest {
  std::string run;     // common name
  std::string domain;  // URI SAN spiffe://domain
  Validity validity;
};
Result<KeyAndCertificate> make_authority(const AuthorityRequest& request);

struct LeafRequest {
  std::string common_name;              // for people
  std::vector<std::string> identities;  // URI SANs; a good certificate has exactly one
  Validity validity;
  bool for_clients_and_servers = true;  // extended key usage; false: neither, which every link must refuse
};
// A new key and its certificate, signed by the authority.
Result<KeyAndCertificate> issue_certificate(const KeyAndCertificate& authority, const LeafRequest& request);

// What a certificate says. Times to the second.
struct CertificateFacts {
  std::string common_name;
  std::vector<std::string> identities;  // URI SANs
  Validity validity;
  bool is_authority = false;
};
Result<CertificateFacts> read_certificate(std::string_view pem);

struct CertificateRun {
  std::string run;
  std::string domain;
  std::vector<std::string> sites;
  bool with_agents = false;
  int days = 365;
  bool overwrite = false;  // of the sites' files; an existing authority is always kept and used
};
// Writes ca.pem and ca.key, or uses those that are there, and site-NAME.pem, site-NAME.key, agent-NAME.pem, agent-NAME.key.
// Returns the paths written. Nothing is written when a file of one of the sites exists and `overwrite` is false.
Result<std::vector<std::filesystem::path>> write_certificates(const std::filesystem::path& directory, const CertificateRun& run,
                                                              WallTime now);

}  // namespace sluice::gateway
