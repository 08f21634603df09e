// How a library beside the emulated driver puts work of its own into a stream, as the emulated NCCL does. Plain data,
// as both are built and installed together.
#pragma once
#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace aiocuda::emulator::abi {

// The driver's services to such work while it runs.
struct StreamWorkServices {
  // The context is lost: the work must come to its end.
  bool (*is_lost)(void* services);
  // Calls function(argument), which touches memory of the device. False: it faulted, and the context is lost by that.
  bool (*touch)(void* services, void (*function)(void*), void* argument);
  void* services;
};

struct StreamWorkRange {
  std::uintptr_t address;
  std::size_t bytes;
  bool is_written;
};

struct StreamWork {
  // On the stream's thread: once, or once in each launch of the graph that it was captured into. It may wait.
  void (*run)(void* state, const StreamWorkServices* services);
  // Once, when nobody will run it any more. Also if the enqueuing was refused.
  void (*release)(void* state);
  void* state;
  const char* text;               // what it is, in words
  const StreamWorkRange* ranges;  // what it touches
  std::size_t range_count;
};

}  // namespace aiocuda::emulator::abi

// Behind all earlier work of the stream. In a captured stream it becomes a host node. Copies what it is given.
extern "C" CUresult aiocuda_emulator_enqueue(CUstream stream, const aiocuda::emulator::abi::StreamWork* work);
