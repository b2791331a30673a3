#pragma once

// Readers of small texts: `numactl --hardware`, `rocm-smi --showtoponuma` and `--showtopo`, and the network files of htsim. Pure.

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "topology/site_graph.h"

namespace sluice::topology {

// Nothing when the text is none of these. kTopologyInvalid with the line; kTopologyTooLarge.
std::optional<Result<SiteGraph>> try_read_host_text(std::string_view text, const std::string& name);

}  // namespace sluice::topology
