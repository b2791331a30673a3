#include "tests/support/wan_presets.h"

#include <array>
#include <span>

#include "base/ids.h"

namespace sluice::support {
namespace {

// One directed pair: Gbit/s and the round trip in ms, of which each direction takes half.
struct Measured {
  double gbps = 0.0;
  double rtt_ms = 0.0;
};

constexpr std::size_t kUsEuAp = 3;
constexpr std::array<std::string_view, kUsEuAp> kUsEuApRegions = {"us-east-1", "eu-west-1", "ap-northeast-1"};
constexpr std::array<std::array<Measured, kUsEuAp>, kUsEuAp> kUsEuApLinks = {{
    {{{}, {4.318, 84.936}, {3.653, 167.805}}},
    {{{4.311, 84.930}, {}, {3.140, 214.370}}},
    {{{3.657, 169.086}, {3.125, 214.353}, {}}},
}};

constexpr std::size_t kGlobal = 6;
constexpr std::array<std::string_view, kGlobal> kGlobalRegions = {"us-east-1",      "us-west-2",  "eu-central-1",
                                                                  "ap-southeast-1", "ap-south-1", "sa-east-1"};
constexpr std::array<std::array<Measured, kGlobal>, kGlobal> kGlobalLinks = {{
    {{{}, {4.352, 68.272}, {4.120, 89.818}, {3.026, 236.613}, {3.036, 187.628}, {3.912, 116.709}}},
    {{{4.347, 68.481}, {}, {3.652, 146.621}, {3.443, 168.912}, {2.904, 210.685}, {3.353, 186.747}}},
    {{{4.112, 89.784}, {3.661, 148.219}, {}, {3.499, 155.082}, {3.739, 113.929}, {3.089, 203.025}}},
    {{{3.045, 236.565}, {3.455, 163.740}, {3.502, 155.179}, {}, {4.373, 59.298}, {1.926, 360.053}}},
    {{{3.039, 187.711}, {2.930, 210.992}, {3.759, 113.931}, {4.385, 59.306}, {}, {1.947, 299.120}}},
    {{{3.906, 115.123}, {3.361, 186.733}, {3.080, 202.899}, {1.924, 357.898}, {1.938, 298.295}, {}}},
}};

struct Entry {
  std::string_view name;
  std::string_view description;
  std::uint16_t sites_max;
};

constexpr std::array<Entry, 5> kEntries = {{
    {"us-eu-ap", "AWS us-east-1, eu-west-1, ap-northeast-1: 85, 168 and 214 ms, 3.1 to 4.3 Gbit/s", kUsEuAp},
    {"global", "six AWS regions on five continents: 59 to 360 ms, 1.9 to 4.4 Gbit/s", kGlobal},
    {"200mbit", "200 Mbit/s on every link, no added delay", kSitesMax},
    {"lan", "10 Gbit/s on every link, 0.2 ms", kSitesMax},
    {"none", "no delay and no limit: the relay alone", kSitesMax},
}};

LinkShape make_shape(double bits_per_second, double rtt_ms) {
  LinkShape shape;
  shape.delay = std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(rtt_ms / 2.0));
  shape.rate = BitsPerSecond{bits_per_second};
  return shape;
}

template <std::size_t N>
void fill_measured(const std::array<std::string_view, N>& regions, const std::array<std::array<Measured, N>, N>& measured,
                   WanPreset& preset) {
  for (std::size_t from = 0; from < preset.links.size(); ++from) {
    preset.regions.emplace_back(regions.at(from));
    for (std::size_t to = 0; to < preset.links.size(); ++to) {
      preset.links[from][to] = make_shape(measured.at(from).at(to).gbps * 1e9, measured.at(from).at(to).rtt_ms);
    }
  }
}

void fill_uniform(const LinkShape& shape, WanPreset& preset) {
  for (std::size_t site = 0; site < preset.links.size(); ++site) preset.regions.emplace_back("site-" + std::to_string(site + 1));
  for (auto& row : preset.links) row.assign(preset.links.size(), shape);
}

}  // namespace

std::vector<std::string_view> wan_preset_names() {
  std::vector<std::string_view> names;
  for (const Entry& entry : kEntries) names.push_back(entry.name);
  return names;
}

Result<WanPreset> find_wan_preset(std::string_view name, std::uint16_t sites) {
  for (const Entry& entry : kEntries) {
    if (entry.name != name) continue;
    if (sites < 2 || sites > entry.sites_max) {
      return fail(ErrorCode::kInvalidArgument, "choose a WAN preset",
                  std::string(name) + " has 2 to " + std::to_string(entry.sites_max) + " sites, not " + std::to_string(sites));
    }
    WanPreset preset{std::string(name), std::string(entry.description), {}, {}};
    preset.links.assign(sites, std::vector<LinkShape>(sites));
    if (name == "us-eu-ap") fill_measured(kUsEuApRegions, kUsEuApLinks, preset);
    if (name == "global") fill_measured(kGlobalRegions, kGlobalLinks, preset);
    if (name == "200mbit") fill_uniform(make_shape(200e6, 0.0), preset);
    if (name == "lan") fill_uniform(make_shape(10e9, 0.2), preset);
    if (name == "none") fill_uniform(LinkShape{}, preset);
    return preset;
  }
  std::string known;
  for (const auto other : wan_preset_names()) known += (known.empty() ? "" : ", ") + std::string(other);
  return fail(ErrorCode::kNotFound, "choose a WAN preset", std::string(name) + " is not known; there are " + known);
}

}  // namespace sluice::support
