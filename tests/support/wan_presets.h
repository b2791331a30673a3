#pragma once

// Named WANs for the relay: measured rates and round trips between cloud regions, and a few synthetic ones. Pure; any thread.
// Measured figures: profiles/throughput.csv (64 TCP flows for 5 s, counted at the receiver) and profiles/latency.csv of the Skyplane
// project, 2022.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "tests/support/link_clock.h"

namespace sluice::support {

struct WanPreset {
  std::string name;
  std::string description;
  std::vector<std::string> regions;           // one per site
  std::vector<std::vector<LinkShape>> links;  // [from][to]; the diagonal is not used
};

// Every name that find_wan_preset() knows.
std::vector<std::string_view> wan_preset_names();

// The preset cut to its first `sites` sites; synthetic ones exist for any number. Fails with kNotFound for an unknown name and with
// kInvalidArgument when the preset has fewer sites.
Result<WanPreset> find_wan_preset(std::string_view name, std::uint16_t sites);

// Applies a preset's links to anything with set_link(SiteId, SiteId, LinkShape).
template <typename Relay>
void apply_wan_preset(const WanPreset& preset, Relay& relay) {
  for (std::uint16_t from = 0; from < preset.links.size(); ++from) {
    for (std::uint16_t to = 0; to < preset.links.size(); ++to) {
      if (from != to) relay.set_link(SiteId(from), SiteId(to), preset.links[from][to]);
    }
  }
}

}  // namespace sluice::support
