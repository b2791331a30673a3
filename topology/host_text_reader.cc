#include "topology/host_text_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "topology/internal/cluster_builder.h"
#include "topology/internal/text_fields.h"
#include "topology/limits.h"

namespace sluice::topology {
namespace {

struct TextLine {
  std::size_t number = 0;
  std::vector<std::string_view> words;
};

std::vector<TextLine> lines_of(std::string_view text) {
  std::vector<TextLine> lines;
  for_each_line(text, kTextLinesMax, [&](std::size_t number, std::string_view line) {
    std::vector<std::string_view> words = split_words(line);
    if (!words.empty()) lines.push_back({number, std::move(words)});
  });
  return lines;
}

SiteGraph one_node(const std::string& name, std::string kind) {
  SiteGraph graph;
  graph.files.push_back({name, std::move(kind)});
  Device node;
  node.name = "node0";
  graph.add_device(std::move(node));
  return graph;
}

// "available: 2 nodes (0-1)", "node 0 cpus: 0 1 2".
Result<SiteGraph> read_numactl(const std::vector<TextLine>& lines, const std::string& name) {
  SiteGraph graph = one_node(name, "numactl");
  std::optional<std::size_t> announced;
  for (const auto& [number, words] : lines) {
    if (words[0] == "available:" && words.size() >= 2) announced = parse_whole<std::size_t>(words[1]);
    if (words.size() < 3 || words[0] != "node" || words[2] != "cpus:") continue;
    const auto numa = parse_whole<int>(words[1]);
    if (!numa) return fail(ErrorCode::kTopologyInvalid, "read " + name, fmt::format("line {}: no number of a NUMA node", number));
    Device cpu;
    cpu.kind = DeviceKind::kCpu;
    cpu.name = fmt::format("cpu{}", *numa);
    cpu.numa = numa;
    graph.add_device(std::move(cpu));
    ++graph.counts["NUMANode"];
    graph.counts["PU"] += words.size() - 3;
  }
  if (graph.counts["NUMANode"] > kEndpointsMax) return fail(ErrorCode::kTopologyTooLarge, "read " + name, "too many NUMA nodes");
  if (announced && *announced != graph.counts["NUMANode"]) {
    graph.add_gap("missing-row", "file", fmt::format("{} NUMA nodes are announced and {} listed", *announced, graph.counts["NUMANode"]));
  }
  graph.add_gap("no-gpus", "file", "the text says nothing of GPUs");
  return graph;
}

// "GPU[0]" and "GPU0".
std::optional<int> gpu_number(std::string_view word) {
  if (!word.starts_with("GPU")) return std::nullopt;
  word.remove_prefix(3);
  if (word.starts_with('[') && word.ends_with(']')) word = word.substr(1, word.size() - 2);
  return parse_whole<int>(word);
}

class RocmReader {
 public:
  explicit RocmReader(const std::string& name) : graph_(one_node(name, "rocm-smi")) {}

  Result<SiteGraph> read(const std::vector<TextLine>& lines) {
    bool is_link_table = false;
    std::vector<DeviceIndex> columns;
    for (const auto& [number, words] : lines) {
      const auto gpu = gpu_number(words[0]);
      if (words[0].starts_with("==")) is_link_table = std::ranges::find(words, "Type") != words.end();
      if (!gpu) continue;
      if (!is_known(*gpu) && gpu_of_.size() >= kEndpointsMax) {
        return fail(ErrorCode::kTopologyTooLarge, "read " + graph_.files.front().name, fmt::format("more than {} GPUs", kEndpointsMax));
      }
      const bool is_header =
          words.size() >= 2 && std::ranges::all_of(words, [](std::string_view word) { return gpu_number(word).has_value(); });
      if (words.size() >= 6 && words[3] == "Numa" && words[4] == "Node:") device(*gpu).numa = parse_whole<int>(words[5]);
      if (is_header && is_link_table) {
        columns.clear();
        for (const std::string_view word : words) columns.push_back(index_of(*gpu_number(word)));
        if (columns.size() > kEndpointsMax)
          return fail(ErrorCode::kTopologyTooLarge, "read " + graph_.files.front().name, "too many columns");
      } else if (is_link_table && words.size() == columns.size() + 1 && graph_.links.size() < kEndpointsMax * kEndpointsMax) {
        for (std::size_t column = 0; column < columns.size(); ++column) add_cell(index_of(*gpu), columns[column], words[column + 1]);
      }
    }
    if (graph_.links.empty()) graph_.add_gap("no-links", "file", "the text says nothing of how the GPUs are connected");
    return std::move(graph_);
  }

 private:
  [[nodiscard]] bool is_known(int number) const { return gpu_of_.contains(number); }

  DeviceIndex index_of(int number) {
    const auto [known, is_new] = gpu_of_.emplace(number, graph_.devices.size());
    if (is_new) {
      Device gpu;
      gpu.kind = DeviceKind::kGpu;
      gpu.name = fmt::format("GPU{}", number);
      graph_.add_device(std::move(gpu));
    }
    return known->second;
  }
  Device& device(int number) { return graph_.devices[index_of(number)]; }

  void add_cell(DeviceIndex from, DeviceIndex to, std::string_view word) {
    if (from == to || word == "0") return;
    const std::string label = word == "XGMI" ? "XGMI" : "SYS";
    graph_.links.push_back({from, to, label, std::nullopt, LinkBasis::kStated});
    if (word == "XGMI") ++graph_.devices[from].fast_links;
  }

