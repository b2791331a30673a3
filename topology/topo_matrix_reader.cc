// The table has a header of device names, then a row for each device: its name, a cell for every column, "X" on the diagonal, and for GPUs
// the affinities. Blank affinities shift what follows them, so the affinities are taken from the right. A row shorter than the header is
// cut; words that continue it on the next line belong to it, since terminals wrap.

#include "topology/topo_matrix_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "topology/internal/matrix_text.h"
#include "topology/limits.h"

namespace sluice::topology {
namespace {

struct Row {
  std::size_t line = 0;
  std::string label;
  std::vector<std::string> cells;
  std::vector<std::string> rest;  // affinities
};

struct Table {
  std::vector<std::string> columns;  // names of devices; "" where there was no header to tell
  std::vector<Row> rows;
  bool has_header = false;
  bool has_cpu_affinity = false;
  bool has_numa_affinity = false;
  bool has_gpu_numa = false;
  std::size_t second_table_line = 0;                           // 0: none
  std::vector<std::pair<std::string, std::string>> nic_names;  // NIC0 -> mlx5_3
};

bool is_device_name(std::string_view word) { return is_gpu_name(word) || is_nic_name(word); }

bool is_cell(std::string_view word) { return is_matrix_cell(word) || is_p2p_cell(word) || word == "?"; }

std::string upper(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  return result;
}

// A header is device names, one of them a GPU's, up to the first word of the affinities.
bool is_header(const std::vector<std::string>& words) {
  std::size_t names = 0;
  bool has_gpu = false;
  for (const std::string& word : words) {
    if (word == "CPU" || word == "NUMA" || word == "GPU") break;
    if (!is_device_name(word)) return false;
    has_gpu = has_gpu || is_gpu_name(word);
    ++names;
  }
  return names != 0 && has_gpu;
}

bool is_row(const std::vector<std::string>& words) { return words.size() >= 2 && is_device_name(words[0]) && is_cell(words[1]); }

class TableFinder {
 public:
  Table find(const std::vector<MatrixLine>& lines) {
    for (const MatrixLine& line : lines) {
      if (table_.second_table_line == 0) add(line);
      add_nic_name(line.words);
    }
    return std::move(table_);
  }

 private:
  void add(const MatrixLine& line) {
    if (is_row(line.words)) {
      add_row(line);
    } else if (line.number == last_line_ + 1 && continues(line.words)) {
      last_line_ = line.number;
    } else if (is_header(line.words)) {
      if (table_.has_header || !table_.rows.empty()) {
        table_.second_table_line = line.number;
      } else {
        table_.has_header = true;
        add_to_header(line.words);
      }
      last_line_ = line.number;
    }
  }

  void add_to_header(const std::vector<std::string>& words) {
    std::size_t index = 0;
    while (index < words.size() && is_device_name(words[index])) table_.columns.push_back(words[index++]);
    for (; index < words.size(); ++index) {
      const std::string_view next = index + 1 < words.size() ? std::string_view(words[index + 1]) : std::string_view{};
      if (words[index] == "CPU" && next == "Affinity") table_.has_cpu_affinity = true;
      if (words[index] == "NUMA" && next == "Affinity") table_.has_numa_affinity = true;
      if (words[index] == "GPU" && next == "NUMA") table_.has_gpu_numa = true;
    }
  }

  void add_row(const MatrixLine& line) {
    Row row{line.number, line.words[0], {}, {}};
    const bool is_repeated = std::ranges::find(table_.rows, row.label, &Row::label) != table_.rows.end();
    if (is_repeated) {
      table_.second_table_line = line.number;
      return;
    }
    table_.rows.push_back(std::move(row));
    add_to_row({line.words.begin() + 1, line.words.end()});
    last_line_ = line.number;
  }

  void add_to_row(const std::vector<std::string>& words) {
    Row& row = table_.rows.back();
    for (const std::string& word : words) {
      const bool is_full = table_.has_header && row.cells.size() >= table_.columns.size();
      if (row.rest.empty() && !is_full && is_cell(word)) {
        row.cells.push_back(upper(word));
      } else {
        row.rest.push_back(word);
      }
    }
  }

