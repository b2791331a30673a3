#include "gateway/admin_client.h"

#include <fmt/format.h>
#include <httplib.h>

#include <nlohmann/json.hpp>

namespace sluice::gateway {
namespace {

constexpr const char* kOperation = "ask gateway";

tl::unexpected<Error> refuse(const Endpoint& endpoint, const std::string& path, httplib::Error error) {
  const std::string where = fmt::format("http://{}{}", endpoint.to_string(), path);
  switch (error) {
    case httplib::Error::Connection:
    case httplib::Error::ConnectionTimeout:
      return fail(ErrorCode::kUnavailable, kOperation, fmt::format("no gateway answers at {}", where));
    case httplib::Error::Read:
      return fail(ErrorCode::kTimeout, kOperation, fmt::format("{} did not answer within {} s", where, kAdminClientTimeout.count()));
    case httplib::Error::Canceled:
      return fail(ErrorCode::kUnexpectedAnswer, kOperation, fmt::format("{} sent more than {} bytes", where, kAdminAnswerBytesMax));
    default:
      return fail(ErrorCode::kUnexpectedAnswer, kOperation, fmt::format("{}: {}", where, httplib::to_string(error)));
  }
}

}  // namespace

Result<nlohmann::json> fetch_admin_json(const Endpoint& endpoint, const std::string& path) {
  httplib::Client client(endpoint.host, endpoint.port);
  client.set_connection_timeout(kAdminClientTimeout);
  client.set_read_timeout(kAdminClientTimeout);
  client.set_keep_alive(false);
  std::string body;
  const auto response = client.Get(path.c_str(), [&](const char* data, std::size_t size) {
    body.append(data, size);
    return body.size() <= kAdminAnswerBytesMax;
  });
  if (!response) return refuse(endpoint, path, response.error());
  if (response->status != 200) {
    return fail(ErrorCode::kUnexpectedAnswer, kOperation,
                fmt::format("http://{}{} answered with status {}", endpoint.to_string(), path, response->status));
  }
  nlohmann::json document = nlohmann::json::parse(body, nullptr, false);
  if (document.is_discarded()) {
    return fail(ErrorCode::kUnexpectedAnswer, kOperation, fmt::format("http://{}{} is not JSON", endpoint.to_string(), path));
  }
  return document;
}

Result<nlohmann::json> post_admin_command(const Endpoint& endpoint, const std::string& path) {
  httplib::Client client(endpoint.host, endpoint.port);
  client.set_connection_timeout(kAdminClientTimeout);
  client.set_read_timeout(kAdminClientTimeout);
  client.set_keep_alive(false);
  const auto response = client.Post(path.c_str(), httplib::Headers{{"X-Sluice-Command", "1"}}, "", "text/plain");
  if (!response) return refuse(endpoint, path, response.error());
  nlohmann::json document = nlohmann::json::parse(response->body, nullptr, false);
  if (document.is_discarded()) {
    return fail(ErrorCode::kUnexpectedAnswer, kOperation, fmt::format("http://{}{} is not JSON", endpoint.to_string(), path));
  }
  if (response->status / 100 == 2) return document;
  return fail(response->status == 404 ? ErrorCode::kNotFound : ErrorCode::kUnexpectedAnswer, kOperation,
              fmt::format("http://{}{} answered with status {}", endpoint.to_string(), path, response->status));
}

}  // namespace sluice::gateway
