#include "topology/graph_json.h"

#include <nlohmann/json.hpp>

namespace sluice::topology {

nlohmann::ordered_json summary_to_json(const SiteGraph& graph) {
  nlohmann::ordered_json links = nlohmann::ordered_json::object();
  for (const auto& [label, pairs] : count_pairs(graph)) links[label] = pairs;
  nlohmann::ordered_json problems = nlohmann::ordered_json::array();
  for (const Problem& problem : graph.problems) {
    problems.push_back(
        {{"id", problem.id}, {"severity", severity_name(problem.severity)}, {"where", problem.where}, {"text", problem.text}});
  }
  nlohmann::ordered_json json;
  json["source"] = graph.source;
  json["gpus"] = graph.ngpus();
  json["nics"] = graph.count(DeviceKind::kNic);
  json["nodes"] = graph.nnodes();
  json["cpus"] = graph.count(DeviceKind::kCpu);
  json["links"] = std::move(links);
  json["partial"] = graph.is_partial;
  json["problems"] = std::move(problems);
  return json;
}

}  // namespace sluice::topology
