#include "topology/graph_json.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "topology/diagnosis.h"
#include "topology/graph_arrays.h"

namespace sluice::topology {
namespace {

using Json = nlohmann::ordered_json;

void append_problems(Json& list, const std::vector<Problem>& problems) {
  for (const Problem& problem : problems) {
    Json entry = {{"id", problem.id}, {"severity", severity_name(problem.severity)}, {"where", problem.where}, {"text", problem.text}};
    if (const auto advice = advice_of(problem.id); !advice.empty()) entry["advice"] = advice;
    list.push_back(std::move(entry));
  }
}

template <typename Speeds>
Json matrix_of(const Speeds& speeds) {
  Json rows = Json::array();
  for (std::size_t from = 0; from < speeds.size(); ++from) {
    Json row = Json::array();
    for (std::size_t to = 0; to < speeds.size(); ++to) {
      const auto speed = speeds.at(from, to);
      row.push_back(speed ? Json(speed->gb_per_second) : Json());
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

Json summary_to_json(const SiteGraph& graph, const std::vector<Problem>& findings) {
  Json links = Json::object();
  for (const auto& [label, pairs] : count_pairs(graph)) links[label] = pairs;
  Json problems = Json::array();
  append_problems(problems, graph.problems);
  append_problems(problems, findings);
  Json json;
  json["source"] = graph.title();
  json["kind"] = graph.files.size() == 1 ? graph.files.front().kind : "merged";
  json["gpus"] = graph.ngpus();
  json["nics"] = graph.count(DeviceKind::kNic);
  json["nodes"] = graph.nnodes();
  json["cpus"] = graph.count(DeviceKind::kCpu);
  json["switches"] = graph.count(DeviceKind::kSwitch);
  json["links"] = std::move(links);
  json["partial"] = graph.is_partial;
  if (!graph.counts.empty()) json["counts"] = graph.counts;
  json["problems"] = std::move(problems);
  return json;
}

Json arrays_to_json(const SiteGraph& graph) {
  Json json;
  json["ngpus"] = graph.ngpus();
  json["nnodes"] = graph.nnodes();
  json["type"] = node_types(graph);
  if (graph.ngpus() <= kArraysShownMax) json["speed_intra"] = matrix_of(speed_intra(graph));
  if (graph.nnodes() <= kArraysShownMax) json["speed_inter"] = matrix_of(NodeSpeeds(graph));
  return json;
}

}  // namespace sluice::topology
