// The kernels of one translation unit. A module is linked from one unit, or from several that were compiled as
// relocatable device code; what runs in the module (runtime/module.cpp) makes one list of them.
#pragma once

namespace aiocuda::emulator::abi {

struct Unit {
  Kernel* kernels;
  const void* const* addresses;  // of the kernels, and of what else an expression names
  const volatile unsigned long long* static_shared;
  unsigned count;
};

}  // namespace aiocuda::emulator::abi
