// A stand-in for NVIDIA's management library, loaded at run time by the test: four GPUs behind NVLink switches, of which the last has lost
// a lane, and the third answers no questions.

#include <cstdio>
#include <cstring>

namespace {

struct PciInfo {
  char bus_id_legacy[16];
  unsigned int domain;
  unsigned int bus;
  unsigned int device;
  unsigned int pci_device_id;
  unsigned int pci_subsystem_id;
  char bus_id[32];
};

constexpr unsigned int kGpus = 4;
constexpr int kFailure = 999;
char g_devices[kGpus];

unsigned int number_of(void* device) { return static_cast<unsigned int>(static_cast<char*>(device) - g_devices); }

void write_bus_id(PciInfo* info, unsigned int bus) { std::snprintf(info->bus_id, sizeof(info->bus_id), "00000000:%02X:00.0", bus); }

}  // namespace

#define SLUICE_DOUBLE extern "C" __attribute__((visibility("default")))

SLUICE_DOUBLE int nvmlInit_v2() { return 0; }
SLUICE_DOUBLE int nvmlShutdown() { return 0; }
SLUICE_DOUBLE int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = kGpus;
  return 0;
}
SLUICE_DOUBLE int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) {
  *device = &g_devices[index];
  return index == 2 ? kFailure : 0;
}
SLUICE_DOUBLE int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* info) {
  write_bus_id(info, 0x1a + number_of(device));
  return 0;
}
SLUICE_DOUBLE int nvmlDeviceGetName(void*, char* name, unsigned int size) {
  std::snprintf(name, size, "NVIDIA H100 80GB HBM3");
  return 0;
}
SLUICE_DOUBLE int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return 0;
}
SLUICE_DOUBLE int nvmlDeviceGetNvLinkState(void* device, unsigned int link, int* is_active) {
  *is_active = number_of(device) == 3 && link == 5 ? 0 : 1;
  return link < 18 ? 0 : kFailure;
}
SLUICE_DOUBLE int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned int link, PciInfo* info) {
  write_bus_id(info, 0xc0 + link / 5);
  return 0;
}
