#include "topology/slurm_conf_reader.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "topology/internal/slurm_topology.h"
#include "topology/internal/text_fields.h"
#include "topology/limits.h"

namespace sluice::topology {
namespace {

using Fields = std::map<std::string, std::string>;

class ConfReader {
 public:
  explicit ConfReader(const std::string& name) : name_(name) {}

  Result<SiteGraph> read(std::string_view text) {
    std::string line;
    std::size_t first = 0;  // line where a continued one began
    Status status;
    for_each_line(text, kFabricLinesMax, [&](std::size_t number, std::string_view part) {
      if (!status) return;
      if (line.empty()) first = number;
      const std::string_view kept = trim_blanks(part.substr(0, part.find('#')));
      const bool goes_on = kept.ends_with('\\');
      line.append(goes_on ? kept.substr(0, kept.size() - 1) : kept);
      if (goes_on) return;
      status = add_line(line, first);
      line.clear();
    });
    if (status && !line.empty()) status = add_line(line, first);
    SLUICE_CHECK_OK(std::move(status));
    const int kinds = (topology_.switches.empty() ? 0 : 1) + (topology_.blocks.empty() ? 0 : 1) + (topology_.rings.empty() ? 0 : 1);
    if (kinds == 0) return fail(ErrorCode::kTopologyInvalid, operation(), "no SwitchName, BlockName or RingName in the file");
    if (kinds > 1) return fail(ErrorCode::kTopologyInvalid, operation(), "switches, blocks and rings exclude each other in one file");
    SLUICE_TRY(auto graph, build_slurm_graph(topology_, name_, "slurm-conf"));
    for (const std::string& key : unknown_) {
      graph.add_problem("unknown-key", Severity::kWarning, key, "not known, and left out");
    }
    return graph;
  }

 private:
  [[nodiscard]] std::string operation() const { return "read " + name_; }

  Status add_line(std::string_view text, std::size_t line) {
    Fields fields;
    for (const std::string_view word : split_words(text)) {
      const std::size_t equals = word.find('=');
      if (equals == std::string_view::npos || equals == 0) {
        return fail(ErrorCode::kTopologySyntax, operation(), fmt::format("line {}: \"{}\" is not Key=Value", line, word.substr(0, 200)));
      }
      std::string_view value = word.substr(equals + 1);
      if (value.size() >= 2 && value.front() == '"' && value.back() == '"') value = value.substr(1, value.size() - 2);
      if (!fields.emplace(to_lower(word.substr(0, equals)), value).second) {
        return fail(ErrorCode::kTopologyInvalid, operation(), fmt::format("line {}: {} stands there twice", line, word.substr(0, equals)));
      }
    }
    if (fields.empty()) return {};
    if (fields.contains("switchname")) {
      topology_.switches.push_back({take(fields, "switchname"), take(fields, "switches"), take(fields, "nodes"), line});
      take(fields, "linkspeed");  // in units that Slurm calls arbitrary
    } else if (fields.contains("blockname")) {
      topology_.blocks.push_back({take(fields, "blockname"), take(fields, "nodes"), line});
    } else if (fields.contains("ringname")) {
      topology_.rings.push_back({take(fields, "ringname"), take(fields, "nodes"), line});
    } else if (fields.contains("blocksizes")) {
      SLUICE_CHECK_OK(add_block_sizes(take(fields, "blocksizes"), line));
    }
    for (const auto& [key, value] : fields) unknown_.push_back(key);
    return {};
  }

  static std::string take(Fields& fields, const std::string& key) {
    const auto node = fields.extract(key);
    return node.empty() ? std::string() : node.mapped();
  }

  Status add_block_sizes(const std::string& list, std::size_t line) {
    std::string_view rest = list;
    while (true) {
      const std::size_t comma = rest.find(',');
      const auto size = parse_whole<std::uint64_t>(rest.substr(0, comma));
      if (!size || topology_.block_sizes.size() >= 64) {
        return fail(ErrorCode::kTopologyInvalid, operation(), fmt::format("line {}: BlockSizes={} is no list of numbers", line, list));
      }
      topology_.block_sizes.push_back(*size);
      if (comma == std::string_view::npos) return {};
      rest.remove_prefix(comma + 1);
    }
  }

  std::string name_;
  SlurmTopology topology_;
  std::vector<std::string> unknown_;
};

}  // namespace

Result<SiteGraph> read_slurm_conf(std::string_view text, const std::string& name) { return ConfReader(name).read(text); }

}  // namespace sluice::topology
