#pragma once

// Measures what joins the ranks of a site (topology/site_probe.h) over their group. Blocks the caller, the training thread, for at most
// twice the window: a probe ends after the window, and a call that has not ended by twice of it breaks the group.

#include <string>

#include "base/clock.h"
#include "site-agent/internal/messages.h"
#include "sync/collectives.h"

namespace sluice::site_agent {

// All ranks of the group call it at the same point with the same window; `machine` names what the rank runs on and is the same for ranks
// on the same machine. What was measured before a failure is in the outcome, and the failure with it (kGroupBroken, kAgentProtocol).
SiteProbe probe_site(sync::Collectives& group, const std::string& machine, Duration window);

}  // namespace sluice::site_agent
