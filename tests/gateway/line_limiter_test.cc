// Goal: strangers cannot fill the log, and what was not said is counted. Method: times are given.
#include "gateway/internal/line_limiter.h"

#include <gtest/gtest.h>

namespace sluice::gateway::internal {
namespace {

TEST(LineLimiter, AFewLinesASecondOfEachKindAreWrittenAndTheRestCounted) {
  LineLimiter limiter;
  TimePoint now{std::chrono::hours(1)};
  std::uint64_t written = 0;
  for (int line = 0; line < 100; ++line) written += limiter.admit("not_tls", now).has_value() ? 1 : 0;
  EXPECT_EQ(written, kLinesPerSecond);
  EXPECT_EQ(limiter.admit("expired", now), std::optional<std::uint64_t>(0));
  now += std::chrono::milliseconds(999);
  EXPECT_FALSE(limiter.admit("not_tls", now));
  now += std::chrono::milliseconds(1);
  EXPECT_EQ(limiter.admit("not_tls", now), std::optional<std::uint64_t>(96));
  EXPECT_EQ(limiter.admit("not_tls", now), std::optional<std::uint64_t>(0));
}

}  // namespace
}  // namespace sluice::gateway::internal
