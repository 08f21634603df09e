// A weak definition of every function of the driver API: what is implemented elsewhere in the library
// takes its place at link time, and the rest answers CUDA_ERROR_NOT_SUPPORTED. It does not include
// cuda.h: a function that takes no arguments may stand for one that takes some, as the caller of a C
// function is the one who cleans up.
namespace aiocuda::emulator {
int not_supported() noexcept;
}

#define FUNCTION(name, version, symbol) \
  extern "C" [[gnu::weak, gnu::visibility("default")]] int symbol() { return aiocuda::emulator::not_supported(); }
#define ALIAS(name, version, symbol)
#include "functions.inc"
#undef ALIAS
#undef FUNCTION
