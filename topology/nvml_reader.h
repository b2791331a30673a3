#pragma once

// Reader of the GPUs of this machine through NVIDIA's management library, which is loaded at run time: nothing of it is needed to build.

#include <string>

#include "base/result.h"
#include "topology/site_graph.h"

namespace sluice::topology {

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

// One node with its GPUs, their model, compute capability and NVLink lanes, and the way between every two. Calls into the driver: takes up
// to seconds on a machine with many GPUs. Not from two threads at once. kUnavailable when the library is not there, lacks a function, or
// finds no driver.
Result<SiteGraph> read_nvml(const std::string& library = kNvmlLibrary);

}  // namespace sluice::topology
