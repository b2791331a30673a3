#include "gateway/internal/greeting.h"

#include <algorithm>

#include <fmt/format.h>

#include "gateway/limits.h"
#include "proto/record.h"

namespace sluice::gateway::internal {
namespace {

constexpr std::size_t kGoodbyeTextMax = 48 * 1024;  // fits a hello-sized record
constexpr std::size_t kShownTextMax = 512;

std::string settings_detail(const PeerLinksConfig& config, std::string_view peer, std::string_view theirs) {
  std::string detail = fmt::format("the shared settings of {} and {} differ", config.self_name, peer);
  if (!theirs.empty() && config.explain_settings) detail += ": " + config.explain_settings(theirs);
  return detail;
}

}  // namespace

wire::PeerMessage make_hello(const PeerLinksConfig& config, unsigned stream_index) {
  wire::PeerMessage message;
  wire::Hello& hello = *message.mutable_hello();
  hello.set_protocol_min(wire::kProtocolVersion);
  hello.set_protocol_max(wire::kProtocolVersion);
  hello.set_run(config.run);
  hello.set_site(config.self_name);
  hello.set_shared_digest(config.shared_digest);
  hello.set_boot_id(config.boot_id);
  hello.set_stream_index(stream_index);
  hello.set_streams(config.streams);
  hello.set_heartbeat_interval_us(
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(config.heartbeat_interval).count()));
  return message;
}

wire::PeerMessage make_goodbye(ErrorCode code, std::string detail) {
  wire::PeerMessage message;
  detail.resize(std::min(detail.size(), kGoodbyeTextMax));
  message.mutable_goodbye()->set_error_code(static_cast<std::uint32_t>(code));
  message.mutable_goodbye()->set_detail(std::move(detail));
  return message;
}

std::optional<GreetingRefusal> check_hello(const wire::Hello& hello, const PeerLinksConfig& config, std::string_view peer) {
  const auto refuse = [](std::string label, ErrorCode code, std::string detail) {
    return GreetingRefusal{std::move(label), code, detail, detail};
  };
  if (hello.protocol_min() > wire::kProtocolVersion || hello.protocol_max() < wire::kProtocolVersion) {
    return refuse("protocol", ErrorCode::kLinkProtocol,
                  fmt::format("{} speaks protocol {} to {}, {} speaks {}: upgrade the older one", peer, hello.protocol_min(),
                              hello.protocol_max(), config.self_name, wire::kProtocolVersion));
  }
  if (hello.run() != config.run) {
    return refuse("run_mismatch", ErrorCode::kRunMismatch,
                  fmt::format("{} belongs to run \"{}\", {} to run \"{}\"", peer, hello.run().substr(0, kShownTextMax), config.self_name,
                              config.run));
  }
  if (hello.site() != peer) {
    return refuse("san", ErrorCode::kTlsIdentity,
                  fmt::format("it calls itself \"{}\" and holds the certificate of {}", hello.site().substr(0, kShownTextMax), peer));
  }
  if (hello.shared_digest() != config.shared_digest) {
    const std::string detail = settings_detail(config, peer, {});
    const std::string goodbye = config.shared_settings.empty() ? detail : config.shared_settings;
    return GreetingRefusal{"settings_mismatch", ErrorCode::kConfigMismatch, detail, goodbye};
  }
  const std::uint64_t heartbeat_us = hello.heartbeat_interval_us();
  if (hello.boot_id() == 0 || hello.stream_index() > kStreamsMax || heartbeat_us == 0 || heartbeat_us > kHeartbeatIntervalUsMax) {
    return refuse("protocol", ErrorCode::kLinkProtocol, "a field of its hello is out of range");
  }
  return std::nullopt;
}

GreetingRefusal explain_goodbye(const wire::Goodbye& goodbye, const PeerLinksConfig& config, std::string_view peer) {
  const std::uint32_t number = goodbye.error_code();
  if (number == static_cast<std::uint32_t>(ErrorCode::kConfigMismatch)) {
    return {"settings_mismatch", ErrorCode::kConfigMismatch, settings_detail(config, peer, goodbye.detail()), config.shared_settings};
  }
  const std::string shown = fmt::format("{} refuses: {}", peer, goodbye.detail().substr(0, kShownTextMax));
  if (number == static_cast<std::uint32_t>(ErrorCode::kRunMismatch)) return {"run_mismatch", ErrorCode::kRunMismatch, shown, ""};
  const auto code = number == 0 || number > 999 ? ErrorCode::kLinkClosed : static_cast<ErrorCode>(number);
  return {"", code, shown, ""};
}

}  // namespace sluice::gateway::internal
