// The emulated driver's function that is told which line of the program made an array, so that its reports of kernels
// can name the line.
#pragma once
#include <cuda.h>

namespace aiocuda::driver {

using DescribeMemory = void (*)(CUdeviceptr address, const char* maker);

// Set when the driver is loaded. Null with NVIDIA's, and where the emulated one checks nothing.
inline DescribeMemory describe_memory = nullptr;

}  // namespace aiocuda::driver
