// Attributes that the oldest cuda.h this builds with, CUDA 13.0's, does not name. Their numbers are
// part of the driver's interface: callers compiled with newer headers pass them.
#pragma once

namespace aiocuda::emulator::memory::newer {

// CUmemPool_attribute
inline constexpr int pool_allocation_type = 9;
inline constexpr int pool_export_handle_types = 10;
inline constexpr int pool_location_id = 11;
inline constexpr int pool_location_type = 12;
inline constexpr int pool_max_size = 13;
inline constexpr int pool_hardware_decompress = 14;
inline constexpr int pool_locality_domain = 15;

// CUpointer_attribute
inline constexpr int pointer_locality_domain = 22;

}  // namespace aiocuda::emulator::memory::newer
