#include "topology/slurm_yaml_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "topology/internal/slurm_topology.h"
#include "topology/internal/text_fields.h"
#include "topology/internal/yaml_value.h"
#include "topology/limits.h"

namespace sluice::topology {
namespace {

constexpr std::array<std::string_view, 5> kKinds = {"block", "tree", "flat", "ring", "torus3d"};

std::optional<bool> parse_bool(std::string_view text) {
  const std::string lower = to_lower(text);
  if (lower == "true" || lower == "yes" || lower == "1") return true;
  if (lower == "false" || lower == "no" || lower == "0") return false;
  return std::nullopt;
}

class YamlReader {
 public:
  explicit YamlReader(const std::string& name) : name_(name) {}

  Result<SiteGraph> read(const YamlValue& root) {
    SLUICE_TRY(const auto entries, list_of(root, "the file", "topology"));
    if (entries.empty()) return fail(ErrorCode::kTopologyInvalid, operation(), "the file defines no topology");
    std::optional<SiteGraph> chosen;
    bool has_default = false;
    for (const YamlValue* entry : entries) {
      SLUICE_TRY(const auto topology, read_topology(*entry));
      SLUICE_TRY(auto graph, build_slurm_graph(topology, name_, "slurm-yaml"));
      const YamlValue* is_default = entry->find("cluster_default");
      const bool wants = is_default != nullptr && parse_bool(is_default->text).value_or(false);
      if (chosen && (has_default || !wants)) {
        others_.push_back(topology.name);
        continue;
      }
      if (chosen) others_.push_back(chosen_name_);
      chosen = std::move(graph);
      chosen_name_ = topology.name;
      has_default = wants;
    }
    for (const std::string& other : others_) {
      chosen->add_problem("other-topology", Severity::kInfo, other,
                          fmt::format("checked, and left out: {} is the one shown", chosen_name_));
    }
    for (auto& [key, line] : unknown_) {
      chosen->add_problem("unknown-key", Severity::kWarning, key, fmt::format("line {}: not known, and left out", line));
    }
    return std::move(*chosen);
  }

 private:
  [[nodiscard]] std::string operation() const { return "read " + name_; }
  [[nodiscard]] tl::unexpected<Error> invalid(const YamlValue& at, std::string_view text) const {
    return fail(ErrorCode::kTopologyInvalid, operation(), fmt::format("line {}: {}", at.line, text));
  }

  // A list of maps; a single map stands for a list of one.
  Result<std::vector<const YamlValue*>> list_of(const YamlValue& value, std::string_view where, std::string_view what) {
    std::vector<const YamlValue*> entries;
    if (value.is_map()) entries.push_back(&value);
    if (value.is_list()) {
      for (const YamlValue& item : value.items) {
        if (!item.is_map()) return invalid(item, fmt::format("{} in {} must be a map, not {}", what, where, item.kind_name()));
        entries.push_back(&item);
      }
    }
    if (!value.is_map() && !value.is_list()) return invalid(value, fmt::format("{} must be a list, not {}", where, value.kind_name()));
    return entries;
  }

  Result<std::vector<const YamlValue*>> member_list(const YamlValue& map, std::string_view key, std::string_view what) {
    const YamlValue* value = map.find(key);
    if (value == nullptr) return std::vector<const YamlValue*>{};
    return list_of(*value, key, what);
  }

  // A single value, or a list of them joined as one host list.
  Result<std::string> text_of(const YamlValue& map, std::string_view key, bool is_needed) {
    const YamlValue* value = map.find(key);
    if (value == nullptr || value->is_null()) {
      if (is_needed) return invalid(map, fmt::format("{} is missing", key));
      return std::string();
    }
    if (value->is_scalar()) return value->text;
    if (!value->is_list()) return invalid(*value, fmt::format("{} must be a single value, not {}", key, value->kind_name()));
    std::string joined;
    for (const YamlValue& item : value->items) {
      if (!item.is_scalar()) return invalid(item, fmt::format("{} must hold single values", key));
      joined += (joined.empty() ? "" : ",") + item.text;
    }
    return joined;
  }

