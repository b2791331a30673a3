#include "topology/nccl_graph_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "topology/internal/text_fields.h"
#include "topology/internal/xml_elements.h"

namespace sluice::topology {
namespace {

Result<ChannelFile> read_channels(const std::vector<XmlElement>& elements, const std::string& name) {
  ChannelFile file;
  file.name = name;
  std::set<int> gpus;
  std::set<int> nics;
  for (const XmlElement& element : elements) {
    if (element.name == "graph") ++file.graphs;
    if (element.name == "channel") ++file.channels;
    if (element.name != "gpu" && element.name != "net") continue;
    const auto number = parse_whole<int>(element.attribute("dev"));
    if (!number) {
      return fail(ErrorCode::kTopologyInvalid, "read " + name,
                  fmt::format("line {}: <{}> has no number in dev", element.line, element.name));
    }
    (element.name == "gpu" ? gpus : nics).insert(*number);
  }
  file.gpus.assign(gpus.begin(), gpus.end());
  file.nics.assign(nics.begin(), nics.end());
  return file;
}

}  // namespace

Result<SiteGraph> read_nccl_graph(std::string_view text, const std::string& name) {
  SLUICE_TRY(const auto elements, parse_xml_elements(text, name));
  if (elements.front().name != "graphs") {
    return fail(ErrorCode::kTopologyWrongKind, "read " + name,
                fmt::format("the root is <{}>: NCCL graph XML opens with <graphs>", elements.front().name));
  }
  SLUICE_TRY(const auto channels, read_channels(elements, name));
  SiteGraph graph;
  graph.files.push_back({name, "nccl-graph"});
  graph.counts["graphs"] = channels.graphs;
  graph.counts["channels"] = channels.channels;
  graph.add_gap("graph-file", "file",
                fmt::format("an NCCL graph file (NCCL_GRAPH_FILE) with graphs={} channels={} for GPUs {}: rings and trees, not what the "
                            "machine is made of; add its topology file (NCCL_TOPO_FILE or NCCL_TOPO_DUMP_FILE)",
                            channels.graphs, channels.channels, fmt::join(channels.gpus, ",")));
  graph.channel_files.push_back(channels);
  return graph;
}

}  // namespace sluice::topology
