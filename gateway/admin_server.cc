#include "gateway/admin_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <httplib.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "gateway/internal/dashboard_page.h"
#include "gateway/internal/http_workers.h"

namespace sluice::gateway {
namespace {

using httplib::Request;
using httplib::Response;

// With a charset the library leaves the body as it is. Compressing it costs more than loopback does.
constexpr const char* kJson = "application/json; charset=utf-8";
constexpr const char* kText = "text/plain; charset=utf-8";
constexpr const char* kExposition = "text/plain; version=0.0.4; charset=utf-8";

void answer_text(Response& response, int status, const std::string& text) {
  response.status = status;
  response.set_content(text, kText);
}

void answer_json(Response& response, const nlohmann::json& document) { response.set_content(dump_json(document) + "\n", kJson); }

void answer_error(Response& response, int status, const std::string& text) {
  response.status = status;
  answer_json(response, {{"error", text}});
}

// "127.0.0.1:7480", "[::1]:7480", "localhost" without their ports and brackets.
std::string host_without_port(const std::string& host) {
  if (host.starts_with('[')) return host.substr(1, host.find(']') - 1);
  return host.substr(0, host.find(':'));
}

struct Check {
  const char* name;
  bool is_good;
};

// The checks and, when one of them fails or all are asked for, a line for each, as Kubernetes' own components print them.
void answer_checks(const Request& request, Response& response, const char* what, const std::vector<Check>& checks) {
  bool is_good = true;
  std::string lines;
  for (const Check& check : checks) {
    is_good = is_good && check.is_good;
    lines += fmt::format("[{}]{} {}\n", check.is_good ? '+' : '-', check.name, check.is_good ? "ok" : "failed");
  }
  const std::string verdict = fmt::format("{}{}\n", is_good ? "" : "not ", what);
  answer_text(response, is_good ? 200 : 503, request.has_param("verbose") || !is_good ? lines + verdict : verdict);
}

// ?rounds=N; nothing when N is not a number.
std::optional<std::size_t> rounds_wanted(const Request& request) {
  if (!request.has_param("rounds")) return kRoundHistoryMax;
  const std::string text = request.get_param_value("rounds");
  std::size_t number = 0;
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return std::min(number, kRoundHistoryMax);
}

// Without SO_REUSEPORT, which the library would set: two gateways on one port must not both start.
void set_listener_options(socket_t listener) {
  const int yes = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
}

std::string make_nonce() {
  std::random_device entropy;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", entropy(), entropy(), entropy(), entropy());
}

}  // namespace

constexpr const char* kProbePath = "/api/v1/wan/probe";
constexpr const char* kCommandHeader = "X-Sluice-Command";

struct AdminServer::Impl {
  Impl(AdminOptions options_, const StatusBoard& board_, const Metrics& metrics_)
      : options(std::move(options_)), board(board_), metrics(metrics_) {}

  void set_up();
  void add_pages();
  void answer_dashboard(Response& response) const;
  httplib::Server::HandlerResponse screen(const Request& request, Response& response) const;
  // Calls answer(snapshot) or says that there is none yet.
  template <typename Answer>
  void with_snapshot(Response& response, Answer&& answer) const;