  void note_unknown(const YamlValue& map, std::initializer_list<std::string_view> known) {
    for (const auto& [key, value] : map.entries) {
      if (std::ranges::find(known, key) == known.end()) unknown_.emplace_back(key, value.line);
    }
  }

  Result<SlurmTopology> read_topology(const YamlValue& entry) {
    note_unknown(entry, {"topology", "cluster_default", "block", "tree", "flat", "ring", "torus3d"});
    SlurmTopology topology;
    SLUICE_TRY(topology.name, text_of(entry, "topology", true));
    SLUICE_TRY(const std::string default_text, text_of(entry, "cluster_default", false));
    if (!default_text.empty() && !parse_bool(default_text)) return invalid(entry, "cluster_default must be true or false");
    std::vector<std::string_view> used;
    for (const std::string_view kind : kKinds) {
      const YamlValue* value = entry.find(kind);
      if (value == nullptr || value->is_null()) continue;
      const auto flag = kind == "flat" && value->is_scalar() ? parse_bool(value->text) : std::nullopt;
      if (flag == std::optional(false)) continue;
      if (!flag && !value->is_map()) return invalid(*value, fmt::format("{} must be a map, not {}", kind, value->kind_name()));
      used.push_back(kind);
    }
    if (used.size() > 1) return invalid(entry, fmt::format("{} and {} exclude each other", used[0], used[1]));
    if (used.empty())
      return invalid(entry, fmt::format("topology {} is of no kind: give one of block, tree, flat, ring, torus3d", topology.name));
    const YamlValue& body = *entry.find(used.front());
    if (used.front() == "flat") topology.is_flat = true;
    if (used.front() == "tree") SLUICE_CHECK_OK(read_tree(body, topology));
    if (used.front() == "block") SLUICE_CHECK_OK(read_blocks(body, topology));
    if (used.front() == "ring") SLUICE_CHECK_OK(read_rings(body, topology));
    if (used.front() == "torus3d") SLUICE_CHECK_OK(read_tori(body, topology));
    return topology;
  }

  Status read_tree(const YamlValue& body, SlurmTopology& topology) {
    note_unknown(body, {"switches"});
    SLUICE_TRY(const auto entries, member_list(body, "switches", "a switch"));
    if (entries.empty()) return invalid(body, "tree has no switches");
    for (const YamlValue* entry : entries) {
      note_unknown(*entry, {"switch", "children", "nodes", "link_speed"});
      SlurmSwitch result;
      result.line = entry->line;
      SLUICE_TRY(result.name, text_of(*entry, "switch", true));
      SLUICE_TRY(result.children, text_of(*entry, "children", false));
      SLUICE_TRY(result.nodes, text_of(*entry, "nodes", false));
      topology.switches.push_back(std::move(result));
    }
    return {};
  }

  Status read_blocks(const YamlValue& body, SlurmTopology& topology) {
    note_unknown(body, {"block_sizes", "blocks"});
    SLUICE_TRY(const auto entries, member_list(body, "blocks", "a block"));
    if (entries.empty()) return invalid(body, "block has no blocks");
    for (const YamlValue* entry : entries) SLUICE_CHECK_OK(read_group(*entry, "block", topology.blocks));
    const YamlValue* sizes = body.find("block_sizes");
    if (sizes == nullptr) return {};
    if (!sizes->is_list() && !sizes->is_scalar()) return invalid(*sizes, "block_sizes must be a list of numbers");
    const std::vector<YamlValue> items = sizes->is_list() ? sizes->items : std::vector<YamlValue>{*sizes};
    for (const YamlValue& item : items) {
      const auto size = parse_whole<std::uint64_t>(item.text);
      if (!item.is_scalar() || !size) return invalid(item, "block_sizes must be a list of numbers");
      topology.block_sizes.push_back(*size);
    }
    return {};
  }

