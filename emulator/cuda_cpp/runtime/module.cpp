// The module's entry point: one list of the kernels of all the units that it was linked from.
#include <dlfcn.h>

#include <cstdlib>

#include "abi/module_abi.hpp"
#include "units.hpp"

using namespace aiocuda::emulator;

// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
extern "C" {

// A shared variable is a thread_local of the host's. Its destructor would be registered here, and never runs on a GPU.
// The handle is constant, because a module with variable data counts as one with variables of the program's; and it is
// weak, because zig links that of a C library, too.
[[gnu::weak, gnu::visibility("hidden")]] extern const char __dso_handle = 0;
[[gnu::visibility("hidden")]] int __cxa_thread_atexit(void (*)(void*), void*, void*) { return 0; }

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)

extern "C" [[gnu::visibility("hidden")]] void aiocuda_set_services(const abi::Services* given);

namespace aiocuda::emulator::runtime {
namespace {

abi::Module module = {abi::abi_version, 0, nullptr, &aiocuda_set_services};

// The exported symbol at exactly this address, or null.
const char* symbol_name(const void* address) {
  Dl_info info{};
  return ::dladdr(address, &info) != 0 && info.dli_saddr == address ? info.dli_sname : nullptr;
}

// Runs when the module is unloaded.
[[gnu::destructor]] void forget_kernels() { std::free(const_cast<const abi::Kernel**>(module.kernels)); }

}  // namespace
}  // namespace aiocuda::emulator::runtime

using namespace aiocuda::emulator::runtime;

// Called once, before any other thread knows the module.
extern "C" [[gnu::visibility("default")]] const abi::Module* aiocuda_emulator_module() {
  if (module.kernels != nullptr) return &module;
  std::size_t most = 1;
  for (const auto* unit = __start_aiocuda_units; unit != __stop_aiocuda_units; ++unit) most += (*unit)->count;
  auto** const listed = static_cast<const abi::Kernel**>(std::calloc(most, sizeof(abi::Kernel*)));
  auto** const addresses = static_cast<const void**>(std::calloc(most, sizeof(void*)));
  if (listed == nullptr || addresses == nullptr) std::abort();
  std::uint32_t count = 0;
  for (const auto* unit = __start_aiocuda_units; unit != __stop_aiocuda_units; ++unit) {
    for (unsigned i = 0; i < (*unit)->count; ++i) {
      abi::Kernel& kernel = (*unit)->kernels[i];
      const void* const address = (*unit)->addresses[i];
      bool is_new = kernel.run != nullptr;
      for (std::uint32_t j = 0; j < count; ++j) is_new = is_new && addresses[j] != address;
      if (!is_new) continue;
      if (const char* name = symbol_name(address)) kernel.name = name;
      kernel.static_shared_bytes = (*unit)->static_shared[i];
      addresses[count] = address;
      listed[count++] = &kernel;
    }
  }
  std::free(addresses);
  module.kernel_count = count;
  module.kernels = listed;
  return &module;
}