  // The part that a terminal wrapped: of the header before the first row, of a row that is not full yet.
  bool continues(const std::vector<std::string>& words) {
    if (table_.has_header && table_.rows.empty()) {
      if (!is_device_name(words[0]) && words[0] != "CPU" && words[0] != "NUMA" && words[0] != "GPU" && words[0] != "Affinity") return false;
      add_to_header(words);
      return true;
    }
    if (table_.rows.empty() || !table_.has_header || table_.rows.back().cells.size() >= table_.columns.size()) return false;
    if (!is_cell(words[0]) || (words.size() > 1 && words[1] == "=")) return false;  // "X = Self" opens the legend
    add_to_row(words);
    return true;
  }

  // "NIC0: mlx5_3" of the legend.
  void add_nic_name(const std::vector<std::string>& words) {
    if (words.size() != 2 || !words[0].starts_with("NIC") || !words[0].ends_with(':')) return;
    table_.nic_names.emplace_back(words[0].substr(0, words[0].size() - 1), words[1]);
  }

  Table table_;
  std::size_t last_line_ = 0;
};

class MatrixReader {
 public:
  MatrixReader(Table table, const std::string& name) : table_(std::move(table)) { graph_.files.push_back({name, "topo-matrix"}); }

  Result<SiteGraph> read() {
    SLUICE_CHECK_OK(check_kind());
    if (!table_.has_header) name_columns_by_diagonal();
    if (table_.columns.size() > kEndpointsMax) {
      return fail(ErrorCode::kTopologyTooLarge, operation(), fmt::format("{} columns, at most {}", table_.columns.size(), kEndpointsMax));
    }
    SLUICE_CHECK_OK(add_devices());
    for (const Row& row : table_.rows) SLUICE_CHECK_OK(add_row(row));
    report_missing_rows();
    report_asymmetry();
    return std::move(graph_);
  }

 private:
  [[nodiscard]] std::string operation() const { return "read " + graph_.files.front().name; }

  [[nodiscard]] tl::unexpected<Error> invalid(std::string text) const {
    return fail(ErrorCode::kTopologyInvalid, operation(), std::move(text));
  }

  [[nodiscard]] Status check_kind() const {
    if (table_.rows.empty()) {
      if (!table_.has_header) {
        return fail(ErrorCode::kTopologyUnrecognized, operation(),
                    "no row \"GPU0 X ...\" of a table and no header \"GPU0 GPU1 ...\" in the text");
      }
      return invalid(fmt::format("a header with {} devices and no row below it", table_.columns.size()));
    }
    for (const Row& row : table_.rows) {
      const auto p2p = std::ranges::find_if(row.cells, is_p2p_cell);
      if (p2p == row.cells.end()) continue;
      return fail(
          ErrorCode::kTopologyWrongKind, operation(),
          fmt::format("line {}: \"{}\" is a cell of `nvidia-smi topo -p2p`, which tells what may copy, not how devices are connected; "
                      "give the output of `nvidia-smi topo -m`",
                      row.line, *p2p));
    }
    return {};
  }

  // Without a header the place of the X in a row tells the row's own column.
  void name_columns_by_diagonal() {
    std::size_t unnamed = 0;
    for (const Row& row : table_.rows) {
      if (row.cells.size() > table_.columns.size()) table_.columns.resize(row.cells.size());
      const auto own = std::ranges::find(row.cells, "X");
      if (own != row.cells.end()) table_.columns[static_cast<std::size_t>(own - row.cells.begin())] = row.label;
    }
    unnamed = static_cast<std::size_t>(std::ranges::count(table_.columns, std::string{}));
    graph_.add_gap("no-header", "file",
                   fmt::format("the header is missing: {} of {} columns have no name", unnamed, table_.columns.size()));
  }

  Status add_devices() {
    Device node;
    node.name = "node0";
    graph_.devices.push_back(std::move(node));
    for (const std::string& name : table_.columns) {
      if (name.empty()) continue;
      Device device;
      device.kind = is_gpu_name(name) ? DeviceKind::kGpu : DeviceKind::kNic;
      device.name = name;
      const auto alias = std::ranges::find(table_.nic_names, name, &std::pair<std::string, std::string>::first);
      if (alias != table_.nic_names.end()) device.hardware = alias->second;
      if (!device_by_name_.emplace(name, graph_.devices.size()).second) return invalid(fmt::format("the header names {} twice", name));
      graph_.devices.push_back(std::move(device));
    }
    return {};
  }

