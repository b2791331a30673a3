#pragma once

// A site graph as JSON, for programs. Pure.

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "topology/site_graph.h"

namespace sluice::topology {

// {"source","kind","gpus","nics","nodes","cpus","links":{"GG:NV12":28,...},"partial","problems":[{"id","severity","where","text"}],...}:
// the problems of the graph and then `findings`.
nlohmann::ordered_json summary_to_json(const SiteGraph& graph, const std::vector<Problem>& findings);

// {"ngpus","nnodes","type":[],"speed_intra":[[]],"speed_inter":[[]]}: matrices in GB/s, null where unknown. For looking at: the matrices
// are left out beyond kArraysShownMax GPUs or nodes.
nlohmann::ordered_json arrays_to_json(const SiteGraph& graph);
inline constexpr std::size_t kArraysShownMax = 512;

}  // namespace sluice::topology
