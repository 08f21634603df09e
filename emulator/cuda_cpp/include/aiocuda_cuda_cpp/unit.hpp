// The kernels and constant variables of one translation unit. A module is linked from one unit, or from several that
// were compiled as relocatable device code; what runs in the module (runtime/module.cpp) makes one list of the kernels.
#pragma once

namespace aiocuda::emulator::abi {

struct ConstantVariable {
  const void* address;
  unsigned long long bytes;
  const char* instances_of;  // in place of these two, the name of a template of variables
};

// One in a function, known from when a thread first passes it.
struct LocalConstant {
  const void* address;
  unsigned long long bytes;
  LocalConstant* next;
  bool is_listed;
};

struct Unit {
  Kernel* kernels;
  const void* const* addresses;  // of the kernels, and of what else an expression names
  const volatile unsigned long long* static_shared;
  unsigned count;
  const ConstantVariable* constants;  // the last is empty
};

}  // namespace aiocuda::emulator::abi
