#include "site-agent/internal/byte_stream.h"

#include <fmt/format.h>
#include <openssl/x509v3.h>

#include <asio/ip/tcp.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/connect.hpp>
#include <asio/read.hpp>
#include <asio/redirect_error.hpp>
#include <asio/ssl.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/write.hpp>

namespace sluice::site_agent {
namespace {

using asio::redirect_error;
using asio::use_awaitable;

class UnixStream final : public ByteStream {
 public:
  UnixStream(asio::io_context& loop, std::string path) : socket_(loop), path_(std::move(path)) {}

  asio::awaitable<std::string> connect() override {
    std::error_code error;
    co_await socket_.async_connect(asio::local::stream_protocol::endpoint(path_), redirect_error(use_awaitable, error));
    co_return error ? fmt::format("{}: {}", path_, error.message()) : std::string();
  }
  asio::awaitable<std::error_code> read(asio::mutable_buffer buffer) override {
    std::error_code error;
    co_await asio::async_read(socket_, buffer, redirect_error(use_awaitable, error));
    co_return error;
  }
  void write(const std::vector<asio::const_buffer>& buffers, std::function<void(std::error_code)> done) override {
    asio::async_write(socket_, buffers, [done = std::move(done)](std::error_code error, std::size_t) { done(error); });
  }
  void close() override {
    std::error_code ignored;
    socket_.close(ignored);
  }

 private:
  asio::local::stream_protocol::socket socket_;
  std::string path_;
};

// Whether one of the certificate's URIs names a site of a run: spiffe://<domain>/site/<name>. An agent's certificate of the same
// authority must not pass for a gateway's.
bool names_a_site(X509* certificate) {
  auto* names = static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  if (names == nullptr) return false;
  int uris = 0;
  bool is_site = false;
  for (int index = 0; index < sk_GENERAL_NAME_num(names); ++index) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, index);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* text = name->d.uniformResourceIdentifier;
    const std::string uri(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)), static_cast<std::size_t>(ASN1_STRING_length(text)));
    ++uris;
    is_site = uri.starts_with("spiffe://") && uri.find("/site/", 9) != std::string::npos;
  }
  GENERAL_NAMES_free(names);
  return uris == 1 && is_site;
}

class TlsStream final : public ByteStream {
 public:
  TlsStream(asio::io_context& loop, std::shared_ptr<asio::ssl::context> context, GatewayAddress address)
      : context_(std::move(context)), resolver_(loop), stream_(loop, *context_), address_(std::move(address)) {}

  asio::awaitable<std::string> connect() override {
    const std::string target = address_.host + ":" + address_.port;
    std::error_code error;
    const auto found = co_await resolver_.async_resolve(address_.host, address_.port, redirect_error(use_awaitable, error));
    if (error) co_return fmt::format("{}: {}", target, error.message());
    co_await asio::async_connect(stream_.lowest_layer(), found, redirect_error(use_awaitable, error));
    if (error) co_return fmt::format("{}: {}", target, error.message());
    stream_.lowest_layer().set_option(asio::ip::tcp::no_delay(true), error);
    co_await stream_.async_handshake(asio::ssl::stream_base::client, redirect_error(use_awaitable, error));
    if (error) co_return fmt::format("{}: TLS handshake: {}", target, error.message());
    X509* certificate = SSL_get0_peer_certificate(stream_.native_handle());
    if (certificate == nullptr || !names_a_site(certificate)) {
      co_return fmt::format("{}: the certificate is not a gateway's (no spiffe://.../site/... URI)", target);
    }
    co_return std::string();
  }
  asio::awaitable<std::error_code> read(asio::mutable_buffer buffer) override {
    std::error_code error;
    co_await asio::async_read(stream_, buffer, redirect_error(use_awaitable, error));
    co_return error;
  }
  void write(const std::vector<asio::const_buffer>& buffers, std::function<void(std::error_code)> done) override {
    asio::async_write(stream_, buffers, [done = std::move(done)](std::error_code error, std::size_t) { done(error); });
  }
  void close() override {
    std::error_code ignored;
    resolver_.cancel();
    stream_.lowest_layer().close(ignored);
  }

 private:
  std::shared_ptr<asio::ssl::context> context_;
  asio::ip::tcp::resolver resolver_;
  asio::ssl::stream<asio::ip::tcp::socket> stream_;
  GatewayAddress address_;
};

Result<std::shared_ptr<asio::ssl::context>> make_tls_context(const TlsClientFiles& files) {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_client);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_3_VERSION);
  std::error_code error;
  const auto refused = [&](const std::string& file) {
    return fail(ErrorCode::kInvalidArgument, "read TLS file", fmt::format("{}: {}", file, error.message()));
  };
  context->load_verify_file(files.authority, error);
  if (error) return refused(files.authority);
  context->use_certificate_chain_file(files.certificate, error);
  if (error) return refused(files.certificate);
  context->use_private_key_file(files.key, asio::ssl::context::pem, error);
  if (error) return refused(files.key);
  context->set_verify_mode(asio::ssl::verify_peer, error);
  if (error) return refused("verify mode");
  return context;
}

}  // namespace

Result<GatewayAddress> parse_gateway_address(const std::string& text) {
  GatewayAddress address;
  if (text.starts_with("unix:") && text.size() > 5) {
    address.path = text.substr(5);
    if (address.path.size() < 108) return address;
    return fail(ErrorCode::kInvalidArgument, "read gateway address", "the path of a Unix socket has at most 107 bytes: " + address.path);
  }
  const std::size_t colon = text.rfind(':');
  if (text.starts_with("tls:") && colon > 4 && colon + 1 < text.size()) {
    address.is_unix = false;
    address.host = text.substr(4, colon - 4);
    address.port = text.substr(colon + 1);
    if (address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']') {
      address.host = address.host.substr(1, address.host.size() - 2);
    }
    return address;
  }
  return fail(ErrorCode::kInvalidArgument, "read gateway address", fmt::format("\"{}\" is neither unix:/path nor tls:host:port", text));
}

Result<std::unique_ptr<ByteStream>> make_byte_stream(asio::io_context& loop, const GatewayAddress& address, const TlsClientFiles& files) {
  if (address.is_unix) return std::make_unique<UnixStream>(loop, address.path);
  SLUICE_TRY(auto context, make_tls_context(files));
  return std::make_unique<TlsStream>(loop, std::move(context), address);
}

}  // namespace sluice::site_agent
