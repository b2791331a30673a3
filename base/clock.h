#pragma once

// The project's idea of time. Cores are given a TimePoint; only shells read now(). Steady: never jumps with the wall clock.

#include <chrono>

namespace sluice {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = Clock::duration;

}  // namespace sluice
