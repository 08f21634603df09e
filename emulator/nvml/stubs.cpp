// A weak definition of every function of NVML: what is implemented elsewhere in the library takes its place at link
// time, and the rest answers NVML_ERROR_NOT_SUPPORTED. A function that takes no arguments may stand for one that takes
// some, as the caller of a C function is the one who cleans up.
namespace aiocuda::emulator::nvml {
int not_supported() noexcept;
}

#define FUNCTION(symbol) \
  extern "C" [[gnu::weak, gnu::visibility("default")]] int symbol() { return aiocuda::emulator::nvml::not_supported(); }
#include "functions.inc"
#undef FUNCTION
