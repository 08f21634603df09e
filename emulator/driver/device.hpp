// The emulated devices: how many, and the numbers they are described by. The occupancy model, the
// launch checks and cuDeviceGetAttribute all take them from here, so they agree.
#pragma once
#include <cstddef>
#include <vector>

#include "api.hpp"

namespace aiocuda::emulator {

namespace limits {
inline constexpr int compute_capability_major = 9;
inline constexpr int compute_capability_minor = 0;
inline constexpr int warp_size = 32;
inline constexpr int max_threads_per_block = 1024;
inline constexpr int max_threads_per_multiprocessor = 2048;
inline constexpr int max_blocks_per_multiprocessor = 32;
inline constexpr int portable_blocks_per_cluster = 8;  // of compute capability 9.0; 16 where the function allows it
inline constexpr int registers_per_multiprocessor = 65536;
inline constexpr int max_block_dim_x = 1024;
inline constexpr int max_block_dim_y = 1024;
inline constexpr int max_block_dim_z = 64;
inline constexpr unsigned max_grid_dim_x = 0x7fffffff;
inline constexpr unsigned max_grid_dim_y = 65535;
inline constexpr unsigned max_grid_dim_z = 65535;
inline constexpr std::size_t shared_per_block = 48 * 1024;
inline constexpr std::size_t shared_per_block_optin = 227 * 1024;
inline constexpr std::size_t shared_per_multiprocessor = 228 * 1024;
inline constexpr std::size_t shared_reserved_per_block = 1024;
inline constexpr std::size_t max_parameter_bytes = 32764;
}  // namespace limits

inline constexpr char device_name[] = "Emulated CUDA device (CPU)";

int device_count() noexcept;
// Which of the machine's devices it is: the one of the same number, until the process is restored onto another.
int hardware_of(CUdevice device) noexcept;
CUdevice device_of_hardware(int hardware) noexcept;
int hardware_with_uuid(const CUuuid& uuid) noexcept;  // -1: there is none
// One for each device, all different; otherwise nothing changes, and the answer is false.
bool move_to_hardware(const std::vector<int>& hardware) noexcept;
CUuuid device_uuid(CUdevice device) noexcept;
unsigned pci_bus_of(CUdevice device) noexcept;  // in domain 0, each device alone on its bus
// Emulated multiprocessors are the threads that share a kernel's blocks.
int multiprocessor_count() noexcept;
std::size_t device_memory_bytes() noexcept;
// Whether kernels of a device may use the memory of another. Copies between devices work either way: without it a
// driver stages them.
bool can_access_peers() noexcept;

}  // namespace aiocuda::emulator
