#pragma once

// Owning pointers for OpenSSL's objects, and its error queue as text.

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

namespace sluice::gateway::internal {

struct OpensslDeleter {
  void operator()(SSL* object) const { SSL_free(object); }
  void operator()(BIO_METHOD* object) const { BIO_meth_free(object); }
  void operator()(X509_STORE_CTX* object) const { X509_STORE_CTX_free(object); }
  void operator()(GENERAL_NAMES* object) const { GENERAL_NAMES_free(object); }
};

using SslPtr = std::unique_ptr<SSL, OpensslDeleter>;
using BioMethodPtr = std::unique_ptr<BIO_METHOD, OpensslDeleter>;
using X509StoreContextPtr = std::unique_ptr<X509_STORE_CTX, OpensslDeleter>;
using GeneralNamesPtr = std::unique_ptr<GENERAL_NAMES, OpensslDeleter>;

// The oldest error of this thread's queue, which is emptied: a stale entry would be taken for an error of the next connection.
inline std::string take_openssl_error() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (code == 0) return "no reason given";
  const char* reason = ERR_reason_error_string(code);
  return reason != nullptr ? reason : "error " + std::to_string(code);
}

}  // namespace sluice::gateway::internal