  SiteGraph graph_;
  std::map<int, DeviceIndex> gpu_of_;
};

// htsim: "Nodes 8", "Tiers 3", "Podsize 4", then for each tier its radix and the speed of the links down from it.
class HtsimReader {
 public:
  explicit HtsimReader(const std::string& name) : name_(name), builder_(name, "htsim") {}

  Result<SiteGraph> read(const std::vector<TextLine>& lines) {
    std::uint64_t nodes = 0;
    std::uint64_t pod = 0;
    for (const auto& [number, words] : lines) {
      if (words.size() != 2) return invalid(number, "must be a word and a number");
      const auto value = parse_whole<std::uint64_t>(words[1]);
      if (!value) return invalid(number, fmt::format("\"{}\" is no number", words[1].substr(0, 80)));
      if (words[0] == "Nodes") nodes = *value;
      if (words[0] == "Podsize") pod = *value;
      if (words[0] == "Tier") {
        if (*value != tiers_.size() || *value > 2) return invalid(number, "tiers must be numbered from 0 to 2");
        tiers_.emplace_back();
      }
      if (!tiers_.empty()) tiers_.back()[std::string(words[0])] = *value;
    }
    if (nodes == 0 || nodes > kNodesMax) return invalid(1, fmt::format("Nodes must be from 1 to {}", kNodesMax));
    if (tiers_.empty() || at(0, "Radix_Down") == 0) return invalid(1, "Tier 0 with its Radix_Down is missing");
    build(nodes, pod == 0 ? nodes : pod);
    return builder_.take();
  }

 private:
  [[nodiscard]] tl::unexpected<Error> invalid(std::size_t line, std::string_view text) const {
    return fail(ErrorCode::kTopologyInvalid, "read " + name_, fmt::format("line {}: {}", line, text));
  }
  [[nodiscard]] std::uint64_t at(std::size_t tier, const std::string& key) const {
    if (tier >= tiers_.size()) return 0;
    const auto found = tiers_[tier].find(key);
    return found == tiers_[tier].end() ? 0 : found->second;
  }
  // GB/s of so many links down from a tier.
  [[nodiscard]] std::optional<double> speed(std::size_t tier, std::uint64_t links) const {
    const std::uint64_t gigabits = at(tier, "Downlink_speed_Gbps");
    return gigabits == 0 || links == 0 ? std::nullopt : std::optional(static_cast<double>(gigabits) * static_cast<double>(links) / 8);
  }
  [[nodiscard]] std::optional<double> latency(std::size_t tier) const {
    return tiers_[tier].contains("Downlink_Latency_ns") ? std::optional(static_cast<double>(at(tier, "Downlink_Latency_ns")) / 1000)
                                                        : std::nullopt;
  }

  // The switches of a pod above the leaves stand for one, and so do those on top: what counts is the speed up to them.
  void build(std::uint64_t nodes, std::uint64_t pod) {
    for (std::uint64_t number = 0; number < nodes; ++number) {
      const std::uint64_t leaf_number = number / at(0, "Radix_Down");
      const DeviceIndex leaf = builder_.network_switch(fmt::format("leaf{}", leaf_number));
      builder_.join(builder_.node(fmt::format("node{}", number)), leaf, "NET", speed(0, 1), latency(0));
      if (tiers_.size() < 2) continue;
      const DeviceIndex middle = builder_.network_switch(tiers_.size() == 2 ? "spine" : fmt::format("pod{}", number / pod));
      builder_.join(leaf, middle, "NET", speed(1, at(0, "Radix_Up")), latency(1));
      if (tiers_.size() < 3) continue;
      const std::uint64_t switches = at(1, "Radix_Down") == 0 ? 0 : pod / at(0, "Radix_Down") * at(0, "Radix_Up") / at(1, "Radix_Down");
      builder_.join(middle, builder_.network_switch("core"), "NET", speed(2, at(1, "Radix_Up") * std::max<std::uint64_t>(switches, 1)),
                    latency(2));
    }
  }

  std::string name_;
  ClusterBuilder builder_;
  std::vector<std::map<std::string, std::uint64_t>> tiers_;
};

}  // namespace

std::optional<Result<SiteGraph>> try_read_host_text(std::string_view text, const std::string& name) {
  const std::vector<TextLine> lines = lines_of(text.substr(0, kYamlBytesMax));
  const auto has = [&](auto&& is_it) { return std::ranges::any_of(lines, [&](const TextLine& line) { return is_it(line.words); }); };
  using Words = std::vector<std::string_view>;
  if (has([](const Words& words) { return words.size() >= 3 && words[0] == "node" && words[2] == "cpus:"; }))
    return read_numactl(lines, name);
  const bool is_rocm = has([](const Words& words) { return words.size() >= 5 && gpu_number(words[0]) && words[2] == "(Topology)"; }) ||
                       text.find("Link Type between two GPUs") != std::string_view::npos;
  if (is_rocm) return RocmReader(name).read(lines);
  const bool is_htsim = lines.size() >= 3 && lines[0].words[0] == "Nodes" && lines[1].words[0] == "Tiers";
  if (is_htsim) return HtsimReader(name).read(lines);
  return std::nullopt;
}

}  // namespace sluice::topology
