// Any text as a topology file: what is read obeys the graph's rules, is diagnosed, and comes back from its own file the same.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "topology/diagnosis.h"
#include "topology/graph_arrays.h"
#include "topology/graph_file.h"
#include "topology/topology_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice::topology;
  // Larger inputs say nothing new: a few bytes may name a hundred thousand nodes.
  if (size > 16'384) return 0;
  const auto graph = read_topology_file(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
  if (!graph) return 0;
  for (std::size_t index = 0; index < graph->devices.size(); ++index) {
    if (graph->devices[index].parent > index) std::abort();
  }
  for (const Link& link : graph->links) {
    if (link.from >= graph->devices.size() || link.to >= graph->devices.size() || link.file >= graph->files.size()) std::abort();
  }
  if (graph->links.size() > 50'000 || graph->devices.size() > 50'000) return 0;
  diagnose(*graph);
  node_types(*graph);
  const NodeSpeeds nodes(*graph);
  if (nodes.size() != graph->nnodes()) std::abort();
  const std::string file = write_graph_file(*graph);
  const auto again = read_graph_file(file, "again");
  if (!again || write_graph_file(*again) != file) std::abort();
  return 0;
}
