// The places of this library's device headers and of the kernels' runtime: beside the library itself.
#pragma once

#include <string>

namespace aiocuda::emulator::nvrtc {

struct Installation {
  bool complete = false;
  std::string visible_headers;         // include/visible: what a program may #include
  std::string device_headers;          // include
  std::string runtime_object;          // kernel_runtime.o
  std::string checked_runtime_object;  // kernel_checked_runtime.o, of modules compiled for checking
  std::string identity;                // changes when any of these does
  std::string explanation;             // where something is missing
};

const Installation& installation();

}  // namespace aiocuda::emulator::nvrtc
