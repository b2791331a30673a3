// `sluice topo show|diagnose|merge|export FILE...` and `sluice topo --live`: what connects the GPUs and NICs of machines and sites;
// `sluice topo site`: what a running gateway knows of its own.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gateway/admin_client.h"
#include "gateway/cli.h"
#include "gateway/cli_admin.h"
#include "gateway/status_table.h"
#include "topology/diagnosis.h"
#include "topology/graph_arrays.h"
#include "topology/graph_dot.h"
#include "topology/graph_file.h"
#include "topology/graph_json.h"
#include "topology/graph_merge.h"
#include "topology/limits.h"
#include "topology/live_reader.h"
#include "topology/probe_graph.h"
#include "topology/topology_reader.h"
#include "topology/type_map.h"

namespace sluice::gateway {
namespace {

using Json = nlohmann::ordered_json;
using topology::Problem;
using topology::Severity;
using topology::SiteGraph;

struct TopoOptions {
  std::vector<std::string> files;
  std::string output;
  std::string types;
  std::string baseline;
  bool is_live = false;
  bool wants_arrays = false;
};

Result<std::string> read_text(const std::string& path) {
  std::error_code unreadable;
  if (std::filesystem::is_directory(path, unreadable)) return fail(ErrorCode::kTopologyUnreadable, "open " + path, "it is a directory");
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ErrorCode::kTopologyUnreadable, "open " + path, "there is no such file, or it may not be read");
  const auto size = std::filesystem::file_size(path, unreadable);
  std::string text(unreadable ? topology::kFileBytesMax + 1 : std::min<std::uintmax_t>(size, topology::kFileBytesMax) + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return fail(ErrorCode::kTopologyUnreadable, "read " + path, "reading failed");
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

// "FILE", or "NODE=FILE" where no file of the whole name exists.
topology::MergeInput split_argument(const std::string& argument, std::string& path) {
  std::error_code unreadable;
  const std::size_t equals = argument.find('=');
  topology::MergeInput input;
  path = argument;
  if (equals == std::string::npos || equals == 0 || std::filesystem::exists(argument, unreadable)) return input;
  input.node = argument.substr(0, equals);
  path = argument.substr(equals + 1);
  return input;
}

Result<SiteGraph> read_graph(const std::string& path) {
  SLUICE_TRY(const auto text, read_text(path));
  return topology::read_topology_file(text, path);
}

Status apply_types(const TopoOptions& options, SiteGraph& graph) {
  if (options.types.empty()) return {};
  SLUICE_TRY(const auto text, read_text(options.types));
  SLUICE_TRY(const auto types, topology::read_type_map(text, options.types));
  topology::apply_type_map(types, graph);
  return {};
}

// All files, and the machine itself when that is wanted, as one graph.
Result<SiteGraph> read_merged(const TopoOptions& options) {
  std::vector<topology::MergeInput> inputs;
  for (const std::string& file : options.files) {
    std::string path;
    topology::MergeInput input = split_argument(file, path);
    SLUICE_TRY(input.graph, read_graph(path));
    inputs.push_back(std::move(input));
  }
  if (options.is_live) {
    SLUICE_TRY(auto live, topology::read_live_machine({}));
    inputs.push_back({std::move(live), ""});
  }
  if (inputs.empty()) return fail(ErrorCode::kInvalidArgument, "sluice topo", "give files, or --live for this machine");
  if (inputs.size() == 1 && inputs.front().node.empty()) {
    SLUICE_CHECK_OK(apply_types(options, inputs.front().graph));
    return std::move(inputs.front().graph);
  }
  SLUICE_TRY(auto graph, topology::merge_graphs(std::move(inputs)));
  SLUICE_CHECK_OK(apply_types(options, graph));
  return graph;
}

// Names come out of files: control characters stay out of the terminal.
std::string printable(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; }, '?');
  return text;
}

std::string line_of(const Problem& problem) {
  std::string text = fmt::format("  {}: {}: {} [{}]", severity_name(problem.severity), problem.where, problem.text, problem.id);
  if (const auto advice = topology::advice_of(problem.id); !advice.empty()) text += fmt::format(": {}", advice);
  return printable(std::move(text)) + "\n";
}

// "  rank0 -> rank1  4.91 GB/s  18.2 us", as far as there is room.
std::string measured_text(const SiteGraph& graph) {
  constexpr std::size_t kShownMax = 40;
  std::string text;
  const auto links = topology::measured_links(graph);
  for (std::size_t index = 0; index < std::min(links.size(), kShownMax); ++index) {
    const topology::MeasuredLink& link = links[index];
    std::string line =
        fmt::format("  measured {} -> {}: {:.3g} GB/s", graph.devices[link.from].name, graph.devices[link.to].name, link.gb_per_second);
    if (link.latency_us) line += fmt::format(", {:.3g} us", *link.latency_us);
    if (link.promised_gb_per_second) line += fmt::format(" (promised: {:.3g} GB/s)", *link.promised_gb_per_second);
    text += printable(std::move(line)) + "\n";
  }
  if (links.size() > kShownMax) text += fmt::format("  and {} more measured links\n", links.size() - kShownMax);
  return text;
}

std::string to_table(const SiteGraph& graph, const std::vector<Problem>& findings) {
  const bool is_unknown = graph.ngpus() == 0 && graph.is_partial;
  std::string text = printable(fmt::format("{}: {} GPUs, {} NICs, {} CPUs, {} nodes, {} switches{}", graph.title(),
                                           is_unknown ? "unknown" : std::to_string(graph.ngpus()), graph.count(topology::DeviceKind::kNic),
                                           graph.count(topology::DeviceKind::kCpu), graph.nnodes(),
                                           graph.count(topology::DeviceKind::kSwitch), graph.is_partial ? ", partial" : ""));
  text += '\n';
  std::map<std::string, std::size_t> types;
  for (const std::string& type : topology::node_types(graph)) ++types[type];
  for (const auto& [type, nodes] : types) {
    if (type != "unknown") text += printable(fmt::format("  {} nodes of {}", nodes, type)) + "\n";
  }
  for (const auto& [label, pairs] : topology::count_pairs(graph)) text += printable(fmt::format("  {:<12}{:>6}", label, pairs)) + "\n";
  text += measured_text(graph);
  for (const Problem& problem : graph.problems) text += line_of(problem);
  for (const Problem& problem : findings) text += line_of(problem);
  return text;
}

Json error_to_json(const std::string& file, const Error& error) {
  return {{"source", file}, {"error", {{"code", error_code_name(error.code)}, {"text", error.to_string()}}}};
}

// A reader that has gone away, as `| head` does, is no failure of ours.
void put(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

std::string dump(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

int report(const Error& error) {
  fmt::print(stderr, "{}\n{}\n", printable(error.to_string()), error_code_advice(error.code));
  return kExitFailed;
}

Json to_json(const TopoOptions& options, const SiteGraph& graph, const std::vector<Problem>& findings) {
  Json json = topology::summary_to_json(graph, findings);
  if (options.wants_arrays) json["arrays"] = topology::arrays_to_json(graph);
  return json;
}

void print_graph(const TopoOptions& options, const SiteGraph& graph, const std::vector<Problem>& findings) {
  if (options.output == "json") {
    put(dump(to_json(options, graph, findings)));
  } else if (options.output == "dot") {
    put(topology::write_dot(graph));
  } else {
    put(to_table(graph, findings));
  }
}

// Each file by itself; the machine itself as one more.
int show(const TopoOptions& options) {
  int exit_code = kExitOk;
  Json all = Json::array();
  if (options.files.empty() && !options.is_live) return report({ErrorCode::kInvalidArgument, "sluice topo show", "give files, or --live"});
  for (std::size_t index = 0; index < options.files.size() + (options.is_live ? 1 : 0); ++index) {
    const bool is_file = index < options.files.size();
    const std::string name = is_file ? options.files[index] : "this machine";
    auto graph = is_file ? read_graph(name) : topology::read_live_machine({});
    if (graph) {
      if (auto status = apply_types(options, *graph); !status) return report(status.error());
    } else {
      exit_code = report(graph.error());
    }
    if (options.output == "json") {
      all.push_back(graph ? to_json(options, *graph, topology::diagnose(*graph)) : error_to_json(name, graph.error()));
    } else if (graph) {
      print_graph(options, *graph, topology::diagnose(*graph));
    }
  }
  if (options.output == "json") put(dump(all.size() == 1 ? all.front() : all));
  return exit_code;
}

int diagnose(const TopoOptions& options) {
  const auto graph = read_merged(options);
  if (!graph) return report(graph.error());
  std::vector<Problem> findings = topology::diagnose(*graph);
  if (!options.baseline.empty()) {
    const auto baseline = read_graph(options.baseline);
    if (!baseline) return report(baseline.error());
    std::ranges::move(topology::compare_with_baseline(*graph, *baseline), std::back_inserter(findings));
  }
  print_graph(options, *graph, findings);
  Severity worst = Severity::kInfo;
  for (const Problem& problem : graph->problems) worst = std::max(worst, problem.severity);
  for (const Problem& problem : findings) worst = std::max(worst, problem.severity);
  return worst == Severity::kError ? kExitErrors : worst == Severity::kWarning ? kExitWarnings : kExitOk;
}

// The graph file on stdout, unless a table or drawing is wanted.
int write_merged(const TopoOptions& options) {
  const auto graph = read_merged(options);
  if (!graph) return report(graph.error());
  if (options.output != "json") {
    print_graph(options, *graph, {});
    return kExitOk;
  }
  const std::string text = topology::write_graph_file(*graph);
  const bool is_written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  return is_written ? kExitOk : kExitFailed;
}

int ask_site(const AdminQuestion& question) {
  const auto endpoint = admin_endpoint(question);
  if (!endpoint) return report_admin_error(endpoint.error());
  const auto answer = fetch_admin_json(*endpoint, "/api/v1/topology");
  if (!answer) return report_admin_error(answer.error());
  put(question.output == "json" ? dump(*answer) : topology_table(*answer));
  return kExitOk;
}

CLI::App* add_files_command(CLI::App& topo, const std::string& name, const std::string& help, const std::shared_ptr<TopoOptions>& options,
                            const std::string& output) {
  CLI::App* command = topo.add_subcommand(name, help);
  options->output = output;
  command->add_option("FILE", options->files, "topology file of any kind; NODE=FILE says which node it describes, *=FILE every node");
  command->add_option("-o,--output", options->output, "table, json or dot")->check(CLI::IsMember({"table", "json", "dot"}));
  command->add_option("--types", options->types, "YAML file with the types of nodes");
  command->add_flag("--live", options->is_live, "this machine too: hwloc, the kernel's files, NVML");
  return command;
}

}  // namespace

void add_topo_command(CLI::App& app, int& exit_code) {
  CLI::App* topo = app.add_subcommand("topo", "What connects the GPUs and NICs of machines, and the machines of a site");
  topo->require_subcommand(0, 1);
  auto live = std::make_shared<TopoOptions>();
  topo->add_flag("--live", live->is_live, "show this machine: hwloc, the kernel's files, NVML");
  topo->callback([topo, live, &exit_code] {
    if (!topo->get_subcommands().empty()) return;
    if (!live->is_live) throw CLI::RequiredError("topo: a subcommand or --live");
    exit_code = show(*live);
  });
  auto shown = std::make_shared<TopoOptions>();
  CLI::App* show_command =
      add_files_command(*topo, "show", "Read topology files: devices, links, and what is missing or wrong", shown, "table");
  show_command->add_flag("--arrays", shown->wants_arrays, "with -o json: type, speed_intra and speed_inter too");
  show_command->callback([shown, &exit_code] { exit_code = show(*shown); });
  auto diagnosed = std::make_shared<TopoOptions>();
  CLI::App* diagnose_command =
      add_files_command(*topo, "diagnose", "Merge the files and say what is wrong with the machines", diagnosed, "table");
  diagnose_command->add_option("--baseline", diagnosed->baseline, "topology file of an earlier state or of the host, to compare with");
  diagnose_command->callback([diagnosed, &exit_code] { exit_code = diagnose(*diagnosed); });
  auto asked = std::make_shared<AdminQuestion>();
  add_admin_command(*topo, "site", "What a running gateway's ranks have measured between each other", *asked)
      ->callback([asked, &exit_code] { exit_code = ask_site(*asked); });
  auto merged = std::make_shared<TopoOptions>();
  add_files_command(*topo, "merge", "One graph out of several files, as a graph file", merged, "json")->callback([merged, &exit_code] {
    exit_code = write_merged(*merged);
  });
  auto exported = std::make_shared<TopoOptions>();
  add_files_command(*topo, "export", "The graph of one or more files as a graph file, a table or a drawing", exported, "json")
      ->callback([exported, &exit_code] { exit_code = write_merged(*exported); });
}

}  // namespace sluice::gateway
