#pragma once

// What a step costs: bits of each contribution and of the update, bytes on each link, seconds of the slowest. Built for one decision; pure.

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "compression/sketch.h"
#include "sync/ratio_controller.h"
#include "topology/wan_planner.h"

namespace sluice::sync {

// Deltas of different sites correlate by about this much (measured, 0.2 to 0.26 in every round).
inline constexpr double kDeltaCorrelation = 0.22;
// Beside a frame's payload: its header and trailer, the record's header and envelope. TLS adds 22 bytes to each 16 KiB.
inline constexpr double kFrameOverheadBytes = 96.0;
inline constexpr double kTlsFactor = 1.0 + 22.0 / 16384.0;

struct RateBits {
  std::vector<double> contributions;  // by member, per value
  double update = 0.0;
  [[nodiscard]] double mean() const;
};
// Of contributions that are not coded. Sums of both plain codecs are RAW32.
RateBits plain_bits(std::uint8_t codec, std::size_t members);

class RateModel {
 public:
  // `correction`: measured over predicted bits by member. `excess`: bits of the update beyond those of independent contributions; when not
  // known it follows from kDeltaCorrelation.
  RateModel(const std::vector<RateMember>& members, std::uint64_t values, std::uint32_t chunks, std::vector<double> correction,
            std::optional<double> excess);

  [[nodiscard]] bool has_sketch() const { return !sketches_.empty(); }
  [[nodiscard]] RateBits bits(float step) const;
  // Without corrections: what the sketches alone say.
  [[nodiscard]] double sketch_bits(std::size_t member, float step) const;
  [[nodiscard]] double sketch_update_bits(float step) const { return compression::predict_sum_bits(sketches_, step); }
  // The smallest step that `fits`, which holds from some step on: steps have 9 significant bits. 1 without a sketch.
  [[nodiscard]] float smallest_step(const std::function<bool(const RateBits&)>& fits) const;

  [[nodiscard]] topology::WanTraffic traffic(const RateBits& bits) const;
  // Bytes on the wire from one member to another. Of `way` the kind, shares and detours count.
  [[nodiscard]] double link_bytes(const RateBits& bits, const topology::WanPlan& way, std::size_t from, std::size_t to) const;
  // Seconds of the slowest link of known rate.
  [[nodiscard]] double transfer_seconds(const RateBits& bits, const topology::WanPlan& way, const topology::WanMatrix& matrix) const;
  [[nodiscard]] std::size_t members() const { return members_.size(); }

 private:
  const std::vector<RateMember>& members_;
  double values_;
  double chunks_;
  std::vector<double> correction_;
  std::optional<double> excess_;
  double correlated_excess_ = 0.0;  // of dense rounds
  std::vector<compression::SiteSketch> sketches_;
  std::vector<std::optional<std::size_t>> sketch_of_;  // by member: index into sketches_
};

// How many of the chunks each member owns when `owners` take them in turn.
std::vector<double> shares_of(const std::vector<SiteId>& owners, const std::vector<RateMember>& members, std::uint32_t chunks);

}  // namespace sluice::sync
