// Resources of devices: what they are, how multiprocessors are split, and descriptions of them; see
// device_resource.hpp.
#include "device_resource.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

#include "device.hpp"
#include "handle_table.hpp"

namespace aiocuda::emulator {
namespace {

// The default of CUDA_DEVICE_MAX_CONNECTIONS.
constexpr unsigned default_concurrency = 8;

// What a resource says beside its public members.
struct Internal {
  static constexpr std::uint32_t right_magic = 0x61696f63;
  std::uint32_t magic = right_magic;
  std::int32_t device = 0;
  std::uint32_t is_of_split = 0;  // it cannot be split by count before a green context is made of it
  std::uint32_t is_remainder = 0;
};
static_assert(sizeof(Internal) <= sizeof(CUdevResource::_internal_padding));

enum class Part { whole, group, remainder };

// Multiprocessors come in groups, as a GPU's do, where there are enough of them.
unsigned group_size() {
  const int count = multiprocessor_count();
  return count >= 16 ? 8 : count >= 4 ? 2 : 1;
}
unsigned least_group_size() { return std::min(group_size(), 2U); }

unsigned all_multiprocessors() { return static_cast<unsigned>(multiprocessor_count()); }

bool is_workqueue(CUdevResourceType type) {
  return static_cast<int>(type) == workqueue_configuration_type || static_cast<int>(type) == workqueue_type;
}

CUdevResource empty_resource() {
  CUdevResource made;
  std::memset(static_cast<void*>(&made), 0, sizeof made);  // of the invalid type
  return made;
}

// The unions of all versions of CUDA begin at the same place.
template <typename Public>
void write(CUdevResource& resource, const Internal& internal, const Public& members) {
  std::memcpy(resource._internal_padding, &internal, sizeof internal);
  std::memcpy(static_cast<void*>(&resource.sm), &members, sizeof members);
}

CUdevResource make_multiprocessors(CUdevice device, Part part, const MultiprocessorResource& members) {
  CUdevResource made = empty_resource();
  if (members.count == 0) return made;
  made.type = CU_DEV_RESOURCE_TYPE_SM;
  Internal internal;
  internal.device = device;
  internal.is_of_split = part == Part::whole ? 0 : 1;
  internal.is_remainder = part == Part::remainder ? 1 : 0;
  write(made, internal, members);
  return made;
}

bool read(const CUdevResource& resource, Internal& internal) {
  std::memcpy(static_cast<void*>(&internal), resource._internal_padding, sizeof internal);
  return internal.magic == Internal::right_magic;
}

CUresult read_multiprocessors(const CUdevResource& resource, Internal& internal) {
  const bool is_right = resource.type == CU_DEV_RESOURCE_TYPE_SM && read(resource, internal);
  return is_right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_TYPE;
}

// A group of a structured split.
struct Group {
  unsigned count;
  unsigned together;
};

// The group that `asked` describes, of those that are left. A count of 0 asks for as many as there are.
CUresult place_group(const CU_DEV_SM_RESOURCE_GROUP_PARAMS& asked, unsigned left, Group& group) {
  if ((asked.flags & ~group_backfill) != 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;  // of localities
  const bool fills_up = (asked.flags & group_backfill) != 0;
  const unsigned least = least_group_size();
  constexpr unsigned most_together = 32;
  const unsigned together = asked.coscheduledSmCount == 0 ? group_size() : asked.coscheduledSmCount;
  const unsigned preferred = asked.preferredCoscheduledSmCount;
  if (together > most_together || together % least != 0 || preferred % together != 0 || asked.smCount % least != 0 ||
      (!fills_up && asked.smCount % together != 0) || asked.smCount > left)
    return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  const unsigned unit = fills_up ? least : together;
  group = {asked.smCount != 0 ? asked.smCount : left / unit * unit, together};
  if (group.count < together) {
    if (asked.smCount != 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    group.count = 0;
  }
  return CUDA_SUCCESS;
}

using DescriptionTable = HandleTable<DeviceResources, CUdevResourceDesc>;

// There is no function that ends a description.
DescriptionTable& descriptions() {
  static auto& table = *new DescriptionTable;
  return table;
}

// Adds the members of a resource, which the program may have written, to those of a description.
CUresult add_workqueue(const CUdevResource& resource, DeviceResources& described) {
  if (static_cast<int>(resource.type) != workqueue_configuration_type) return CUDA_SUCCESS;
  WorkqueueConfiguration members;
  std::memcpy(&members, &resource.sm, sizeof members);
  if (members.scope < least_workqueue_scope || members.scope > greatest_workqueue_scope || members.concurrency == 0)
    return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  described.workqueue = members;
  return CUDA_SUCCESS;
}

}  // namespace

DeviceResources all_resources(CUdevice device) {
  return {device, all_multiprocessors(), {device, default_concurrency, least_workqueue_scope}};
}

CUresult make_resource(const DeviceResources& resources, CUdevResourceType type, CUdevResource* resource) {
  if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type == CU_DEV_RESOURCE_TYPE_SM) {
    *resource = make_multiprocessors(resources.device, Part::whole,
                                     {resources.multiprocessors, group_size(), group_size(), 0, 0});
    return CUDA_SUCCESS;
  }
  if (!is_workqueue(type)) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  *resource = empty_resource();
  resource->type = type;
  Internal internal;
  internal.device = resources.device;
  // One that is there already has nothing that a program may read.
  const bool is_configuration = static_cast<int>(type) == workqueue_configuration_type;
  write(*resource, internal, is_configuration ? resources.workqueue : WorkqueueConfiguration{});
  return CUDA_SUCCESS;
}

std::optional<DeviceResources> described_resources(CUdevResourceDesc description) {
  const auto found = descriptions().find(description);
  return found ? std::optional(*found) : std::nullopt;
}

}  // namespace aiocuda::emulator

using namespace aiocuda::emulator;

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* resource, CUdevResourceType type) {
  if (const CUresult error = check_device(device)) return error;
  return make_resource(all_resources(device), type, resource);
}

CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned* groups, const CUdevResource* input,
                                     CUdevResource* remaining, unsigned flags, unsigned least_count) {
  if (const CUresult error = check_initialised()) return error;
  if (groups == nullptr || input == nullptr || (result != nullptr && *groups == 0)) return CUDA_ERROR_INVALID_VALUE;
  Internal internal;
  if (const CUresult error = read_multiprocessors(*input, internal)) return error;
  const unsigned count = input->sm.smCount;
  if (internal.is_of_split != 0 || least_count > count) {
    if (result == nullptr) *groups = 0;
    return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  }
  const bool is_fine = (flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING) != 0;
  const unsigned unit = is_fine ? least_group_size() : group_size();
  // A last group may be all that there is, though it is no multiple.
  const unsigned size = std::min((std::max(least_count, 1U) + unit - 1) / unit * unit, count);
  const unsigned most = count / size;
  const unsigned made = result == nullptr ? most : std::min(*groups, most);
  for (unsigned each = 0; result != nullptr && each < made; ++each)
    result[each] = make_multiprocessors(internal.device, Part::group, {size, 0, 0, 0, 0});
  *groups = made;
  if (remaining != nullptr)
    *remaining = make_multiprocessors(internal.device, Part::remainder, {count - made * size, 0, 0, 0, 0});
  return CUDA_SUCCESS;
}

// All groups or none; the parameters are told what was found only if all are placed.
CUresult cuDevSmResourceSplit(CUdevResource* result, unsigned count, const CUdevResource* input,
                              CUdevResource* remainder, unsigned flags, CU_DEV_SM_RESOURCE_GROUP_PARAMS* parameters) {
  if (const CUresult error = check_initialised()) return error;
  if (input == nullptr || parameters == nullptr || count == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Internal internal;
  if (const CUresult error = read_multiprocessors(*input, internal)) return error;
  // What remains of a split may be split again, and a group may not.
  if (internal.is_of_split != 0 && internal.is_remainder == 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  unsigned left = input->sm.smCount;
  std::vector<Group> placed(count);
  for (unsigned each = 0; each < count; ++each) {
    if (const CUresult error = place_group(parameters[each], left, placed[each])) return error;
    if (result != nullptr && placed[each].count == 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    left -= placed[each].count;
  }
  for (unsigned each = 0; each < count; ++each) {
    const auto& [size, together] = placed[each];
    parameters[each].smCount = size;
    if (result != nullptr)
      result[each] = make_multiprocessors(internal.device, Part::group,
                                          {size, least_group_size(), together, parameters[each].flags, 0});
  }
  if (remainder != nullptr) *remainder = make_multiprocessors(internal.device, Part::remainder, {left, 0, 0, 0, 0});
  return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* description, CUdevResource* resources, unsigned count) {
  if (const CUresult error = check_initialised()) return error;
  if (description == nullptr || resources == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_shared<DeviceResources>();
  std::set<int> workqueue_types;
  for (unsigned each = 0; each < count; ++each) {
    const CUdevResource& resource = resources[each];
    const bool is_of_multiprocessors = resource.type == CU_DEV_RESOURCE_TYPE_SM;
    Internal internal;
    if ((!is_of_multiprocessors && !is_workqueue(resource.type)) || !read(resource, internal))
      return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    if (each == 0) *made = {internal.device, 0, all_resources(internal.device).workqueue};
    if (internal.device != made->device) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (is_of_multiprocessors) {
      made->multiprocessors += resource.sm.smCount;
      continue;
    }
    if (!workqueue_types.insert(resource.type).second) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (const CUresult error = add_workqueue(resource, *made)) return error;
  }
  if (made->multiprocessors == 0 || made->multiprocessors > all_multiprocessors())
    made->multiprocessors = all_multiprocessors();
  *description = descriptions().add(std::move(made));
  return CUDA_SUCCESS;
}
