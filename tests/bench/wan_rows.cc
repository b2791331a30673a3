#include "tests/bench/wan_rows.h"

#include <algorithm>

namespace sluice::bench {

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0.0 : values[values.size() / 2];
}

RigOptions rig_options(const WanCase& self, const WanBenchOptions& options, std::uint64_t values) {
  RigOptions rig;
  rig.self = options.self;
  rig.program = options.program;
  rig.directory = options.directory / self.name;
  rig.values = values;
  rig.fleet.round = "{deadline: 120s, open_grace: 30s, commit_deadline: 60s}";
  rig.fleet.streams = options.streams;
  rig.fleet.wan = ", congestion: " + options.congestion;
  rig.fleet.extra = "log: {level: warning}\n";
  return rig;
}

WanRow unavailable_row(const WanCase& self, const std::string& reason, const std::string& target) {
  return {self.name, self.what, "not available: " + reason, target, std::nullopt, {}};
}

}  // namespace sluice::bench
