#include "topology/nvml_reader.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "topology/internal/nvlink_speed.h"
#include "topology/internal/text_fields.h"
#include "topology/limits.h"

namespace sluice::topology {
namespace {

// What is used of the library's stable interface.
using NvmlDevice = void*;
struct NvmlPciInfo {
  char bus_id_legacy[16];
  unsigned int domain;
  unsigned int bus;
  unsigned int device;
  unsigned int pci_device_id;
  unsigned int pci_subsystem_id;
  char bus_id[32];
};
constexpr int kNvmlSuccess = 0;
constexpr unsigned int kNvLinksMax = 18;

struct LibraryCloser {
  void operator()(void* library) const { dlclose(library); }
};

// The functions, and the library for as long as they are used. Shuts it down when it was started.
class Nvml {
 public:
  static Result<std::unique_ptr<Nvml>> open(const std::string& path) {
    auto nvml = std::make_unique<Nvml>();
    nvml->library_.reset(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
    if (nvml->library_ == nullptr) return fail(ErrorCode::kUnavailable, "load " + path, "it is not on this machine");
    const bool has_all = nvml->find("nvmlInit_v2", nvml->init) && nvml->find("nvmlShutdown", nvml->shutdown) &&
                         nvml->find("nvmlDeviceGetCount_v2", nvml->device_count) &&
                         nvml->find("nvmlDeviceGetHandleByIndex_v2", nvml->device_by_index) &&
                         nvml->find("nvmlDeviceGetPciInfo_v3", nvml->pci_info);
    if (!has_all) return fail(ErrorCode::kUnavailable, "load " + path, "it lacks a function of version 11 or later");
    // Older or other drivers may lack these; what they tell stays unknown then.
    nvml->find("nvmlDeviceGetName", nvml->name);
    nvml->find("nvmlDeviceGetCudaComputeCapability", nvml->compute_capability);
    nvml->find("nvmlDeviceGetNvLinkState", nvml->link_state);
    nvml->find("nvmlDeviceGetNvLinkRemotePciInfo_v2", nvml->link_remote);
    nvml->find("nvmlDeviceGetTopologyCommonAncestor", nvml->common_ancestor);
    if (const int status = nvml->init(); status != kNvmlSuccess) {
      return fail(ErrorCode::kUnavailable, "start " + path, fmt::format("status {}: no driver, or no right to use it", status));
    }
    nvml->is_started_ = true;
    return nvml;
  }

  Nvml() = default;
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() {
    if (is_started_) shutdown();
  }

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*device_count)(unsigned int*) = nullptr;
  int (*device_by_index)(unsigned int, NvmlDevice*) = nullptr;
  int (*pci_info)(NvmlDevice, NvmlPciInfo*) = nullptr;
  int (*name)(NvmlDevice, char*, unsigned int) = nullptr;
  int (*compute_capability)(NvmlDevice, int*, int*) = nullptr;
  int (*link_state)(NvmlDevice, unsigned int, int*) = nullptr;
  int (*link_remote)(NvmlDevice, unsigned int, NvmlPciInfo*) = nullptr;
  int (*common_ancestor)(NvmlDevice, NvmlDevice, int*) = nullptr;

 private:
  template <typename Function>
  bool find(const char* symbol, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library_.get(), symbol));
    return function != nullptr;
  }

  std::unique_ptr<void, LibraryCloser> library_;
  bool is_started_ = false;
};

template <std::size_t kSize>
std::string text_of(const char (&field)[kSize]) {
  return {field, std::find(field, field + kSize, '\0')};
}

// "00000000:0F:00.0" as the kernel writes it.
std::string bus_id_of(const NvmlPciInfo& info) {
  const std::string text = to_lower(text_of(info.bus_id));
  return text.size() == 16 && text.starts_with("0000") ? text.substr(4) : text;
}

struct Gpu {
  NvmlDevice handle = nullptr;
  DeviceIndex index = 0;
  int capability = 0;
  std::map<std::string, std::uint32_t> lanes;  // by the address of the other end
};

class NvmlReader {
 public:
  explicit NvmlReader(const Nvml& nvml) : nvml_(nvml) {
    graph_.files.push_back({"NVML", "nvml"});
    Device node;
    node.name = "node0";
    graph_.add_device(std::move(node));
  }

