#pragma once

#include <optional>

namespace sluice::topology {

// GB/s of one NVLink lane as NCCL takes it, by compute capability (80 is 8.0).
inline std::optional<double> nvlink_gb_per_second(int compute_capability) {
  if (compute_capability < 60) return std::nullopt;
  if (compute_capability >= 100) return 40.1;
  if (compute_capability >= 90) return 20.6;
  if (compute_capability == 86) return 12.0;
  return compute_capability >= 70 ? 20.0 : 18.0;
}

}  // namespace sluice::topology
