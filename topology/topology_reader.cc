#include "topology/topology_reader.h"

#include <fmt/format.h>

#include <array>
#include <optional>

#include "topology/cluster_json_reader.h"
#include "topology/cluster_yaml_reader.h"
#include "topology/host_text_reader.h"
#include "topology/hwloc_xml_reader.h"
#include "topology/ibnetdiscover_reader.h"
#include "topology/internal/text_fields.h"
#include "topology/limits.h"
#include "topology/nccl_graph_reader.h"
#include "topology/nccl_xml_reader.h"
#include "topology/slurm_conf_reader.h"
#include "topology/slurm_yaml_reader.h"
#include "topology/topo_matrix_reader.h"

namespace sluice::topology {
namespace {

// Lines that are looked at to find the kind; real files say it within the first 300.
constexpr std::size_t kLinesLookedAt = 5000;

// The name of the first element: what follows the first '<' that opens neither a declaration nor a comment.
std::string_view root_element(std::string_view text) {
  while (true) {
    const std::size_t open = text.find('<');
    if (open == std::string_view::npos) return {};
    text.remove_prefix(open + 1);
    if (text.starts_with("!--")) {
      const std::size_t close = text.find("-->");
      if (close == std::string_view::npos) return {};
      text.remove_prefix(close);
    } else if (!text.starts_with('?') && !text.starts_with('!')) {
      return text.substr(0, text.find_first_of(" \t\r\n/>"));
    }
  }
}

Result<SiteGraph> read_xml(std::string_view content, const std::string& name) {
  const std::string_view root = root_element(content);
  if (root == "topology" || root == "root") return read_hwloc_xml(content, name);
  if (root == "graphs") return read_nccl_graph(content, name);
  return read_nccl_xml(content, name);
}

// Each kind of text by a line that only it has.
struct Signs {
  bool is_slurm_conf = false;
  bool is_slurm_yaml = false;
  bool is_fabric = false;
  bool is_cluster_yaml = false;
};

Signs find_signs(std::string_view text) {
  Signs signs;
  for_each_line(text, kLinesLookedAt, [&](std::size_t, std::string_view line) {
    const std::string word = to_lower(line.substr(0, std::min<std::size_t>(line.size(), 64)));
    const std::string_view start = trim_blanks(word);
    for (const std::string_view key : {"switchname=", "blockname=", "ringname=", "blocksizes="}) {
      if (start.starts_with(key)) signs.is_slurm_conf = true;
    }
    if (start.starts_with("- topology:") || start.starts_with("- {topology:")) signs.is_slurm_yaml = true;
    if (word.starts_with("topology: ") && start.find('[') == std::string_view::npos) signs.is_slurm_yaml = true;
    for (const std::string_view key : {"npus_count:", "switches:", "blocks:", "capacity_blocks:", "kind: hypernode", "kind: topology"}) {
      if (word.starts_with(key)) signs.is_cluster_yaml = true;
    }
    const bool is_device = line.starts_with("Switch\t") || line.starts_with("Ca\t") || line.starts_with("Rt\t") ||
                           line.starts_with("Switch ") || line.starts_with("Ca ");
    if (is_device && line.find('"') != std::string_view::npos) signs.is_fabric = true;
  });
  if (signs.is_cluster_yaml) signs.is_slurm_yaml = false;  // ASTRA-sim and old models have `topology:` too
  return signs;
}

std::optional<std::string> archive_or_page(std::string_view text) {
  struct Sign {
    std::string_view start;
    std::string_view what;
  };
  constexpr std::array<Sign, 5> kSigns = {
      {{"BZh", "a bzip2 archive: unpack it and give the XML in it, or export one with `lstopo --of xml`"},
       {"\x1f\x8b", "a gzip archive: unpack it first"},
       {"\xfd"
        "7zXZ",
        "an xz archive: unpack it first"},
       {"PK\x03\x04", "a zip archive: unpack it first"},
       {".TH ", "a manual page: give the file that it describes"}}};
  for (const Sign& sign : kSigns) {
    if (text.starts_with(sign.start)) return std::string(sign.what);
  }
  return std::nullopt;
}

Result<SiteGraph> read_text(std::string_view text, const std::string& name) {
  if (const auto what = archive_or_page(text)) return fail(ErrorCode::kTopologyWrongKind, "read " + name, *what);
  const Signs signs = find_signs(text);
  if (signs.is_slurm_conf) return read_slurm_conf(text, name);
  if (signs.is_fabric) return read_ibnetdiscover(text, name);
  if (signs.is_slurm_yaml) return read_slurm_yaml(text, name);
  if (signs.is_cluster_yaml) return read_cluster_yaml(text, name);
  if (auto graph = try_read_host_text(text, name)) return std::move(*graph);
  auto graph = read_topo_matrix(text, name);
  if (graph || graph.error().code != ErrorCode::kTopologyUnrecognized) return graph;
  if (text.find("-[0000:00]-") != std::string_view::npos) {
    return fail(ErrorCode::kTopologyWrongKind, "read " + name,
                "a tree of `lspci -t`: it names no speeds and no links; give the output of `nvidia-smi topo -m` or `lstopo --of xml`");
  }
  return graph;
}

}  // namespace

Result<SiteGraph> read_topology_file(std::string_view text, const std::string& name) {
  if (text.size() > kFileBytesMax) {
    return fail(ErrorCode::kTopologyTooLarge, "read " + name, fmt::format("{} bytes, at most {}", text.size(), kFileBytesMax));
  }
  const std::size_t start = text.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  if (start == std::string_view::npos) return fail(ErrorCode::kTopologyUnrecognized, "read " + name, "the file is empty");
  // An XML declaration must be the first thing; elsewhere the blank lines stay, so that line numbers are those of the file.
  // A matrix pasted into a page can hold tags, but never opens with one.
  const std::string_view content = text.substr(start);
  if (content.starts_with('<')) return read_xml(content.starts_with("<?xml") ? content : text, name);
  if (content.starts_with('{')) return read_cluster_json(text, name);
  const std::size_t second = content.find_first_not_of(" \t\r\n", 1);
  const bool is_json_list =
      content.starts_with('[') && second != std::string_view::npos && (content[second] == '{' || content[second] == ']');
  if (is_json_list) return read_cluster_json(text, name);
  return read_text(text, name);
}

}  // namespace sluice::topology
