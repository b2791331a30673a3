#pragma once

// One connection to the gateway as a stream of bytes: a Unix socket, or TCP with TLS 1.3 and both sides authenticated. IO thread only.
// close() may be called at any time and ends what is pending. Errors are std::error_code with Asio's and OpenSSL's texts, and
// kIdentity when the other side's certificate is of our authority but no gateway's.

#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include <asio/awaitable.hpp>
#include <asio/buffer.hpp>
#include <asio/io_context.hpp>

#include "base/result.h"

namespace sluice::site_agent {

struct GatewayAddress {
  bool is_unix = true;
  std::string path;  // Unix
  std::string host;  // TCP
  std::string port;
};
// "unix:/path" or "tls:host:port" ("tls:[::1]:7401"). Errors: kInvalidArgument.
Result<GatewayAddress> parse_gateway_address(const std::string& text);

// PEM files of this agent and of the run's authority.
struct TlsClientFiles {
  std::string certificate;
  std::string key;
  std::string authority;
};

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Returns an empty text when the stream is usable, otherwise why not.
  virtual asio::awaitable<std::string> connect() = 0;
  // Fills the whole buffer.
  virtual asio::awaitable<std::error_code> read(asio::mutable_buffer buffer) = 0;
  // The buffers stay valid until `done`. One write at a time.
  virtual void write(const std::vector<asio::const_buffer>& buffers, std::function<void(std::error_code)> done) = 0;
  virtual void close() = 0;
};

// Errors: kInvalidArgument (unreadable certificate files).
Result<std::unique_ptr<ByteStream>> make_byte_stream(asio::io_context& loop, const GatewayAddress& address, const TlsClientFiles& files);

}  // namespace sluice::site_agent
