#pragma once

// What a site does a moment later, unless the process that was to do it is gone by then.

#include <utility>

#include "tests/sim/sim_site.h"
#include "tests/sim/sim_world.h"

namespace sluice::sim {

template <typename What>
void SimSite::in_gateway(Duration delay, What what) {
  world_.queue().after(delay, [this, life = life_, what = std::move(what)] {
    if (machine_ && life_ == life) what();
  });
}

// Lost when the gateway that says it is not connected to them, or the agents are gone when it comes.
template <typename What>
void SimSite::in_agents(Duration delay, What what) {
  if (!is_attached_) return;
  world_.queue().after(delay, [this, life = agents_.life, what = std::move(what)] {
    if (has_agents() && agents_.life == life) what();
  });
}

}  // namespace sluice::sim
