#pragma once

// The text of `nvidia-smi topo -m` as people paste it, as lines of words. Pure.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::topology {

struct MatrixLine {
  std::size_t number = 0;  // of the text, from 1
  std::vector<std::string> words;
};

// Removes colours, quoting ("#", ">", "//") and Markdown: a Markdown table becomes the label of the row, its cells in the order of the
// header, then the affinities, whatever order its columns had; an empty cell between devices is "?". Words that a terminal glued together
// ("NODENODE") are taken apart. Lines without a word are left out. Looks at the first kTextLinesMax lines.
std::vector<MatrixLine> split_matrix_text(std::string_view text);

// "X", "NV12", "PIX", "PXB", "PXN", "PHB", "NODE", "SYS", "SOC", "ICN4"; any case.
bool is_matrix_cell(std::string_view word);
// What `nvidia-smi topo -p2p` writes in its cells: "OK", "CNS", "GNS", "TNS", ...
bool is_p2p_cell(std::string_view word);
// "GPU3"
bool is_gpu_name(std::string_view word);
// "NIC3", "mlx5_0", "mlx5_bond_1": a name with a digit that is neither a cell nor a GPU.
bool is_nic_name(std::string_view word);

}  // namespace sluice::topology
