#include "gateway/certs.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <ctime>
#include <memory>

namespace sluice::gateway {
namespace {

template <auto Free>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using KeyHandle = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;
using CertificateHandle = std::unique_ptr<X509, Deleter<X509_free>>;
using BioHandle = std::unique_ptr<BIO, Deleter<BIO_free_all>>;
using ExtensionHandle = std::unique_ptr<X509_EXTENSION, Deleter<X509_EXTENSION_free>>;
using NamesHandle = std::unique_ptr<GENERAL_NAMES, Deleter<GENERAL_NAMES_free>>;

// The queue of this thread holds the reason; it is emptied, so that no later call finds a stale one.
tl::unexpected<Error> refuse(std::string operation, std::string_view what) {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  std::string reason(what);
  if (code != 0) {
    std::array<char, 256> text{};
    ERR_error_string_n(code, text.data(), text.size());
    reason += fmt::format(": {}", text.data());
  }
  return fail(ErrorCode::kCertificateRefused, std::move(operation), std::move(reason));
}

// A caller that is asked for a password says no: keys of a gateway are not encrypted, and nobody sits at a terminal.
int no_password(char*, int, int, void*) { return -1; }

BioHandle memory_bio(std::string_view text) { return BioHandle(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

CertificateHandle certificate_from_pem(std::string_view pem) {
  const BioHandle bio = memory_bio(pem);
  return CertificateHandle(bio ? PEM_read_bio_X509(bio.get(), nullptr, no_password, nullptr) : nullptr);
}

KeyHandle key_from_pem(std::string_view pem) {
  const BioHandle bio = memory_bio(pem);
  return KeyHandle(bio ? PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr) : nullptr);
}

std::string bio_text(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return size > 0 ? std::string(data, static_cast<std::size_t>(size)) : std::string();
}

// ASN1_TIME_set would shift through the local zone's rules; this is UTC throughout.
bool set_time(ASN1_TIME* time, WallTime moment) { return ASN1_TIME_set(time, std::chrono::system_clock::to_time_t(moment)) != nullptr; }

WallTime read_time(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return {};
  return std::chrono::system_clock::from_time_t(timegm(&parts));
}

bool set_serial(X509* certificate) {
  // 127 random bits: unique without a file that remembers the last one (RFC 5280 allows up to 20 octets).
  std::array<unsigned char, 16> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) return false;
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7fU) | 0x40U);
  const std::unique_ptr<BIGNUM, Deleter<BN_free>> number(BN_bin2bn(bytes.data(), static_cast<int>(bytes.size()), nullptr));
  return number && BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

bool add_name(X509_NAME* name, const char* field, const std::string& value) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(value.data());
  return X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8, bytes, static_cast<int>(value.size()), -1, 0) == 1;
}

bool add_extension(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const ExtensionHandle extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

// The SAN is built from values, not from OpenSSL's configuration syntax, in which a comma would begin another name.
bool add_identities(X509* certificate, const std::vector<std::string>& identities) {
  if (identities.empty()) return true;
  const NamesHandle names(GENERAL_NAMES_new());
  if (!names) return false;
  for (const std::string& identity : identities) {
    std::unique_ptr<GENERAL_NAME, Deleter<GENERAL_NAME_free>> name(GENERAL_NAME_new());
    std::unique_ptr<ASN1_IA5STRING, Deleter<ASN1_IA5STRING_free>> text(ASN1_IA5STRING_new());
    if (!name || !text || ASN1_STRING_set(text.get(), identity.data(), static_cast<int>(identity.size())) != 1) return false;
    GENERAL_NAME_set0_value(name.get(), GEN_URI, text.release());
    if (sk_GENERAL_NAME_push(names.get(), name.get()) <= 0) return false;
    static_cast<void>(name.release());
  }
  return X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 0, X509V3_ADD_DEFAULT) == 1;
}

struct Subject {
  std::string organization;
  std::string common_name;
  Validity validity;
};

// Version, serial, times, subject and key; the issuer and extensions follow.
CertificateHandle begin_certificate(const Subject& subject, EVP_PKEY* key) {
  CertificateHandle certificate(X509_new());
  if (!certificate) return nullptr;
  X509* raw = certificate.get();
  const bool good =
      X509_set_version(raw, X509_VERSION_3) == 1 && set_serial(raw) && set_time(X509_getm_notBefore(raw), subject.validity.not_before) &&
      set_time(X509_getm_notAfter(raw), subject.validity.not_after) && add_name(X509_get_subject_name(raw), "O", subject.organization) &&
      add_name(X509_get_subject_name(raw), "CN", subject.common_name) && X509_set_pubkey(raw, key) == 1;
  return good ? std::move(certificate) : nullptr;
}