  Result<SiteGraph> read() {
    unsigned int count = 0;
    if (nvml_.device_count(&count) != kNvmlSuccess) return fail(ErrorCode::kUnavailable, "ask NVML", "it does not tell the number of GPUs");
    if (count > kEndpointsMax)
      return fail(ErrorCode::kTopologyTooLarge, "ask NVML", fmt::format("{} GPUs, at most {}", count, kEndpointsMax));
    for (unsigned int number = 0; number < count; ++number) add_gpu(number);
    for (Gpu& gpu : gpus_) read_lanes(gpu);
    for (const Gpu& from : gpus_) {
      for (const Gpu& to : gpus_) {
        if (from.index != to.index) add_link(from, to);
      }
    }
    return std::move(graph_);
  }

 private:
  void add_gpu(unsigned int number) {
    Gpu gpu;
    Device device;
    device.kind = DeviceKind::kGpu;
    device.name = fmt::format("GPU{}", number);
    NvmlPciInfo info = {};
    const bool is_seen = nvml_.device_by_index(number, &gpu.handle) == kNvmlSuccess && nvml_.pci_info(gpu.handle, &info) == kNvmlSuccess;
    if (!is_seen) {
      graph_.add_problem("gpu-lost", Severity::kError, device.name,
                         "the driver counts the GPU and does not answer for it: it has fallen off the bus");
      return;
    }
    device.bus_id = bus_id_of(info);
    std::array<char, 96> name = {};
    if (nvml_.name != nullptr && nvml_.name(gpu.handle, name.data(), static_cast<unsigned int>(name.size() - 1)) == kNvmlSuccess)
      device.model = name.data();
    int major = 0;
    int minor = 0;
    if (nvml_.compute_capability != nullptr && nvml_.compute_capability(gpu.handle, &major, &minor) == kNvmlSuccess) {
      gpu.capability = major * 10 + minor;
      device.type = fmt::format("sm{}", gpu.capability);
    }
    gpu.index = graph_.add_device(std::move(device));
    gpus_.push_back(std::move(gpu));
  }

  void read_lanes(Gpu& gpu) {
    if (nvml_.link_state == nullptr || nvml_.link_remote == nullptr) return;
    std::size_t down = 0;
    for (unsigned int link = 0; link < kNvLinksMax; ++link) {
      int is_active = 0;
      if (nvml_.link_state(gpu.handle, link, &is_active) != kNvmlSuccess) break;
      NvmlPciInfo info = {};
      if (is_active == 0) {
        ++down;
      } else if (nvml_.link_remote(gpu.handle, link, &info) == kNvmlSuccess) {
        ++gpu.lanes[bus_id_of(info)];
        ++graph_.devices[gpu.index].fast_links;
      }
    }
    if (down != 0 && !gpu.lanes.empty()) {
      graph_.add_problem("nvlink-down", Severity::kWarning, graph_.devices[gpu.index].name, fmt::format("{} NVLink lanes are down", down));
    }
  }

  // Lanes that end at no GPU end at a switch, which joins all that have such lanes.
  [[nodiscard]] std::uint32_t switch_lanes(const Gpu& gpu) const {
    std::uint32_t lanes = 0;
    for (const auto& end : gpu.lanes) {
      const bool is_gpu = std::ranges::any_of(gpus_, [&](const Gpu& other) { return graph_.devices[other.index].bus_id == end.first; });
      if (!is_gpu) lanes += end.second;
    }
    return lanes;
  }

  void add_link(const Gpu& from, const Gpu& to) {
    const auto direct = from.lanes.find(graph_.devices[to.index].bus_id);
    const std::uint32_t lanes = direct != from.lanes.end() ? direct->second : std::min(switch_lanes(from), switch_lanes(to));
    if (lanes != 0) {
      const auto lane = nvlink_gb_per_second(from.capability);
      graph_.links.push_back(
          {from.index, to.index, fmt::format("NV{}", lanes), lane ? std::optional(*lane * lanes) : std::nullopt, LinkBasis::kStated});
      return;
    }
    int level = 0;
    if (nvml_.common_ancestor == nullptr || nvml_.common_ancestor(from.handle, to.handle, &level) != kNvmlSuccess) return;
    const char* label = level <= 10 ? "PIX" : level <= 20 ? "PXB" : level <= 30 ? "PHB" : level <= 40 ? "NODE" : "SYS";
    graph_.links.push_back({from.index, to.index, label, std::nullopt, LinkBasis::kStated});
  }

  const Nvml& nvml_;
  SiteGraph graph_;
  std::vector<Gpu> gpus_;
};

}  // namespace

Result<SiteGraph> read_nvml(const std::string& library) {
  SLUICE_TRY(const auto nvml, Nvml::open(library));
  return NvmlReader(*nvml).read();
}

}  // namespace sluice::topology
