#pragma once

// Gateways' links on loopback in one process, driven by one loop without sleeping: run_until turns the loop until a condition holds or a
// deadline passes. Each node records what it is told.

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <asio/io_context.hpp>

#include "base/clock.h"
#include "gateway/peer_links.h"
#include "tests/support/test_certificates.h"

namespace sluice::test {

// False when the condition did not come true in time.
inline bool run_until(asio::io_context& loop, const std::function<bool()>& condition,
                      std::chrono::milliseconds limit = std::chrono::seconds(20)) {
  const TimePoint deadline = Clock::now() + limit;
  while (!condition()) {
    if (Clock::now() >= deadline) return false;
    loop.restart();
    loop.run_one_for(std::chrono::milliseconds(5));
    loop.poll();
  }
  return true;
}

struct LinkNode {
  std::unique_ptr<gateway::PeerLinks> links;
  std::vector<std::pair<SiteId, bool>> ups;
  std::vector<std::pair<SiteId, std::string>> downs;
  std::vector<wire::PeerMessage> controls;
  std::vector<gateway::FrameRecord> frames;
  std::vector<std::pair<std::string, std::string>> refusals;
  int drained = 0;

  [[nodiscard]] bool was_refused(const std::string& label) const {
    for (const auto& [reason, detail] : refusals) {
      if (reason == label) return true;
    }
    return false;
  }
  gateway::PeerLinks::Callbacks callbacks() {
    gateway::PeerLinks::Callbacks callbacks;
    callbacks.on_up = [this](SiteId site, bool is_new) { ups.emplace_back(site, is_new); };
    callbacks.on_down = [this](SiteId site, std::string reason) { downs.emplace_back(site, std::move(reason)); };
    callbacks.on_control = [this](SiteId, const wire::PeerMessage& message) { controls.push_back(message); };
    callbacks.on_frame = [this](SiteId, gateway::FrameRecord frame) { frames.push_back(std::move(frame)); };
    callbacks.on_drained = [this](SiteId) { ++drained; };
    callbacks.on_refused = [this](std::string_view reason, std::string detail) { refusals.emplace_back(reason, std::move(detail)); };
    return callbacks;
  }
};

// Site k of sites "s0", "s1", ...; the peers' ports are filled in by the test.
inline gateway::PeerLinksConfig link_config(std::uint16_t self, std::uint16_t sites) {
  gateway::PeerLinksConfig config;
  config.run = "run";
  config.domain = TestCertificates::kDomain;
  config.self = SiteId(self);
  config.self_name = "s" + std::to_string(self);
  config.listen_host = "127.0.0.1";
  config.streams = 2;
  config.shared_digest = 7;
  config.boot_id = 100U + self;
  config.io_threads = 1;
  for (std::uint16_t site = 0; site < sites; ++site) {
    if (site != self) config.peers.push_back({SiteId(site), "s" + std::to_string(site), "127.0.0.1", 0});
  }
  return config;
}

// Sites 0 and 1; site 0 dials. `change` may adapt either configuration before the links are made.
class LinkPair {
 public:
  using Change = std::function<void(gateway::PeerLinksConfig&)>;

  explicit LinkPair(const Change& change = {}, gateway::TlsRecords records = gateway::TlsRecords::kEncrypted) {
    certificates.records = records;
    start_acceptor(change);
    start_dialler(change);
  }
  void start_acceptor(const Change& change = {}, std::uint16_t port = 0) {
    auto config = link_config(1, 2);
    config.listen_port = port;
    if (change) change(config);
    acceptor.links =
        std::make_unique<gateway::PeerLinks>(loop, config, acceptor_tls ? acceptor_tls : certificates.site("s1"), acceptor.callbacks());
    const Status started = acceptor.links->start();
    SLUICE_ASSERT(started.has_value(), "{}", started.error().to_string());
    acceptor_port = acceptor.links->listening_port();
  }
  void start_dialler(const Change& change = {}) {
    auto config = link_config(0, 2);
    config.peers[0].port = acceptor_port;
    if (change) change(config);
    dialler.links =
        std::make_unique<gateway::PeerLinks>(loop, config, dialler_tls ? dialler_tls : certificates.site("s0"), dialler.callbacks());
    const Status started = dialler.links->start();
    SLUICE_ASSERT(started.has_value(), "{}", started.error().to_string());
  }
  bool until(const std::function<bool()>& condition, std::chrono::milliseconds limit = std::chrono::seconds(20)) {
    return run_until(loop, condition, limit);
  }
  [[nodiscard]] bool both_up() const { return dialler.links->is_up(SiteId(1)) && acceptor.links->is_up(SiteId(0)); }

  asio::io_context loop;
  TestCertificates certificates;
  std::shared_ptr<const gateway::TlsContext> dialler_tls;  // null = a good one
  std::shared_ptr<const gateway::TlsContext> acceptor_tls;
  LinkNode dialler;
  LinkNode acceptor;
  std::uint16_t acceptor_port = 0;
};

inline gateway::FrameRecord test_frame(std::uint32_t chunk, std::size_t bytes) {
  ByteVector data(bytes);
  for (std::size_t index = 0; index < bytes; ++index) data[index] = static_cast<std::uint8_t>(chunk * 31 + index * 7);
  wire::FrameEnvelope envelope;
  envelope.chunk = chunk;
  envelope.role = static_cast<std::uint16_t>(wire::FrameRole::kContribution);
  return {envelope, std::make_shared<const ByteVector>(std::move(data))};
}

}  // namespace sluice::test
