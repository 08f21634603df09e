// Structured splits of multiprocessors, workqueues, and green contexts of them (CUDA 13.1).
#include <algorithm>
#include <cstring>
#include <vector>

#include "newer_api.hpp"
#include "support.hpp"

using namespace driver_test;
using aiocuda::emulator::group_backfill;
using aiocuda::emulator::WorkqueueConfiguration;

namespace {

constexpr auto workqueue_configuration =
    static_cast<CUdevResourceType>(aiocuda::emulator::workqueue_configuration_type);
constexpr auto workqueue = static_cast<CUdevResourceType>(aiocuda::emulator::workqueue_type);

CUdevResource of_device(CUdevResourceType type = CU_DEV_RESOURCE_TYPE_SM, CUdevice device = 0) {
  CUdevResource resource;
  REQUIRE_OK(cuDeviceGetDevResource(device, &resource, type));
  return resource;
}

CU_DEV_SM_RESOURCE_GROUP_PARAMS asked(unsigned count, unsigned together = 0, unsigned flags = 0) {
  CU_DEV_SM_RESOURCE_GROUP_PARAMS group{};
  group.smCount = count;
  group.coscheduledSmCount = together;
  group.flags = flags;
  return group;
}

WorkqueueConfiguration members(const CUdevResource& resource) {
  WorkqueueConfiguration found;
  std::memcpy(&found, &resource.sm, sizeof found);
  return found;
}

void set_members(CUdevResource& resource, const WorkqueueConfiguration& configuration) {
  std::memcpy(static_cast<void*>(&resource.sm), &configuration, sizeof configuration);
}

CUresult describe(std::vector<CUdevResource> resources, CUdevResourceDesc& description) {
  return cuDevResourceGenerateDesc(&description, resources.data(), static_cast<unsigned>(resources.size()));
}

}  // namespace

TEST_CASE("a structured split without a count takes all that run together, and the rest remains") {
  const Device device;
  const CUdevResource all = of_device();
  const unsigned unit = all.sm.smCoscheduledAlignment;
  auto group = asked(0);
  REQUIRE_OK(cuDevSmResourceSplit(nullptr, 1, &all, nullptr, 0, &group));
  CHECK(group.smCount == all.sm.smCount / unit * unit);
  CHECK(group.coscheduledSmCount == 0);  // as it was asked for

  auto same = asked(0);
  CUdevResource made;
  CUdevResource rest;
  REQUIRE_OK(cuDevSmResourceSplit(&made, 1, &all, &rest, 0, &same));
  CHECK(made.type == CU_DEV_RESOURCE_TYPE_SM);
  CHECK(made.sm.smCount == group.smCount);
  CHECK(made.sm.smCoscheduledAlignment == unit);
  CHECK((rest.type == CU_DEV_RESOURCE_TYPE_SM ? rest.sm.smCount : 0) == all.sm.smCount - group.smCount);
}

