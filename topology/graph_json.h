#pragma once

// A site graph as JSON, for programs. Pure.

#include <nlohmann/json_fwd.hpp>

#include "topology/site_graph.h"

namespace sluice::topology {

// {"source","gpus","nics","nodes","cpus","links":{"GG:NV12":28,...},"partial","problems":[{"id","severity","where","text"}]}
nlohmann::ordered_json summary_to_json(const SiteGraph& graph);

}  // namespace sluice::topology
