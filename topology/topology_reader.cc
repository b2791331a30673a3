#include "topology/topology_reader.h"

#include "topology/nccl_xml_reader.h"
#include "topology/topo_matrix_reader.h"

namespace sluice::topology {

Result<SiteGraph> read_topology_file(std::string_view text, const std::string& name) {
  // A matrix pasted into a page can hold tags, but never opens with one.
  const std::size_t start = text.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  if (start == std::string_view::npos) return fail(ErrorCode::kTopologyUnrecognized, "read " + name, "the file is empty");
  // An XML declaration must be the first thing; elsewhere the blank lines stay, so that line numbers are those of the file.
  const std::string_view content = text.substr(start);
  if (content.starts_with('<')) return read_nccl_xml(content.starts_with("<?xml") ? content : text, name);
  return read_topo_matrix(text, name);
}

}  // namespace sluice::topology
