#include "gateway/tls_context.h"

// One SSL_CTX serves both roles. Choices, and why:
//   * no session tickets, no session cache, no early data: a resumed session would not show its certificate again, and a TLS 1.3 peer
//     that writes and closes loses its tail while tickets lie unread;
//   * AES-128-GCM before AES-256-GCM: the same security level as the P-256 certificates, 10-20 % less time;
//   * chain verification by OpenSSL; who the peer is, and whether it is the one expected, is decided after the handshake from its URI.

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <fmt/format.h>

#include "gateway/internal/openssl_ptr.h"
#include "gateway/limits.h"

namespace sluice::gateway {
namespace {

Error tls_error(std::string_view what, const std::filesystem::path& file) {
  return Error{ErrorCode::kTlsFiles, "load TLS files", fmt::format("{} {}: {}", what, file.string(), internal::take_openssl_error())};
}

std::chrono::system_clock::time_point to_time_point(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return {};
  return std::chrono::system_clock::from_time_t(timegm(&parts));
}

Status apply_policy(SSL_CTX* context) {
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_verify_depth(context, kCertificateDepthMax);
  SSL_CTX_set_max_cert_list(context, static_cast<long>(kCertificateBytesMax));
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_max_early_data(context, 0);
  const bool good = SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                    SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
                    SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384") == 1 &&
                    SSL_CTX_set1_groups_list(context, "X25519:P-256") == 1 && SSL_CTX_set_num_tickets(context, 0) == 1;
  if (!good) return fail(ErrorCode::kTlsFiles, "configure TLS", internal::take_openssl_error());
  return {};
}

// The gateway's certificate as its peers will see it: a chain that does not verify here will not verify there.
Status verify_own_chain(SSL_CTX* context, X509* certificate, const TlsFiles& files) {
  for (const int purpose : {X509_PURPOSE_SSL_SERVER, X509_PURPOSE_SSL_CLIENT}) {
    const internal::X509StoreContextPtr store(X509_STORE_CTX_new());
    STACK_OF(X509)* chain = nullptr;
    SSL_CTX_get0_chain_certs(context, &chain);
    if (!store || X509_STORE_CTX_init(store.get(), SSL_CTX_get_cert_store(context), certificate, chain) != 1) {
      return fail(tls_error("cannot check", files.certificate));
    }
    X509_STORE_CTX_set_purpose(store.get(), purpose);
    if (X509_verify_cert(store.get()) != 1) {
      const std::string reason = X509_verify_cert_error_string(X509_STORE_CTX_get_error(store.get()));
      return fail(ErrorCode::kTlsFiles, "load TLS files",
                  fmt::format("certificate {} does not verify against {}: {}", files.certificate.string(), files.ca.string(), reason));
    }
  }
  return {};
}

}  // namespace

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

Result<std::shared_ptr<const TlsContext>> TlsContext::load(const TlsFiles& files, TlsSelfCheck self_check, TlsRecords records) {
  ERR_clear_error();
  SSL_CTX* native = SSL_CTX_new(TLS_method());
  if (native == nullptr) return fail(ErrorCode::kTlsFiles, "configure TLS", internal::take_openssl_error());
  std::shared_ptr<TlsContext> context(new TlsContext(native, records));
  SLUICE_CHECK_OK(apply_policy(native));
  if (SSL_CTX_load_verify_locations(native, files.ca.c_str(), nullptr) != 1) return fail(tls_error("cannot read CA", files.ca));
  if (SSL_CTX_use_certificate_chain_file(native, files.certificate.c_str()) != 1) {
    return fail(tls_error("cannot read certificate", files.certificate));
  }
  if (SSL_CTX_use_PrivateKey_file(native, files.key.c_str(), SSL_FILETYPE_PEM) != 1) return fail(tls_error("cannot use key", files.key));
  if (SSL_CTX_check_private_key(native) != 1) return fail(tls_error("key does not belong to certificate", files.certificate));
  X509* certificate = SSL_CTX_get0_certificate(native);
  if (self_check == TlsSelfCheck::kSkip) return std::shared_ptr<const TlsContext>(std::move(context));
  SLUICE_CHECK_OK(verify_own_chain(native, certificate, files));
  for (const TlsRole role : {TlsRole::kServer, TlsRole::kClient}) {
    auto identity = read_identity(certificate, role);
    if (!identity) {
      return fail(ErrorCode::kTlsFiles, "load TLS files",
                  fmt::format("certificate {}: {}", files.certificate.string(), identity.error().detail));
    }
    context->uri_ = identity->uri;
    context->not_after_ = identity->not_after;
  }
  return std::shared_ptr<const TlsContext>(std::move(context));
}

Result<PeerIdentity> read_identity(const x509_st* certificate, TlsRole holder) {
  const auto refuse = [](std::string detail) { return fail(ErrorCode::kTlsIdentity, "read certificate", std::move(detail)); };
  const internal::GeneralNamesPtr names(static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  if (!names) return refuse("it has no subject alternative name");
  std::string uri;
  int uris = 0;
  for (int index = 0; index < sk_GENERAL_NAME_num(names.get()); ++index) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), index);
    if (name->type != GEN_URI) continue;
    ++uris;
    const ASN1_IA5STRING* text = name->d.uniformResourceIdentifier;
    uri.assign(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)), static_cast<std::size_t>(ASN1_STRING_length(text)));
  }
  if (uris != 1) return refuse(fmt::format("it has {} URIs, not one", uris));
  // X509_get_extended_key_usage answers UINT32_MAX for a certificate without the extension: required here, so asked for first.
  auto* mutable_certificate = const_cast<X509*>(certificate);
  const std::uint32_t wanted = holder == TlsRole::kServer ? XKU_SSL_SERVER : XKU_SSL_CLIENT;
  if (X509_get_ext_by_NID(certificate, NID_ext_key_usage, -1) < 0 || (X509_get_extended_key_usage(mutable_certificate) & wanted) == 0) {
    return refuse(fmt::format("its extended key usage lacks {}", holder == TlsRole::kServer ? "serverAuth" : "clientAuth"));
  }
  return PeerIdentity{uri, to_time_point(X509_get0_notAfter(certificate))};
}

std::string site_uri(std::string_view domain, std::string_view site) { return fmt::format("spiffe://{}/site/{}", domain, site); }

bool is_agent_uri(std::string_view uri, std::string_view domain) {
  const std::string prefix = fmt::format("spiffe://{}/agent/", domain);
  return uri.size() > prefix.size() && uri.starts_with(prefix);
}

}  // namespace sluice::gateway
