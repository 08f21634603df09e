// Managed memory beyond its allocation: advice, prefetches, discards and what can be asked of ranges.
// One memory serves the host and all devices, so these are checked, remembered where CUDA lets a
// program ask for them, and move nothing.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "capture/capture.hpp"
#include "context.hpp"
#include "device.hpp"
#include "memory/allocation.hpp"
#include "newer_api.hpp"
#include "stream.hpp"

using namespace aiocuda::emulator;
using memory::Allocation;
using memory::Place;
using memory::RangeState;

namespace {

struct Range {
  std::shared_ptr<Allocation> allocation;
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

CUresult resolve_range(CUdeviceptr address, std::size_t bytes, Range& range) {
  range.allocation = memory::find(address);
  if (bytes == 0 || !range.allocation || !range.allocation->is_managed() ||
      !range.allocation->reaches(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  range.offset = address - range.allocation->address;
  range.bytes = bytes;
  return CUDA_SUCCESS;
}

void change(const Range& range, const std::function<void(RangeState&)>& how) {
  range.allocation->managed_ranges.change(range.offset, range.bytes, how);
}

CUresult resolve_place(const CUmemLocation& location, Place& place) {
  place = {location.type, location.id};
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return check_device(location.id);
    case CU_MEM_LOCATION_TYPE_HOST:
      place.id = CU_DEVICE_CPU;
      return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA: {
      const std::string node = "/sys/devices/system/node/node" + std::to_string(location.id);
      const bool exists = location.id == 0 || ::access(node.c_str(), F_OK) == 0;
      return exists ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT: {
      unsigned node = 0;
      if (::getcpu(nullptr, &node) != 0) node = 0;
      place = {CU_MEM_LOCATION_TYPE_HOST_NUMA, static_cast<int>(node)};
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// The one that most are; one that says nothing of where where there are none.
Place most_common(const std::vector<Place>& places) {
  const auto votes = [&](const Place& place) { return std::count(places.begin(), places.end(), place); };
  const auto most = std::max_element(places.begin(), places.end(),
                                     [&](const Place& one, const Place& other) { return votes(one) < votes(other); });
  return most == places.end() ? Place{} : *most;
}

CUmemLocation location_of(const Place& place) {
  CUmemLocation location{};
  const bool is_host = place.type == CU_MEM_LOCATION_TYPE_INVALID || place.type == CU_MEM_LOCATION_TYPE_HOST;
  location.type = is_host ? CU_MEM_LOCATION_TYPE_HOST : place.type;
  location.id = is_host ? 0 : place.id;
  return location;
}

CUresult advise_location(const Range& range, CUmem_advise advice, const CUmemLocation& location) {
  Place place;
  if (const CUresult error = resolve_place(location, place)) return error;
  if (advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION) {
    change(range, [&](RangeState& state) { state.preferred = place; });
    return CUDA_SUCCESS;
  }
  if (place.type == CU_MEM_LOCATION_TYPE_HOST_NUMA) return CUDA_ERROR_INVALID_VALUE;
  change(range, [&](RangeState& state) {
    if (advice == CU_MEM_ADVISE_SET_ACCESSED_BY) {
      state.accessed_by.insert(place.id);
    } else {
      state.accessed_by.erase(place.id);
    }
  });
  return CUDA_SUCCESS;
}

// The one number by which CUDA's older questions know a place.
int device_number(const Place& place) {
  switch (place.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return place.id;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return CU_DEVICE_CPU;
    default:
      return CU_DEVICE_INVALID;
  }
}

CUresult answer(const RangeState& state, CUmem_range_attribute attribute, void* data, std::size_t data_bytes) {
  const auto answer_int = [&](int value) {
    if (data_bytes != sizeof(int)) return CUDA_ERROR_INVALID_VALUE;
    *static_cast<int*>(data) = value;
    return CUDA_SUCCESS;
  };
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      return answer_int(state.read_mostly ? 1 : 0);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      return answer_int(device_number(state.preferred));
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      return answer_int(device_number(state.last_prefetch));
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      return answer_int(state.preferred.type);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      return answer_int(state.preferred.id);
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      return answer_int(state.last_prefetch.type);
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      return answer_int(state.last_prefetch.id);
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: {
      if (data_bytes == 0 || data_bytes % sizeof(int) != 0) return CUDA_ERROR_INVALID_VALUE;
      const std::span<int> numbers(static_cast<int*>(data), data_bytes / sizeof(int));
      std::fill(numbers.begin(), numbers.end(), CU_DEVICE_INVALID);
      // The devices first, then the host, as CUDA lists them.
      std::vector<int> known(state.accessed_by.begin(), state.accessed_by.end());
      std::stable_partition(known.begin(), known.end(), [](int number) { return number != CU_DEVICE_CPU; });
      std::copy_n(known.begin(), std::min(numbers.size(), known.size()), numbers.begin());
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// A batch of ranges, and which of the places each one goes to. All is checked before any is changed.
struct Batch {
  CUdeviceptr* addresses;
  std::size_t* sizes;
  std::size_t count;
};

CUresult resolve_batch(const Batch& batch, unsigned long long flags, CUstream handle, std::vector<Range>& ranges) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  if (stream->kind() == Stream::Kind::legacy_default || flags != 0 || batch.count == 0 || batch.addresses == nullptr ||
      batch.sizes == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ranges.resize(batch.count);
  for (std::size_t i = 0; i < batch.count; ++i) {
    if (const CUresult error = resolve_range(batch.addresses[i], batch.sizes[i], ranges[i])) {
      return error;
    }
  }
  return capture::check_not_captured(*stream);
}

CUresult prefetch_batch(const Batch& batch, CUmemLocation* locations, std::size_t* starts, std::size_t location_count,
                        unsigned long long flags, CUstream handle) {
  std::vector<Range> ranges;
  if (const CUresult error = resolve_batch(batch, flags, handle, ranges)) return error;
  if (locations == nullptr || starts == nullptr || location_count == 0 || location_count > batch.count ||
      starts[0] != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<Place> places(batch.count);
  for (std::size_t which = 0; which < location_count; ++which) {
    const std::size_t last = which + 1 < location_count ? starts[which + 1] : batch.count;
    if (last > batch.count || starts[which] >= last) return CUDA_ERROR_INVALID_VALUE;
    Place place;
    if (const CUresult error = resolve_place(locations[which], place)) return error;
    std::fill(places.begin() + static_cast<std::ptrdiff_t>(starts[which]),
              places.begin() + static_cast<std::ptrdiff_t>(last), place);
  }
  for (std::size_t i = 0; i < batch.count; ++i) {
    change(ranges[i], [&](RangeState& state) { state.last_prefetch = places[i]; });
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemAdvise(CUdeviceptr address, std::size_t bytes, CUmem_advise advice, CUmemLocation location) {
  if (const CUresult error = check_initialised()) return error;
  if (const CUresult error = capture::check_unsafe_call()) return error;
  Range range;
  if (const CUresult error = resolve_range(address, bytes, range)) return error;
  switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
      change(range, [&](RangeState& state) { state.read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY; });
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
      change(range, [](RangeState& state) { state.preferred = Place{}; });
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
      return advise_location(range, advice, location);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, std::size_t bytes, CUmemLocation location, unsigned flags,
                            CUstream handle) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  Range range;
  Place place;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = resolve_range(address, bytes, range)) return error;
  if (const CUresult error = resolve_place(location, place)) return error;
  if (const CUresult error = capture::check_not_captured(*stream)) return error;
  change(range, [&](RangeState& state) { state.last_prefetch = place; });
  return CUDA_SUCCESS;
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr* addresses, std::size_t* sizes, std::size_t count,
                                 CUmemLocation* locations, std::size_t* starts, std::size_t location_count,
                                 unsigned long long flags, CUstream stream) {
  return prefetch_batch({addresses, sizes, count}, locations, starts, location_count, flags, stream);
}

// Discarded memory may hold anything, and here it holds what it held.
CUresult cuMemDiscardBatchAsync(CUdeviceptr* addresses, std::size_t* sizes, std::size_t count, unsigned long long flags,
                                CUstream stream) {
  std::vector<Range> ranges;
  return resolve_batch({addresses, sizes, count}, flags, stream, ranges);
}

CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* addresses, std::size_t* sizes, std::size_t count,
                                           CUmemLocation* locations, std::size_t* starts, std::size_t location_count,
                                           unsigned long long flags, CUstream stream) {
  return prefetch_batch({addresses, sizes, count}, locations, starts, location_count, flags, stream);
}

// Managed memory is where it was last prefetched to, and else on the host, as all other memory that may be asked about.
CUresult cuMemGetLocationInfo(CUdeviceptr address, std::size_t bytes, std::size_t summary_bytes,
                              std::size_t sampling_bytes, CUmemLocation* locations) {
  if (const CUresult error = check_initialised()) return error;
  if (address == 0 || locations == nullptr || summary_bytes == 0 || summary_bytes > bytes ||
      sampling_bytes > summary_bytes)
    return CUDA_ERROR_INVALID_VALUE;
  Range range;
  const bool is_pageable = !memory::find(address);
  if (!is_pageable) {
    if (const CUresult error = resolve_range(address, bytes, range)) return error;
  }
  constexpr std::size_t usual_sampling_bytes = std::size_t{64} << 10;
  const std::size_t step = sampling_bytes != 0 ? sampling_bytes : std::min(usual_sampling_bytes, summary_bytes);
  for (std::size_t start = 0; start < bytes; start += summary_bytes) {
    std::vector<Place> sampled;
    for (std::size_t at = start; !is_pageable && at < std::min(start + summary_bytes, bytes); at += step)
      sampled.push_back(range.allocation->managed_ranges.common(range.offset + at, 1).last_prefetch);
    *locations++ = location_of(most_common(sampled));
  }
  return CUDA_SUCCESS;
}

CUresult cuMemRangeGetAttribute(void* data, std::size_t data_bytes, CUmem_range_attribute attribute,
                                CUdeviceptr address, std::size_t bytes) {
  if (const CUresult error = check_initialised()) return error;
  Range range;
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = resolve_range(address, bytes, range)) return error;
  return answer(range.allocation->managed_ranges.common(range.offset, range.bytes), attribute, data, data_bytes);
}

CUresult cuMemRangeGetAttributes(void** data, std::size_t* data_bytes, CUmem_range_attribute* attributes,
                                 std::size_t attribute_count, CUdeviceptr address, std::size_t bytes) {
  if (const CUresult error = check_initialised()) return error;
  if (data == nullptr || data_bytes == nullptr || attributes == nullptr || attribute_count == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t i = 0; i < attribute_count; ++i) {
    const CUresult error = cuMemRangeGetAttribute(data[i], data_bytes[i], attributes[i], address, bytes);
    if (error != CUDA_SUCCESS) return error;
  }
  return CUDA_SUCCESS;
}

// Which streams may use managed memory matters only to devices that must move it: every attachment is
// as good as a global one here.
CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, std::size_t bytes, unsigned flags) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  const bool is_default = stream->kind() != Stream::Kind::ordinary;
  const bool flags_are_valid =
      flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST || (flags == CU_MEM_ATTACH_SINGLE && !is_default);
  const auto allocation = memory::find(address);
  if (!flags_are_valid || !allocation || !allocation->is_managed() || allocation->address != address ||
      (bytes != 0 && bytes != allocation->bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return capture::check_not_captured(*stream);
}
