// sluice_wan_relay FILE: runs a WAN relay from a JSON file (docs/reference/demo.md), prints the ports it listens on as one line of
// JSON, and obeys one JSON command a line on standard input until that ends: a parent that dies takes its relay along.
//   file:     {"sites":3,"preset":"us-eu-ap","routes":[{"from":0,"to":1,"target":7001,"listen":0},...],
//              "links":[{"from":0,"to":1,"delay_ms":42,"rate_mbit":200,"queue_kib":256}],"egress":[{"site":0,"rate_mbit":500}]}
//   commands: {"links":[{"from":0,"to":1,"blackhole":true}]}   {"egress":[...]}   {"counters":true}
#include <csignal>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/wan_presets.h"
#include "tests/support/wan_relay.h"

namespace {

using nlohmann::json;
using sluice::BitsPerSecond;
using sluice::ErrorCode;
using sluice::Result;
using sluice::SiteId;
using sluice::Status;
using sluice::support::LinkShape;
using sluice::support::WanPreset;
using sluice::support::WanRelay;

constexpr std::size_t kCommandBytesMax = 1 << 20;

SiteId site_of(const json& object, const char* key, std::uint16_t sites) {
  const auto site = object.at(key).get<std::uint16_t>();
  if (site >= sites) throw std::out_of_range(std::string(key) + " is " + std::to_string(site) + " of " + std::to_string(sites) + " sites");
  return SiteId(site);
}

// The link's present shape with the fields that `change` names replaced.
LinkShape changed(LinkShape shape, const json& change) {
  if (change.contains("delay_ms")) {
    const std::chrono::duration<double, std::milli> delay(change["delay_ms"].get<double>());
    shape.delay = std::chrono::duration_cast<sluice::Duration>(delay);
  }
  if (change.contains("rate_mbit")) shape.rate = BitsPerSecond{change["rate_mbit"].get<double>() * 1e6};
  if (change.contains("queue_kib")) shape.queue_bytes = change["queue_kib"].get<std::size_t>() * sluice::kKiB;
  if (change.contains("blackhole")) shape.is_blackhole = change["blackhole"].get<bool>();
  return shape;
}

// Throws what nlohmann::json throws and std::out_of_range; main turns both into a message.
void apply(const json& settings, WanPreset& wan, WanRelay& relay) {
  const auto sites = static_cast<std::uint16_t>(wan.links.size());
  for (const json& change : settings.value("links", json::array())) {
    const SiteId from = site_of(change, "from", sites);
    const SiteId to = site_of(change, "to", sites);
    if (from == to) throw std::out_of_range("a link leads from a site to itself");
    LinkShape& shape = wan.links[from.value][to.value];
    shape = changed(shape, change);
    relay.set_link(from, to, shape);
  }
  for (const json& change : settings.value("egress", json::array())) {
    relay.set_egress_rate(site_of(change, "site", sites), BitsPerSecond{change.at("rate_mbit").get<double>() * 1e6});
  }
}

json counters(const WanRelay& relay, std::uint16_t sites) {
  json all = json::array();
  for (std::uint16_t from = 0; from < sites; ++from) {
    for (std::uint16_t to = 0; to < sites; ++to) {
      if (from == to) continue;
      const auto link = relay.counters(SiteId(from), SiteId(to));
      all.push_back({{"from", from},
                     {"to", to},
                     {"bytes_entered", link.bytes_entered},
                     {"bytes_delivered", link.bytes_delivered},
                     {"connections", link.connections}});
    }
  }
  return json{{"counters", all}};
}

Result<json> open_routes(const json& settings, std::uint16_t sites, WanRelay& relay) {
  json ports = json::array();
  for (const json& route : settings.at("routes")) {
    const SiteId from = site_of(route, "from", sites);
    const SiteId to = site_of(route, "to", sites);
    if (from == to) throw std::out_of_range("a route leads from a site to itself");
    const auto target = route.at("target").get<std::uint16_t>();
    SLUICE_TRY(const auto port, relay.add_route(from, to, target, route.value("listen", std::uint16_t{0})));
    ports.push_back({{"from", from.value}, {"to", to.value}, {"port", port}});
  }
  return json{{"ports", ports}};
}

Status run(const std::string& path) {
  std::ifstream file(path);
  if (!file) return sluice::fail(ErrorCode::kNotFound, "read the relay's settings", path);
  const json settings = json::parse(file);
  const auto sites = settings.at("sites").get<std::uint16_t>();
  SLUICE_TRY(WanPreset wan, sluice::support::find_wan_preset(settings.value("preset", std::string("none")), sites));
  WanRelay relay(sites);
  apply_wan_preset(wan, relay);
  apply(settings, wan, relay);
  SLUICE_TRY(json ports, open_routes(settings, sites, relay));
  ports["regions"] = wan.regions;
  ports["description"] = wan.description;
  relay.start();
  std::cout << ports.dump() << std::endl;
  for (std::string line; std::getline(std::cin, line) && line.size() < kCommandBytesMax;) {
    const json command = json::parse(line);
    apply(command, wan, relay);
    std::cout << (command.value("counters", false) ? counters(relay, sites) : json{{"ok", true}}).dump() << std::endl;
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: sluice_wan_relay FILE.json\n";
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);
  try {
    const Status status = run(argv[1]);
    if (status) return 0;
    std::cerr << "sluice_wan_relay: " << status.error().to_string() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "sluice_wan_relay: " << argv[1] << ": " << error.what() << "\n";
  }
  return 1;
}