  Status add_row(const Row& row) {
    const auto own = device_by_name_.find(row.label);
    if (own == device_by_name_.end()) {
      if (is_gpu_name(row.label)) return invalid(fmt::format("line {}: row {} has no column in the header", row.line, row.label));
      graph_.add_problem("row-without-column", Severity::kWarning, row.label, "the header has no column for this row, which was left out");
      return {};
    }
    if (row.cells.size() < table_.columns.size() && table_.has_header) {
      graph_.add_gap("short-row", row.label, fmt::format("{}: {}/{} cells", row.label, row.cells.size(), table_.columns.size()));
    }
    for (std::size_t column = 0; column < row.cells.size(); ++column) {
      SLUICE_CHECK_OK(add_cell(row, own->second, column));
    }
    add_affinity(row, graph_.devices[own->second]);
    return {};
  }

  Status add_cell(const Row& row, DeviceIndex from, std::size_t column) {
    const std::string& name = table_.columns[column];
    const std::string& cell = row.cells[column];
    if (name.empty()) return {};
    const DeviceIndex to = device_by_name_.at(name);
    if ((from == to) != (cell == "X")) {
      return invalid(
          fmt::format("line {}: cell {}/{} is {}, and X stands where a device meets itself, only there", row.line, row.label, name, cell));
    }
    if (cell == "?") {
      graph_.add_gap("missing-cell", fmt::format("{}/{}", row.label, name), "the cell is empty");
    } else if (from != to) {
      graph_.links.push_back({from, to, cell, std::nullopt, LinkBasis::kStated});
      cells_.emplace(std::pair{from, to}, cell);
      if (cell.starts_with("NV") && graph_.devices[to].kind == DeviceKind::kGpu) note_lanes(graph_.devices[from], cell);
    }
    return {};
  }

  // The widest bundle: behind a switch all peers share it.
  static void note_lanes(Device& gpu, std::string_view cell) {
    std::uint32_t lanes = 0;
    std::from_chars(cell.data() + 2, cell.data() + cell.size(), lanes);
    gpu.fast_links = std::max(gpu.fast_links, lanes);
  }

  void add_affinity(const Row& row, Device& device) {
    std::vector<std::string> words = row.rest;
    if (table_.has_gpu_numa && !words.empty()) words.pop_back();
    const bool has_list = !words.empty() && words.back().find_first_of("-,") != std::string::npos;
    if (table_.has_numa_affinity && !words.empty() && !(has_list && words.size() == 1 && table_.has_cpu_affinity)) {
      int numa = 0;
      const std::string& word = words.back();
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), numa);
      if (error == std::errc() && end == word.data() + word.size()) device.numa = numa;
      words.pop_back();
    }
    if (words.empty()) return;
    const std::string& cpus = words.front();
    const bool is_list =
        cpus == "N/A" || (cpus.find_first_not_of("0123456789-,") == std::string::npos && cpus.front() >= '0' && cpus.back() >= '0');
    if (!is_list) {
      graph_.add_problem("affinity-damaged", Severity::kWarning, row.label, fmt::format("CPU affinity \"{}\" is no list of CPUs", cpus));
    }
  }

  void report_missing_rows() {
    for (const std::string& name : table_.columns) {
      if (name.empty() || std::ranges::find(table_.rows, name, &Row::label) != table_.rows.end()) continue;
      graph_.add_gap("missing-row", name, fmt::format("missing row {}", name));
    }
    if (table_.second_table_line != 0) {
      graph_.add_problem("second-table", Severity::kWarning, fmt::format("line {}", table_.second_table_line),
                         "another table starts here and was not read: give each machine's table in a file of its own");
    }
  }

  void report_asymmetry() {
    for (const auto& [pair, cell] : cells_) {
      const auto& [from, to] = pair;
      const auto back = cells_.find({to, from});
      if (from > to || back == cells_.end() || back->second == cell) continue;
      const std::string& first = graph_.devices[from].name;
      const std::string& second = graph_.devices[to].name;
      graph_.add_problem("asymmetric", Severity::kError, fmt::format("{}/{}", first, second),
                         fmt::format("{} says {} to {}, and {} says {} to {}", first, cell, second, second, back->second, first));
    }
  }

  Table table_;
  SiteGraph graph_;
  std::map<std::string, DeviceIndex> device_by_name_;
  std::map<std::pair<DeviceIndex, DeviceIndex>, std::string> cells_;
};

}  // namespace

Result<SiteGraph> read_topo_matrix(std::string_view text, const std::string& name) {
  if (text.size() > kFileBytesMax) {
    return fail(ErrorCode::kTopologyTooLarge, "read " + name, fmt::format("{} bytes, at most {}", text.size(), kFileBytesMax));
  }
  return MatrixReader(TableFinder().find(split_matrix_text(text)), name).read();
}

}  // namespace sluice::topology