Result<KeyAndCertificate> to_pem(X509* certificate, EVP_PKEY* key) {
  const BioHandle certificate_bio(BIO_new(BIO_s_mem()));
  const BioHandle key_bio(BIO_new(BIO_s_secmem()));
  if (!certificate_bio || !key_bio || PEM_write_bio_X509(certificate_bio.get(), certificate) != 1 ||
      PEM_write_bio_PKCS8PrivateKey(key_bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return refuse("write certificate", "encoding as PEM failed");
  }
  return KeyAndCertificate{bio_text(certificate_bio.get()), bio_text(key_bio.get())};
}

std::string common_name_of(X509* certificate) {
  std::array<char, 256> text{};
  const int size =
      X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, text.data(), static_cast<int>(text.size()));
  return size > 0 ? std::string(text.data(), static_cast<std::size_t>(size)) : std::string();
}

std::vector<std::string> identities_of(X509* certificate) {
  std::vector<std::string> identities;
  const NamesHandle names(static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int index = 0; names && index < sk_GENERAL_NAME_num(names.get()); ++index) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), index);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* uri = name->d.uniformResourceIdentifier;
    const auto* data = reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri));
    identities.emplace_back(data, static_cast<std::size_t>(ASN1_STRING_length(uri)));
  }
  return identities;
}

}  // namespace

Validity valid_for_days(WallTime now, int days) { return {now - std::chrono::minutes(5), now + std::chrono::hours(24) * days}; }

std::string agent_uri(std::string_view domain, std::string_view site) { return fmt::format("spiffe://{}/agent/{}", domain, site); }

Result<KeyAndCertificate> make_authority(const AuthorityRequest& request) {
  const std::string operation = "make authority";
  const KeyHandle key(EVP_EC_gen("P-256"));
  if (!key) return refuse(operation, "making a P-256 key failed");
  const CertificateHandle certificate = begin_certificate({"Sluice authority", request.run, request.validity}, key.get());
  if (!certificate) return refuse(operation, fmt::format("the certificate of run {} cannot be made", request.run));
  X509* raw = certificate.get();
  const bool good = X509_set_issuer_name(raw, X509_get_subject_name(raw)) == 1 &&
                    add_extension(raw, raw, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
                    add_extension(raw, raw, NID_key_usage, "critical,keyCertSign,cRLSign") &&
                    add_extension(raw, raw, NID_subject_key_identifier, "hash") && add_identities(raw, {"spiffe://" + request.domain}) &&
                    X509_sign(raw, key.get(), EVP_sha256()) > 0;
  if (!good) return refuse(operation, fmt::format("the certificate of run {} cannot be signed", request.run));
  return to_pem(raw, key.get());
}

Result<KeyAndCertificate> issue_certificate(const KeyAndCertificate& authority, const LeafRequest& request) {
  const std::string operation = "issue certificate";
  const CertificateHandle issuer = certificate_from_pem(authority.certificate_pem);
  const KeyHandle issuer_key = key_from_pem(authority.key_pem);
  if (!issuer || !issuer_key) return refuse(operation, "the authority's certificate or key is not PEM");
  if (X509_check_private_key(issuer.get(), issuer_key.get()) != 1)
    return refuse(operation, "the authority's key is of another certificate");
  const KeyHandle key(EVP_EC_gen("P-256"));
  if (!key) return refuse(operation, "making a P-256 key failed");
  const CertificateHandle certificate = begin_certificate({"Sluice", request.common_name, request.validity}, key.get());
  if (!certificate) return refuse(operation, fmt::format("the certificate of {} cannot be made", request.common_name));
  X509* raw = certificate.get();
  const char* usage = request.for_clients_and_servers ? "clientAuth,serverAuth" : "emailProtection";
  const bool good = X509_set_issuer_name(raw, X509_get_subject_name(issuer.get())) == 1 &&
                    add_extension(raw, issuer.get(), NID_basic_constraints, "critical,CA:FALSE") &&
                    add_extension(raw, issuer.get(), NID_key_usage, "critical,digitalSignature") &&
                    add_extension(raw, issuer.get(), NID_ext_key_usage, usage) &&
                    add_extension(raw, issuer.get(), NID_subject_key_identifier, "hash") &&
                    add_extension(raw, issuer.get(), NID_authority_key_identifier, "keyid:always") &&
                    add_identities(raw, request.identities) && X509_sign(raw, issuer_key.get(), EVP_sha256()) > 0;
  if (!good) return refuse(operation, fmt::format("the certificate of {} cannot be signed", request.common_name));
  return to_pem(raw, key.get());
}

Result<CertificateFacts> read_certificate(std::string_view pem) {
  const CertificateHandle certificate = certificate_from_pem(pem);
  if (!certificate) return refuse("read certificate", "not a certificate in PEM form");
  X509* raw = certificate.get();
  return CertificateFacts{common_name_of(raw),
                          identities_of(raw),
                          {read_time(X509_get0_notBefore(raw)), read_time(X509_get0_notAfter(raw))},
                          X509_check_ca(raw) == 1};
}

}  // namespace sluice::gateway
