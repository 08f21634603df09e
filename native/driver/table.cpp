#include "table.hpp"

#include <dlfcn.h>

#include "memory_makers.hpp"

namespace aiocuda::driver {
namespace {

// cuGetProcAddress takes the base name and the version of the interface wanted; 12.2 is the oldest
// driver interface that has every function above, with the prototypes that cuda.h 13 declares.
constexpr int interface_version = 12020;
constexpr int newer_interface_version = 12030;  // of those that may be missing

std::string base_name(const std::string& symbol) {
  const auto mark = symbol.rfind("_v");
  const bool versioned =
      mark != std::string::npos && symbol.find_first_not_of("0123456789", mark + 2) == std::string::npos;
  return versioned ? symbol.substr(0, mark) : symbol;
}

}  // namespace

Table load_table() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(std::string("libcuda.so.1 cannot be loaded: ") + dlerror());
  using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  auto resolve = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
  if (!resolve)
    throw std::runtime_error("libcuda.so.1 has no cuGetProcAddress_v2: a driver for CUDA 12.2 or later is needed");
  Table table;
  std::string missing;
  auto look = [&](const char* symbol, int version) -> void* {
    void* address = nullptr;
    CUdriverProcAddressQueryResult found{};
    const CUresult answer = resolve(base_name(symbol).c_str(), &address, version, CU_GET_PROC_ADDRESS_DEFAULT, &found);
    return answer == CUDA_SUCCESS ? address : nullptr;
  };
  auto find = [&](const char* symbol) {
    void* const address = look(symbol, interface_version);
    if (!address) missing.append(" ").append(base_name(symbol));
    return address;
  };
#define AIOCUDA_QUOTE_(x) #x
#define AIOCUDA_QUOTE(x) AIOCUDA_QUOTE_(x)
#define F(name) table.name = reinterpret_cast<decltype(table.name)>(find(AIOCUDA_QUOTE(name)));
  AIOCUDA_DRIVER_FUNCTIONS(F)
#undef F
#define F(name) table.name = reinterpret_cast<decltype(table.name)>(look(AIOCUDA_QUOTE(name), newer_interface_version));
  AIOCUDA_NEWER_DRIVER_FUNCTIONS(F)
#undef F
  if (!missing.empty()) throw std::runtime_error("libcuda.so.1 lacks" + missing);
  using Describer = DescribeMemory (*)();
  const auto describer = reinterpret_cast<Describer>(dlsym(library, "aiocuda_emulator_memory_describer"));
  describe_memory = describer ? describer() : nullptr;
  return table;
}

}  // namespace aiocuda::driver
