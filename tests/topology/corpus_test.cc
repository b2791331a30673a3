// Goal: collected files of real machines are read exactly as their index says.
// Method: for every file of the collection, when it is there: counts of devices and links, missing rows, refusals, diagnoses. Files for
// which the index gives no numbers are held against their own text.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <sstream>

#include "topology/topology_reader.h"

namespace sluice::topology {
namespace {

const std::filesystem::path kCollection = std::filesystem::path(SLUICE_SOURCE_DIR) / ".." / "shared" / "data" / "topo";

using Pairs = std::map<std::string, std::size_t>;

struct Entry {
  std::string file, kind, source, gpus, nics, links, notes;
};

std::vector<Entry> read_index() {
  std::vector<Entry> entries;
  std::ifstream index(kCollection / "INDEX.tsv");
  std::string line;
  std::getline(index, line);
  while (std::getline(index, line)) {
    std::stringstream cells(line);
    Entry entry;
    for (std::string* cell : {&entry.file, &entry.kind, &entry.source, &entry.gpus, &entry.nics, &entry.links, &entry.notes}) {
      std::getline(cells, *cell, '\t');
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::string read_text(const std::string& name) {
  std::ifstream file(kCollection / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// "GG NV4 x6, GN SYS x6 + PHB x2": where the index gives the true reading in words.
Pairs pairs_in_words(const std::string& text) {
  Pairs pairs;
  std::string kind;
  const std::regex part("(GG|GN|NN)? ?([A-Z]+[0-9]*) x([0-9]+)");
  for (std::sregex_iterator at(text.begin(), text.end(), part), end; at != end; ++at) {
    if ((*at)[1].matched) kind = (*at)[1];
    pairs[kind + ":" + std::string((*at)[2])] = std::stoul((*at)[3]);
  }
  return pairs;
}

bool has_problem(const SiteGraph& graph, const std::string& id, const std::string& where) {
  return std::ranges::any_of(graph.problems, [&](const Problem& problem) { return problem.id == id && problem.where == where; });
}

std::string check_matrix_gaps(const Entry& entry, const SiteGraph& graph) {
  if (!graph.is_partial) return "not partial";
  const std::regex missing("missing row ([A-Za-z0-9_]+);"), cut("([A-Za-z0-9_]+):([0-9]+/[0-9]+)");
  for (std::sregex_iterator at(entry.notes.begin(), entry.notes.end(), missing), end; at != end; ++at) {
    if (!has_problem(graph, "missing-row", (*at)[1])) return "does not report " + at->str();
  }
  for (std::sregex_iterator at(entry.notes.begin(), entry.notes.end(), cut), end; at != end; ++at) {
    if (!has_problem(graph, "short-row", (*at)[1])) return "does not report " + at->str();
  }
  return {};
}

std::string check_matrix(const Entry& entry, const SiteGraph& graph) {
  const std::size_t in_words = entry.notes.find("TRUE RESULT:");
  const bool is_whole = entry.notes.starts_with("complete") || in_words != std::string::npos;
  if (entry.gpus != "?" && std::to_string(graph.ngpus()) != entry.gpus) return fmt::format("{} GPUs", graph.ngpus());
  const std::size_t nics = graph.count(DeviceKind::kNic);
  if (entry.nics != "?" && std::to_string(nics) != entry.nics) return fmt::format("{} NICs", nics);
  const Pairs expected =
      in_words != std::string::npos ? pairs_in_words(entry.notes.substr(in_words)) : nlohmann::json::parse(entry.links).get<Pairs>();
  const Pairs pairs = count_pairs(graph);
  if (entry.gpus != "?" && pairs != expected) return "links " + nlohmann::json(pairs).dump();
  if (is_whole) return graph.is_partial ? "partial: " + graph.problems.front().text : "";
  return check_matrix_gaps(entry, graph);
}

std::string check_xml(const Entry& entry, const SiteGraph& graph) {
  const std::string found = fmt::format("cpu={} pci={}", graph.count(DeviceKind::kCpu), graph.count(DeviceKind::kPci));
  if (entry.notes.find(found + ";") == std::string::npos) return found;
  const std::size_t nics = graph.count(DeviceKind::kNic);
  if (std::to_string(graph.ngpus()) != entry.gpus || std::to_string(nics) != entry.nics) {
    return fmt::format("{} GPUs, {} NICs", graph.ngpus(), nics);
  }
  std::smatch match;
  const bool has_links = std::regex_search(entry.notes, match, std::regex("links per GPU (\\{[^}]*\\})"));
  if (has_links == graph.is_partial) return graph.is_partial ? "partial: " + graph.problems.front().text : "not partial";
  if (!has_links) return {};
  Pairs lanes;
  for (const Device& device : graph.devices) {
    if (device.kind == DeviceKind::kGpu) ++lanes[std::to_string(device.fast_links)];
  }
  return lanes == nlohmann::json::parse(match[1].str()).get<Pairs>() ? "" : "links per GPU " + nlohmann::json(lanes).dump();
}

bool has_name_end(const std::string& file, std::string_view end) { return file.ends_with(end); }

// What must be refused, and how; nothing for files that must be read.
std::optional<ErrorCode> expected_refusal(const Entry& entry) {
  if (entry.kind == "nvidia-smi topo -p2p") return ErrorCode::kTopologyWrongKind;
  if (entry.notes.find("INVALID for NCCL") != std::string::npos) return ErrorCode::kTopologyInvalid;
  if (entry.notes.find("NEGATIVE fixture") != std::string::npos) return ErrorCode::kTopologyInvalid;
  if (has_name_end(entry.file, ".tar.bz2") || has_name_end(entry.file, ".5")) return ErrorCode::kTopologyWrongKind;
  if (entry.kind.starts_with("ASTRA") && read_text(entry.file).find("tbd") != std::string::npos) return ErrorCode::kTopologyInvalid;
  // Of the rest: what describes no cluster or machine.
  for (const char* part : {"kueue", "topograph_test-"}) {
    if (entry.file.find(part) != std::string::npos) return ErrorCode::kTopologyWrongKind;
  }
  return std::nullopt;
}

std::string check_counts(const Entry& entry, const SiteGraph& graph) {
  const std::regex count("([A-Z][A-Za-z]*( cuda/nvml)?)=([0-9]+)");
  std::size_t compared = 0;
  for (std::sregex_iterator at(entry.notes.begin(), entry.notes.end(), count), end; at != end; ++at, ++compared) {
    const auto found = graph.counts.find((*at)[1]);
    const std::uint64_t value = found == graph.counts.end() ? 0 : found->second;
    if (std::to_string(value) != (*at)[3]) return fmt::format("{}={}", (*at)[1].str(), value);
  }
  if (compared != 6) return "the index has other counts than this test knows";
  const bool has_io = graph.counts.contains("PCIDev");
  return has_io == graph.is_partial ? "partial is wrong" : "";
}

std::string check_channels(const Entry& entry, const SiteGraph& graph) {
  if (graph.channel_files.size() != 1 || !graph.is_partial) return "is not known as a graph file";
  const ChannelFile& file = graph.channel_files.front();
  const std::string found = fmt::format("graphs={} channels={}", file.graphs, file.channels);
  return entry.links == found || entry.notes.find(found) != std::string::npos ? "" : found;
}

// Product of the numbers after a key: "npus_count: [ 2, 8, 4 ]".
std::optional<std::size_t> product_after(const std::string& text, const std::string& key) {
  const std::size_t at = text.find(key);
  if (at == std::string::npos) return std::nullopt;
  const std::string list = text.substr(at + key.size(), text.find(']', at) - at - key.size());
  std::size_t product = 1;
  const std::regex number("[0-9]+");
  for (std::sregex_iterator one(list.begin(), list.end(), number), end; one != end; ++one) product *= std::stoul(one->str());
  return product;
}

std::string check_against_text(const Entry& entry, const SiteGraph& graph) {
  const std::string text = read_text(entry.file);
  for (const char* key : {"\nnpus_count:", "\"logical-dims\":"}) {
    const auto gpus = product_after("\n" + text, key);
    if (gpus && *gpus != graph.ngpus()) return fmt::format("{} GPUs, not {}", graph.ngpus(), *gpus);
  }
  if (entry.kind.starts_with("TACCL")) {
    const auto json = nlohmann::json::parse(text);
    if (json["gpus_per_node"] != graph.ngpus() || json["nics_per_node"] != graph.count(DeviceKind::kNic)) return "GPUs or NICs";
  }
  if (graph.nnodes() == 0) return "no nodes";
  return graph.ngpus() == 0 && !graph.is_partial ? "no GPUs, and not partial" : "";
}

std::string check_kind(const Entry& entry, const SiteGraph& graph) {
  if (entry.kind == "nvidia-smi topo -m") return check_matrix(entry, graph);
  if (entry.kind.starts_with("NCCL topo")) return check_xml(entry, graph);
  if (entry.kind.starts_with("NCCL graph")) return check_channels(entry, graph);
  if (entry.kind.starts_with("hwloc")) return check_counts(entry, graph);
  return check_against_text(entry, graph);
}

std::string check(const Entry& entry) {
  const auto graph = read_topology_file(read_text(entry.file), entry.file);
  if (const auto refusal = expected_refusal(entry)) {
    if (graph) return "was not refused";
    return graph.error().code == *refusal ? "" : graph.error().to_string();
  }
  if (!graph) return graph.error().to_string();
  return check_kind(entry, *graph);
}

TEST(TopologyCollection, EveryFileIsReadAsTheIndexSays) {
  if (!std::filesystem::exists(kCollection / "INDEX.tsv")) GTEST_SKIP() << "no collection of topology files at " << kCollection;
  std::map<std::string, std::pair<int, int>> exact_of;
  for (const Entry& entry : read_index()) {
    const std::string difference = check(entry);
    auto& [exact, all] = exact_of[entry.kind];
    ++all;
    if (difference.empty()) ++exact;
    EXPECT_EQ(difference, "") << entry.file << "\n  index: " << entry.gpus << " " << entry.nics << " " << entry.links << " " << entry.notes;
  }
  for (const auto& [kind, counts] : exact_of) fmt::print("{}: {} of {} exactly as the index says\n", kind, counts.first, counts.second);
}

}  // namespace
}  // namespace sluice::topology