  AdminOptions options;
  const StatusBoard& board;
  const Metrics& metrics;
  httplib::Server server;
  std::thread listener;
  std::atomic<bool> has_ended{false};
  std::uint16_t port = 0;
};

template <typename Answer>
void AdminServer::Impl::with_snapshot(Response& response, Answer&& answer) const {
  const auto published = board.current();
  if (!published.snapshot) return answer_error(response, 503, "the gateway is starting");
  answer(*published.snapshot);
}

void AdminServer::Impl::set_up() {
  server.new_task_queue = [] { return new HttpWorkers(kAdminThreads, kAdminQueueMax); };
  server.set_socket_options(set_listener_options);
  // One request a connection: no thread is held by a browser that may ask again.
  server.set_keep_alive_max_count(1);
  server.set_keep_alive_timeout(std::max<time_t>(1, std::chrono::ceil<std::chrono::seconds>(options.io_timeout).count()));
  server.set_read_timeout(options.io_timeout);
  server.set_write_timeout(options.io_timeout);
  server.set_payload_max_length(1024);
  server.set_default_headers({{"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"}});
  server.set_pre_routing_handler([this](const Request& request, Response& response) { return screen(request, response); });
  server.set_exception_handler([](const Request&, Response& response, std::exception_ptr) { answer_error(response, 500, "internal"); });
  server.set_error_handler([](const Request&, Response& response) {
    if (!response.body.empty()) return;
    answer_error(response, response.status,
                 "see /, /metrics, /livez, /readyz, /api/v1/status, /api/v1/links, /api/v1/rounds, /api/v1/wan, "
                 "/api/v1/topology");
  });
  add_pages();
}

// Runs before a body is read. A page of another site that had its name resolved to 127.0.0.1 still sends its own name as the host.
httplib::Server::HandlerResponse AdminServer::Impl::screen(const Request& request, Response& response) const {
  if (!is_loopback_host(host_without_port(request.get_header_value("Host")))) {
    answer_error(response, 403, "the Host header does not name this machine's loopback address");
  } else if (request.method == "POST" && request.path == kProbePath && options.probe && request.has_header(kCommandHeader)) {
    return httplib::Server::HandlerResponse::Unhandled;
  } else if (request.method != "GET" && request.method != "HEAD") {
    response.set_header("Allow", "GET, HEAD");
    answer_error(response, 405, "the admin interface only reads");
  } else {
    return httplib::Server::HandlerResponse::Unhandled;
  }
  return httplib::Server::HandlerResponse::Handled;
}

void AdminServer::Impl::add_pages() {
  server.Get("/", [this](const Request&, Response& response) { answer_dashboard(response); });
  server.Get("/metrics", [this](const Request&, Response& response) { response.set_content(metrics.render(), kExposition); });
  const auto answer_live = [this](const Request& request, Response& response) {
    const auto published = board.current();
    const bool is_limited = options.loop_silence_max.count() > 0 && published.snapshot != nullptr;
    const bool is_silent = is_limited && Clock::now() - published.at > options.loop_silence_max;
    answer_checks(request, response, "alive", {{"loop", !is_silent}});
  };
  server.Get("/livez", answer_live);
  server.Get("/healthz", answer_live);
  server.Get("/readyz", [this](const Request& request, Response& response) {
    const auto published = board.current();
    const Readiness ready = published.snapshot ? published.snapshot->readiness : Readiness{};
    answer_checks(request, response, "ready",
                  {{"config", ready.is_config_loaded},
                   {"wan-listener", ready.is_wan_listener_up},
                   {"agent-socket", ready.is_agent_socket_up},
                   {"certificate", ready.is_certificate_valid},
                   {"store", ready.is_store_writable}});
  });
  server.Get("/api/v1/status", [this](const Request& request, Response& response) {
    const auto rounds = rounds_wanted(request);
    if (!rounds) return answer_error(response, 400, "rounds is no number");
    with_snapshot(response, [&](const StatusSnapshot& snapshot) { answer_json(response, to_json(snapshot, *rounds)); });
  });
  server.Get("/api/v1/links", [this](const Request&, Response& response) {
    with_snapshot(response, [&](const StatusSnapshot& snapshot) {
      answer_json(response, {{"site", snapshot.site}, {"links", links_to_json(snapshot)}});
    });
  });
  server.Get("/api/v1/wan", [this](const Request&, Response& response) {
    with_snapshot(response, [&](const StatusSnapshot& snapshot) { answer_json(response, wan_to_json(snapshot)); });
  });
  server.Get("/api/v1/topology", [this](const Request&, Response& response) {
    with_snapshot(response, [&](const StatusSnapshot& snapshot) { answer_json(response, topology_to_json(snapshot)); });
  });
  server.Post(kProbePath, [this](const Request& request, Response& response) {
    with_snapshot(response, [&](const StatusSnapshot& snapshot) {
      const std::string peer = request.get_param_value("peer");
      const bool is_known =
          std::any_of(snapshot.links.begin(), snapshot.links.end(), [&](const LinkStatus& link) { return link.peer == peer; });
      if (!is_known) return answer_error(response, 404, "no such peer");
      options.probe(peer);
      answer_json(response, {{"peer", peer}, {"window", "started, or refused: see /api/v1/wan"}});
      response.status = 202;
    });
  });
  server.Get("/api/v1/rounds", [this](const Request& request, Response& response) {
    const auto rounds = rounds_wanted(request);
    if (!rounds) return answer_error(response, 400, "rounds is no number");
    with_snapshot(response, [&](const StatusSnapshot& snapshot) {
      answer_json(response, {{"site", snapshot.site}, {"rounds", rounds_to_json(snapshot, *rounds)}});
    });
  });
}

// The page may run its own script, and talk to this server: nothing else, whatever a site's name or a message may contain.
void AdminServer::Impl::answer_dashboard(Response& response) const {
  const std::string nonce = make_nonce();
  std::string page(kDashboardPage);
  for (std::size_t at = page.find(kDashboardNonce); at != std::string::npos; at = page.find(kDashboardNonce, at)) {
    page.replace(at, kDashboardNonce.size(), nonce);
  }
  response.set_header(
      "Content-Security-Policy",
      fmt::format("default-src 'none'; script-src 'nonce-{}'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
                  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
                  nonce));
  response.set_header("Referrer-Policy", "no-referrer");
  response.set_content(std::move(page), "text/html; charset=utf-8");
}

AdminServer::AdminServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AdminServer::~AdminServer() { stop(); }

Result<std::unique_ptr<AdminServer>> AdminServer::start(AdminOptions options, const StatusBoard& board, const Metrics& metrics) {
  const std::string operation = fmt::format("listen for admin requests on {}:{}", options.host, options.port);
  if (!is_loopback_host(options.host)) {
    return fail(ErrorCode::kListen, operation, "not a loopback address; the admin interface has no authentication");
  }
  if (options.host == "localhost") options.host = "127.0.0.1";  // not what a hosts file makes of it
  auto impl = std::make_unique<Impl>(std::move(options), board, metrics);
  impl->set_up();
  const int wanted = impl->options.port;
  const int bound = wanted == 0                                             ? impl->server.bind_to_any_port(impl->options.host)
                    : impl->server.bind_to_port(impl->options.host, wanted) ? wanted
                                                                            : -1;
  if (bound <= 0) return fail(ErrorCode::kListen, operation, std::strerror(errno));
  impl->port = static_cast<std::uint16_t>(bound);
  Impl& running = *impl;
  impl->listener = std::thread([&running] {
    running.server.listen_after_bind();
    running.has_ended = true;
  });
  // stop() has no effect before the library's loop runs.
  while (!running.server.is_running() && !running.has_ended) std::this_thread::yield();
  return std::unique_ptr<AdminServer>(new AdminServer(std::move(impl)));
}

std::uint16_t AdminServer::port() const { return impl_->port; }

std::string AdminServer::url() const {
  const std::string& host = impl_->options.host;
  return fmt::format("http://{}:{}/", host.find(':') == std::string::npos ? host : "[" + host + "]", impl_->port);
}

void AdminServer::stop() {
  impl_->server.stop();
  if (impl_->listener.joinable()) impl_->listener.join();
}

bool is_loopback_host(const std::string& host) {
  if (host == "localhost") return true;
  std::array<std::uint8_t, 16> address{};
  if (::inet_pton(AF_INET, host.c_str(), address.data()) == 1) return address[0] == 127;
  if (::inet_pton(AF_INET6, host.c_str(), address.data()) == 1) {
    std::array<std::uint8_t, 16> loopback{};
    loopback.back() = 1;
    return address == loopback;
  }
  return false;
}

}  // namespace sluice::gateway