TEST_CASE("groups of a structured split are placed one after the other, and what remains is split again") {
  const Device device;
  const CUdevResource all = of_device();
  const unsigned unit = all.sm.smCoscheduledAlignment;
  REQUIRE(all.sm.smCount >= 2 * unit);
  std::vector groups{asked(unit), asked(0)};
  std::vector<CUdevResource> made(2);
  CUdevResource rest;
  const CUresult error = cuDevSmResourceSplit(made.data(), 2, &all, &rest, 0, groups.data());
  REQUIRE_OK(error);
  CHECK(made[0].sm.smCount == unit);
  CHECK(made[1].sm.smCount == (all.sm.smCount - unit) / unit * unit);

  auto one = asked(unit);
  REQUIRE_OK(cuDevSmResourceSplit(made.data(), 1, &all, &rest, 0, &one));
  auto again = asked(0);
  REQUIRE_OK(cuDevSmResourceSplit(made.data(), 1, &rest, nullptr, 0, &again));
  CHECK(again.smCount == (all.sm.smCount - unit) / unit * unit);
  CHECK(cuDevSmResourceSplit(made.data(), 1, made.data(), nullptr, 0, &again) ==
        CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
}

TEST_CASE("structured splits that cannot be are refused, and tell nothing") {
  const Device device;
  const CUdevResource all = of_device();
  const unsigned unit = all.sm.smCoscheduledAlignment;
  CUdevResource made;
  const auto split = [&](CU_DEV_SM_RESOURCE_GROUP_PARAMS group) {
    return cuDevSmResourceSplit(&made, 1, &all, nullptr, 0, &group);
  };
  CHECK(split(asked(all.sm.smCount / unit * unit + unit)) == CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  CHECK(split(asked(unit, 33)) == CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  constexpr unsigned locality = 2;
  CHECK(split(asked(unit, 0, locality)) == CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  CHECK_OK(split(asked(unit, 0, group_backfill)));
  // Nothing is left for the second group.
  std::vector groups{asked(0), asked(0)};
  groups[0].smCount = all.sm.smCount / unit * unit;
  std::vector<CUdevResource> two(2);
  CHECK(cuDevSmResourceSplit(two.data(), 2, &all, nullptr, 0, groups.data()) ==
        CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  groups[1].smCount = 0;
  CHECK_OK(cuDevSmResourceSplit(nullptr, 2, &all, nullptr, 0, groups.data()));
  CHECK(groups[1].smCount == 0);
  CHECK(cuDevSmResourceSplit(&made, 1, &all, nullptr, 1, groups.data()) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuDevSmResourceSplit(&made, 0, &all, nullptr, 0, groups.data()) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuDevSmResourceSplit(&made, 1, &all, nullptr, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
  const CUdevResource other = of_device(workqueue_configuration);
  CHECK(cuDevSmResourceSplit(&made, 1, &other, nullptr, 0, groups.data()) == CUDA_ERROR_INVALID_RESOURCE_TYPE);
}

TEST_CASE("a green context keeps the workqueue that it was given, and streams tell its multiprocessors") {
  const Device device;
  const CUdevResource all = of_device();
  CUdevResource queue = of_device(workqueue_configuration);
  CHECK(members(queue).device == 0);
  CHECK(members(queue).concurrency >= 1);
  CHECK(members(queue).scope == 0);
  set_members(queue, {0, 4, 1});
  const unsigned unit = all.sm.smCoscheduledAlignment;
  auto group = asked(unit);
  CUdevResource part;
  REQUIRE_OK(cuDevSmResourceSplit(&part, 1, &all, nullptr, 0, &group));

  CUdevResourceDesc description = nullptr;
  REQUIRE_OK(describe({part, queue, of_device(workqueue)}, description));
  constexpr unsigned no_flags = 0;
  CUgreenCtx context = nullptr;
  REQUIRE_OK(cuGreenCtxCreate(&context, description, 0, no_flags));
  CUdevResource found;
  REQUIRE_OK(cuGreenCtxGetDevResource(context, &found, workqueue_configuration));
  CHECK(members(found).concurrency == 4);
  CHECK(members(found).scope == 1);
  CUstream stream = nullptr;
  REQUIRE_OK(cuGreenCtxStreamCreate(&stream, context, CU_STREAM_NON_BLOCKING, 0));
  REQUIRE_OK(cuStreamGetDevResource(stream, &found, CU_DEV_RESOURCE_TYPE_SM));
  CHECK(found.sm.smCount == unit);
  CHECK(cuStreamGetDevResource(stream, &found, workqueue_configuration) == CUDA_ERROR_INVALID_RESOURCE_TYPE);
  CHECK_OK(cuStreamDestroy(stream));
  CHECK_OK(cuGreenCtxDestroy(context));
  const Stream ordinary;
  REQUIRE_OK(cuStreamGetDevResource(ordinary, &found, CU_DEV_RESOURCE_TYPE_SM));
  CHECK(found.sm.smCount == all.sm.smCount);
}

TEST_CASE("workqueues that cannot be are refused") {
  const Device device;
  CUdevResource queue = of_device(workqueue_configuration);
  CUdevResourceDesc description = nullptr;
  CHECK(describe({queue, queue}, description) == CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  CHECK(describe({queue, of_device(workqueue_configuration, 1)}, description) ==
        CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  set_members(queue, {0, 0, 0});
  CHECK(describe({queue}, description) == CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  set_members(queue, {0, 1, 2});
  CHECK(describe({queue}, description) == CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
}
