// `sluice topo show FILE...`: what topology files say about a machine.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gateway/cli.h"
#include "topology/graph_json.h"
#include "topology/limits.h"
#include "topology/topology_reader.h"

namespace sluice::gateway {
namespace {

using Json = nlohmann::ordered_json;

struct TopoOptions {
  std::vector<std::string> files;
  std::string output = "table";
};

Result<std::string> read_text(const std::string& path) {
  std::error_code unreadable;
  if (std::filesystem::is_directory(path, unreadable)) return fail(ErrorCode::kTopologyUnreadable, "open " + path, "it is a directory");
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ErrorCode::kTopologyUnreadable, "open " + path, "there is no such file, or it may not be read");
  std::string text(topology::kFileBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return fail(ErrorCode::kTopologyUnreadable, "read " + path, "reading failed");
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

// Names come out of files: control characters stay out of the terminal.
std::string printable(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; }, '?');
  return text;
}

std::string to_table(const topology::SiteGraph& graph) {
  std::string text =
      fmt::format("{}: {} GPUs, {} NICs, {} CPUs, {} nodes{}\n", graph.source, graph.ngpus(), graph.count(topology::DeviceKind::kNic),
                  graph.count(topology::DeviceKind::kCpu), graph.nnodes(), graph.is_partial ? ", partial" : "");
  for (const auto& [label, pairs] : topology::count_pairs(graph)) text += fmt::format("  {:<12}{:>6}\n", label, pairs);
  for (const topology::Problem& problem : graph.problems) {
    text += printable(fmt::format("  {}: {}: {} [{}]", severity_name(problem.severity), problem.where, problem.text, problem.id)) + "\n";
  }
  return text;
}

Json error_to_json(const std::string& file, const Error& error) {
  return {{"source", file}, {"error", {{"code", error_code_name(error.code)}, {"text", error.to_string()}}}};
}

std::string dump(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

int show(const TopoOptions& options) {
  const bool wants_json = options.output == "json";
  int exit_code = kExitOk;
  Json all = Json::array();
  for (const std::string& file : options.files) {
    const auto text = read_text(file);
    const auto graph = text ? topology::read_topology_file(*text, file) : Result<topology::SiteGraph>(fail(text.error()));
    if (!graph) {
      fmt::print(stderr, "{}\n{}\n", printable(graph.error().to_string()), error_code_advice(graph.error().code));
      exit_code = kExitFailed;
    }
    if (wants_json) {
      all.push_back(graph ? topology::summary_to_json(*graph) : error_to_json(file, graph.error()));
    } else if (graph) {
      fmt::print("{}", to_table(*graph));
    }
  }
  if (wants_json) fmt::print("{}", dump(all.size() == 1 ? all.front() : all));
  return exit_code;
}

}  // namespace

void add_topo_command(CLI::App& app, int& exit_code) {
  CLI::App* topo = app.add_subcommand("topo", "What connects the GPUs and NICs of a machine");
  topo->require_subcommand(1);
  auto options = std::make_shared<TopoOptions>();
  CLI::App* show_command = topo->add_subcommand("show", "Read topology files: devices, links, and what is missing or wrong");
  show_command->add_option("FILE", options->files, "NCCL topology XML, or the output of `nvidia-smi topo -m`")->required();
  show_command->add_option("-o,--output", options->output, "table or json")->check(CLI::IsMember({"table", "json"}));
  show_command->callback([options, &exit_code] { exit_code = show(*options); });
}

}  // namespace sluice::gateway
