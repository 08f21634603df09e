// The resources of devices that green contexts are made of: multiprocessors, and how many lines of work a context means
// to have. An emulated multiprocessor is a thread that runs blocks. Always: resources only say what was asked for;
// kernels run on all multiprocessors, and a stream is a thread of its own.
#pragma once
#include <optional>

#include "newer_api.hpp"

namespace aiocuda::emulator {

struct DeviceResources {
  CUdevice device = 0;
  unsigned multiprocessors = 0;
  WorkqueueConfiguration workqueue{};
};

DeviceResources all_resources(CUdevice device);

// The one of this type, as the API describes it. INVALID_RESOURCE_TYPE: there is none of this type.
CUresult make_resource(const DeviceResources& resources, CUdevResourceType type, CUdevResource* resource);

// Those that cuDevResourceGenerateDesc has described; nothing where the handle is none of its.
std::optional<DeviceResources> described_resources(CUdevResourceDesc description);

}  // namespace aiocuda::emulator
