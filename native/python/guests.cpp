// Guests for Python, and for allocators that take C functions from a shared library: see guests.hpp.
#include "guests.hpp"

#include <nanobind/stl/optional.h>
#include <sys/types.h>

#include <optional>
#include <stdexcept>
#include <string>

#include "../driver/captures.hpp"
#include "../driver/refused.hpp"
#include "process.hpp"

namespace aiocuda {
namespace {
namespace nb = nanobind;
using namespace nb::literals;

// In words, as nobody may make an error of Python's here.
std::string refusal_in_words(CUresult result, std::uint64_t size_bytes, std::int32_t device) {
  const std::string of_device = "device " + std::to_string(device), bytes = std::to_string(size_bytes) + " bytes";
  if (result == CUDA_ERROR_OUT_OF_MEMORY)  // the first words are those that programs look for
    return "CUDA out of memory. aiocuda's memory pool of " + of_device + " has no room for " + bytes +
           "; other libraries hold " + std::to_string(process_engine().devices.guests().account(device).used_bytes()) +
           " bytes of it";
  if (result == CUDA_ERROR_INVALID_DEVICE) return of_device + " is not open in aiocuda: name it in share_memory_pool()";
  if (result == CUDA_ERROR_DEINITIALIZED)
    return "aiocuda gives no memory any more: the program is ending, or this process is a fork";
  if (driver::is_capture_error(result))
    return "aiocuda's memory pool gives no memory to a stream that is captured into a graph: allocate before the "
           "capture, or leave the memory pool to aiocuda (no share_memory_pool())";
  return "aiocuda's memory pool of " + of_device + " has no memory for " + bytes + ": the driver answered " +
         std::to_string(result);
}

}  // namespace

// PyTorch calls these from C++, on any thread. It takes a null pointer for memory, and gives it to kernels. An
// exception is the only refusal that it passes on: `std::exception`s become a RuntimeError. So this one throws, beyond
// what C could take.
extern "C" [[gnu::visibility("default")]] void* aiocuda_guest_allocate(ssize_t size_bytes, int device,
                                                                       CUstream stream) {
  if (size_bytes <= 0) return nullptr;  // an empty tensor has no memory
  const auto wanted = static_cast<std::uint64_t>(size_bytes);
  CUdeviceptr address = 0;
  const CUresult result = process_engine().devices.guests().allocate(device, wanted, stream, address);
  if (result != CUDA_SUCCESS) throw std::runtime_error(refusal_in_words(result, wanted, device));
  return reinterpret_cast<void*>(address);
}

extern "C" [[gnu::visibility("default")]] void aiocuda_guest_free(void* memory, ssize_t, int, CUstream) {
  process_engine().devices.guests().free(reinterpret_cast<CUdeviceptr>(memory));
}

extern "C" [[gnu::visibility("default")]] void aiocuda_guest_note_use(void* memory, CUstream stream) {
  process_engine().devices.guests().note_use(reinterpret_cast<CUdeviceptr>(memory), stream);
}

void bind_guests(nb::module_& module) {
  module.def(
      "allocate_guest",
      [](std::int32_t device, std::uint64_t size_bytes, std::uintptr_t stream) {
        driver::Engine& engine = process_engine();
        engine.devices.at(device);
        CUdeviceptr address = 0;
        auto allocate = [&] {
          const nb::gil_scoped_release release;
          return engine.devices.guests().allocate(device, size_bytes, reinterpret_cast<CUstream>(stream), address);
        };
        CUresult result = allocate();
        if (result == CUDA_ERROR_OUT_OF_MEMORY && engine.depth == 0) {
          engine.collect();  // arrays that nobody holds any more
          result = allocate();
        }
        if (result != CUDA_SUCCESS)
          driver::raise_refused(engine, result, "cuMemAllocFromPoolAsync",
                                "allocating for another library on device " + std::to_string(device), size_bytes,
                                device);
        return address;
      },
      "device"_a, "size_bytes"_a, "stream"_a);
  // `stream`: a handle that its owner has put behind all who use it; None: behind those that are known.
  module.def(
      "free_guest",
      [](std::uintptr_t address, std::optional<std::uintptr_t> stream) {
        const nb::gil_scoped_release release;
        driver::Guests& guests = process_engine().devices.guests();
        if (stream)
          guests.free_behind(address, reinterpret_cast<CUstream>(*stream));
        else
          guests.free(address);
      },
      "address"_a, "stream"_a = nb::none());
  // The address of the function that is told of another stream, for who takes it as a number.
  module.def("guest_note_use", [] { return reinterpret_cast<std::uintptr_t>(&aiocuda_guest_note_use); });
  // What guests hold on a device, in bytes.
  module.def(
      "guest_bytes", [](std::int32_t device) { return process_engine().devices.guests().account(device).used_bytes(); },
      "device"_a);
}

}  // namespace aiocuda
