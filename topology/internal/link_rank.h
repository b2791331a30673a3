#pragma once

// Which of several statements about one pair of devices counts. Pure.

#include <array>
#include <string_view>

#include "topology/site_graph.h"

namespace sluice::topology {

inline bool is_fast_label(std::string_view label) {
  return label.starts_with("NV") || label.starts_with("XGMI") || label.starts_with("ICN");
}

// The higher one names the pair: NVLink and XGMI before everything, stated before derived, the earlier file before the later one. A
// measurement names nothing.
inline std::array<long, 3> label_rank(const Link& link) {
  const long basis = link.basis == LinkBasis::kStated ? 2 : link.basis == LinkBasis::kDerived ? 1 : 0;
  return {basis != 0 && is_fast_label(link.label) ? 1 : 0, basis, -static_cast<long>(link.file)};
}

// The higher one gives the speed: measured before stated before derived, among those with a speed; the earlier file before the later one.
inline std::array<long, 3> speed_rank(const Link& link) {
  const long basis = link.basis == LinkBasis::kMeasured ? 2 : link.basis == LinkBasis::kStated ? 1 : 0;
  return {link.gb_per_second ? 1 : 0, basis, -static_cast<long>(link.file)};
}

}  // namespace sluice::topology
