#pragma once

// The gateway's TLS: version 1.3 only, both sides authenticated, identity from one SPIFFE URI in the certificate.
// A TlsContext never changes once built: for new certificate files build another one and swap the pointer (PeerLinks::set_tls);
// connections keep the one that they began with. Any thread may use it. The private key stays inside and is never logged.

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX
struct x509_st;     // OpenSSL's X509

namespace sluice::gateway {

// PEM files. The certificate file may hold intermediates after the gateway's own certificate.
struct TlsFiles {
  std::filesystem::path ca;
  std::filesystem::path certificate;
  std::filesystem::path key;
};

// kSkip accepts a certificate that others will refuse: for tests of exactly that.
enum class TlsSelfCheck { kFull, kSkip };

// kHandshakeOnly: both sides are authenticated as always, and what follows goes in the clear. It is there to measure what encryption
// costs (tests/bench); no configuration reaches it.
enum class TlsRecords { kEncrypted, kHandshakeOnly };

class TlsContext {
 public:
  // Reads the three files and checks that they fit together: the key belongs to the certificate, the certificate verifies against the
  // CA for both roles, carries exactly one URI and is valid now. Fails with kTlsFiles, which says what is wrong and with which file.
  static Result<std::shared_ptr<const TlsContext>> load(const TlsFiles& files, TlsSelfCheck self_check = TlsSelfCheck::kFull,
                                                        TlsRecords records = TlsRecords::kEncrypted);

  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  [[nodiscard]] ssl_ctx_st* native() const { return context_; }
  [[nodiscard]] TlsRecords records() const { return records_; }
  // "spiffe://run.example/site/ams"
  [[nodiscard]] const std::string& uri() const { return uri_; }
  [[nodiscard]] std::chrono::system_clock::time_point not_after() const { return not_after_; }

 private:
  TlsContext(ssl_ctx_st* context, TlsRecords records) : context_(context), records_(records) {}

  ssl_ctx_st* context_;
  TlsRecords records_;
  std::string uri_;
  std::chrono::system_clock::time_point not_after_;
};

// Who a verified certificate speaks for.
struct PeerIdentity {
  std::string uri;
  std::chrono::system_clock::time_point not_after;
};

enum class TlsRole { kClient, kServer };

// The identity in a certificate whose chain has been verified: exactly one URI in the subject alternative names, and the extended key
// usage of the role that its holder plays on this connection. Fails with kTlsIdentity.
Result<PeerIdentity> read_identity(const x509_st* certificate, TlsRole holder);

// "spiffe://<domain>/site/<name>"
std::string site_uri(std::string_view domain, std::string_view site);
// Whether `uri` is "spiffe://<domain>/agent/<anything but empty>".
bool is_agent_uri(std::string_view uri, std::string_view domain);

}  // namespace sluice::gateway
