#include "topology/internal/matrix_text.h"

#include <algorithm>
#include <array>
#include <optional>

#include "topology/limits.h"

namespace sluice::topology {
namespace {

constexpr std::array<std::string_view, 7> kPathLabels = {"PIX", "PXB", "PXN", "PHB", "NODE", "SYS", "SOC"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

bool starts_with_any_case(std::string_view word, std::string_view prefix) {
  return word.size() >= prefix.size() && std::ranges::equal(word.substr(0, prefix.size()), prefix, {}, upper);
}

// Length of the cell that the text starts with; 0 when it starts with none.
std::size_t cell_length(std::string_view text) {
  for (const std::string_view label : kPathLabels) {
    if (starts_with_any_case(text, label)) return label.size();
  }
  for (const std::string_view prefix : {std::string_view("NV"), std::string_view("ICN")}) {
    if (!starts_with_any_case(text, prefix)) continue;
    std::size_t end = prefix.size();
    while (end < text.size() && is_digit(text[end])) ++end;
    if (end > prefix.size()) return end;
  }
  return starts_with_any_case(text, "X") ? 1 : 0;
}

bool is_numbered(std::string_view word, std::string_view prefix) {
  return word.size() > prefix.size() && word.starts_with(prefix) && std::ranges::all_of(word.substr(prefix.size()), is_digit);
}

// Colours and other terminal sequences, carriage returns, no-break spaces.
std::string clean(std::string_view line) {
  std::string result;
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '\x1b' && at + 1 < line.size() && line[at + 1] == '[') {
      at += 2;
      while (at < line.size() && !is_letter(line[at])) ++at;
    } else if (line.substr(at).starts_with("\xC2\xA0")) {
      result += ' ';
      ++at;
    } else {
      result += line[at] == '\t' || line[at] == '\r' ? ' ' : line[at];
    }
  }
  return result;
}

std::string_view trim(std::string_view text, std::string_view unwanted = " ") {
  const std::size_t first = text.find_first_not_of(unwanted);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(unwanted) - first + 1);
}

std::string_view without_quoting(std::string_view line) {
  line = trim(line);
  while (line.starts_with('#') || line.starts_with('>') || line.starts_with("//")) line = trim(line.substr(line.starts_with("//") ? 2 : 1));
  return line;
}

// Words that are several cells without a blank between them are taken apart.
void add_word(std::vector<std::string>& words, std::string_view word) {
  std::vector<std::string> parts;
  std::string_view rest = word;
  while (!rest.empty()) {
    const std::size_t length = cell_length(rest);
    if (length == 0) break;
    parts.emplace_back(rest.substr(0, length));
    rest.remove_prefix(length);
  }
  if (rest.empty() && parts.size() > 1) {
    std::ranges::move(parts, std::back_inserter(words));
  } else {
    words.emplace_back(word);
  }
}

void add_words(std::vector<std::string>& words, std::string_view text) {
  while (true) {
    text = trim(text);
    if (text.empty()) return;
    const std::size_t end = text.find(' ');
    add_word(words, text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end);
  }
}

std::vector<std::string_view> markdown_cells(std::string_view line) {
  std::vector<std::string_view> cells;
  line = trim(line);
  if (line.starts_with('|')) line.remove_prefix(1);
  if (line.ends_with('|')) line.remove_suffix(1);
  while (true) {
    const std::size_t bar = line.find('|');
    cells.push_back(trim(line.substr(0, bar), " *`"));
    if (bar == std::string_view::npos) return cells;
    line.remove_prefix(bar + 1);
  }
}

// Where the columns of a Markdown table are.
struct MarkdownColumns {
  std::vector<std::size_t> devices;
  std::vector<std::size_t> affinities;  // CPU, NUMA, GPU NUMA
  std::optional<std::size_t> label;
};

std::optional<MarkdownColumns> find_columns(const std::vector<std::string_view>& cells) {
  MarkdownColumns columns;
  for (std::size_t index = 0; index < cells.size(); ++index) {
    const bool is_affinity = cells[index].find("ffinity") != std::string_view::npos || cells[index].starts_with("GPU NUMA");
    if (is_affinity) {
      columns.affinities.push_back(index);
    } else if (is_gpu_name(cells[index]) || is_nic_name(cells[index])) {
      columns.devices.push_back(index);
    } else if (!columns.label) {
      columns.label = index;
    }
  }
  const bool is_header =
      columns.label && std::ranges::any_of(columns.devices, [&](std::size_t index) { return is_gpu_name(cells[index]); });
  return is_header ? std::optional(columns) : std::nullopt;
}

class Splitter {
 public:
  std::vector<MatrixLine> split(std::string_view text) {
    for (std::size_t number = 1; number <= kTextLinesMax; ++number) {
      const std::size_t end = text.find('\n');
      add_line(number, clean(text.substr(0, end)));
      if (end == std::string_view::npos) break;
      text.remove_prefix(end + 1);
    }
    return std::move(lines_);
  }

 private:
  void add_line(std::size_t number, const std::string& raw) {
    const std::string_view line = without_quoting(raw);
    MatrixLine result{number, {}};
    if (std::ranges::count(line, '|') >= 2) {
      add_markdown(result.words, markdown_cells(line));
    } else {
      add_words(result.words, line);
    }
    if (!result.words.empty()) lines_.push_back(std::move(result));
  }

  void add_markdown(std::vector<std::string>& words, const std::vector<std::string_view>& cells) {
    if (std::ranges::all_of(cells, [](std::string_view cell) { return cell.find_first_not_of("-: ") == std::string_view::npos; })) return;
    if (!columns_) {
      columns_ = find_columns(cells);
      if (!columns_) return;
      for (const std::size_t index : columns_->devices) words.emplace_back(cells[index]);
      for (const std::size_t index : columns_->affinities) add_words(words, cells[index]);
      return;
    }
    const auto cell = [&](std::size_t index) { return index < cells.size() ? cells[index] : std::string_view{}; };
    if (cell(*columns_->label).empty()) return;
    words.emplace_back(cell(*columns_->label));
    for (const std::size_t index : columns_->devices) words.emplace_back(cell(index).empty() ? "?" : cell(index));
    for (const std::size_t index : columns_->affinities) add_words(words, cell(index));
  }

  std::vector<MatrixLine> lines_;
  std::optional<MarkdownColumns> columns_;  // of the first table with GPUs
};

}  // namespace

bool is_matrix_cell(std::string_view word) { return !word.empty() && cell_length(word) == word.size(); }

bool is_p2p_cell(std::string_view word) {
  constexpr std::array<std::string_view, 7> kCells = {"OK", "CNS", "GNS", "TNS", "DR", "NS", "U"};
  return std::ranges::find(kCells, word) != kCells.end();
}

bool is_gpu_name(std::string_view word) { return is_numbered(word, "GPU") || is_numbered(word, "PPU"); }

bool is_nic_name(std::string_view word) {
  const auto is_allowed = [](char c) { return is_letter(c) || is_digit(c) || c == '_' || c == '-'; };
  return !word.empty() && is_letter(word.front()) && !is_gpu_name(word) && !is_matrix_cell(word) && std::ranges::any_of(word, is_digit) &&
         std::ranges::all_of(word, is_allowed);
}

std::vector<MatrixLine> split_matrix_text(std::string_view text) { return Splitter().split(text); }

}  // namespace sluice::topology
