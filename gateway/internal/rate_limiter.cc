#include "gateway/internal/rate_limiter.h"

#include <algorithm>

#include "base/assert.h"
#include "gateway/limits.h"

namespace sluice::gateway::internal {

RateLimiter::RateLimiter(BitsPerSecond rate)
    : bytes_per_second_(rate.value / 8.0),
      burst_bytes_(std::max(bytes_per_second_ * 0.010, static_cast<double>(kLimitedTurnBytes))),
      tokens_(burst_bytes_) {
  SLUICE_ASSERT(rate.value > 0.0, "rate {} bit/s", rate.value);
}

Duration RateLimiter::take(std::size_t bytes, TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (filled_at_ != TimePoint{} && now > filled_at_) {
    const double elapsed = std::chrono::duration<double>(now - filled_at_).count();
    tokens_ = std::min(burst_bytes_, tokens_ + elapsed * bytes_per_second_);
  }
  filled_at_ = std::max(filled_at_, now);
  const double wanted = std::min(static_cast<double>(bytes), burst_bytes_);
  if (tokens_ >= wanted) {
    tokens_ -= static_cast<double>(bytes);
    return Duration::zero();
  }
  const std::chrono::duration<double> wait((wanted - tokens_) / bytes_per_second_);
  return std::max<Duration>(std::chrono::duration_cast<Duration>(wait), std::chrono::microseconds(50));
}

}  // namespace sluice::gateway::internal