  Status read_rings(const YamlValue& body, SlurmTopology& topology) {
    note_unknown(body, {"rings"});
    SLUICE_TRY(const auto entries, member_list(body, "rings", "a ring"));
    if (entries.empty()) return invalid(body, "ring has no rings");
    for (const YamlValue* entry : entries) SLUICE_CHECK_OK(read_group(*entry, "ring", topology.rings));
    return {};
  }

  Status read_group(const YamlValue& entry, std::string_view kind, std::vector<SlurmGroup>& groups) {
    note_unknown(entry, {kind, "nodes"});
    SlurmGroup group;
    group.line = entry.line;
    SLUICE_TRY(group.name, text_of(entry, kind, true));
    SLUICE_TRY(group.nodes, text_of(entry, "nodes", true));
    groups.push_back(std::move(group));
    return {};
  }

  Result<Cell> read_cell(const YamlValue& map, std::string_view key) {
    const YamlValue* value = map.find(key);
    if (value == nullptr || !value->is_map()) return invalid(map, fmt::format("{} must be a map with x, y and z", key));
    Cell cell = {0, 0, 0};
    constexpr std::array<std::string_view, 3> kAxes = {"x", "y", "z"};
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const YamlValue* side = value->find(kAxes[axis]);
      const auto number = side == nullptr ? std::nullopt : parse_whole<std::uint32_t>(side->text);
      if (!number) return invalid(*value, fmt::format("{} of {} must be a number", kAxes[axis], key));
      cell[axis] = *number;
    }
    return cell;
  }

  Status read_tori(const YamlValue& body, SlurmTopology& topology) {
    note_unknown(body, {"toruses"});
    SLUICE_TRY(const auto entries, member_list(body, "toruses", "a torus"));
    if (entries.empty()) return invalid(body, "torus3d has no toruses");
    for (const YamlValue* entry : entries) {
      note_unknown(*entry, {"name", "dims", "nodes", "regions", "placements"});
      SlurmTorus torus;
      torus.line = entry->line;
      SLUICE_TRY(torus.name, text_of(*entry, "name", true));
      SLUICE_TRY(torus.size, read_cell(*entry, "dims"));
      SLUICE_TRY(torus.nodes, text_of(*entry, "nodes", false));
      SLUICE_TRY(const auto placements, member_list(*entry, "placements", "a placement"));
      for (const YamlValue* placement : placements) {
        SLUICE_TRY(const Cell cell, read_cell(*placement, "dims"));
        torus.placements.push_back(cell);
      }
      SLUICE_TRY(const auto regions, member_list(*entry, "regions", "a region"));
      for (const YamlValue* region : regions) {
        SlurmRegion result;
        if (region->find("anchor") != nullptr) {
          SLUICE_TRY(result.anchor, read_cell(*region, "anchor"));
        }
        SLUICE_TRY(result.size, read_cell(*region, "dims"));
        SLUICE_TRY(result.nodes, text_of(*region, "nodes", true));
        torus.regions.push_back(std::move(result));
      }
      topology.tori.push_back(std::move(torus));
    }
    return {};
  }

  std::string name_;
  std::string chosen_name_;
  std::vector<std::string> others_;
  std::vector<std::pair<std::string, std::size_t>> unknown_;
};

}  // namespace

Result<SiteGraph> read_slurm_yaml(std::string_view text, const std::string& name) {
  SLUICE_TRY(const auto documents, parse_yaml(text, name));
  if (documents.size() != 1) {
    return fail(ErrorCode::kTopologyInvalid, "read " + name, fmt::format("{} documents: topology.yaml holds one", documents.size()));
  }
  return YamlReader(name).read(documents.front());
}

}  // namespace sluice::topology
