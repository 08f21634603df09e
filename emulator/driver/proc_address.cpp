// cuGetProcAddress: the newest ABI of a function that is no newer than the version asked for. Which
// default stream a caller means is part of the address it gets, never a setting of the process.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>
#include <type_traits>

#include "api.hpp"
#include "newer_api.hpp"
#include "proc_table.hpp"

namespace aiocuda::emulator {

// The answer of the functions that the emulator does not have (see stubs.cpp).
int not_supported() noexcept {
  const CUresult error = check_initialised();
  return error != CUDA_SUCCESS ? error : CUDA_ERROR_NOT_SUPPORTED;
}

namespace {

// The per-thread form of a function: the same, called under PerThreadDefaultStream.
template <auto Function>
struct PerThread;
template <typename... Arguments, CUresult (*Function)(Arguments...)>
struct PerThread<Function> {
  static CUresult call(Arguments... arguments) {
    const PerThreadDefaultStream scope;
    return Function(arguments...);
  }
};

struct PerThreadRow {
  std::string_view symbol;
  void* address;
};
const PerThreadRow per_thread_rows[] = {
#define PER_THREAD(symbol) {#symbol, reinterpret_cast<void*>(&PerThread<&symbol>::call)},
#include "per_thread.inc"
#undef PER_THREAD
};

void* per_thread_address(const FunctionRow& row) {
  for (const PerThreadRow& each : per_thread_rows) {
    if (each.symbol == row.symbol) return each.address;
  }
  return row.address;
}

CUresult find_function(std::string_view name, int version, cuuint64_t flags, void*& address,
                       CUdriverProcAddressQueryResult& status) {
  const FunctionRow* const end = function_rows + function_row_count;
  const FunctionRow* row = std::lower_bound(
      function_rows, end, name, [](const FunctionRow& each, std::string_view key) { return each.name < key; });
  status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  const FunctionRow* best = nullptr;
  for (; row != end && row->name == name; ++row) {
    if (row->version <= version) best = row;
    status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
  }
  if (best == nullptr) return CUDA_SUCCESS;
  status = CU_GET_PROC_ADDRESS_SUCCESS;
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  address = per_thread ? per_thread_address(*best) : best->address;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace aiocuda::emulator

using namespace aiocuda::emulator;

CUresult cuGetProcAddress_v2(const char* symbol, void** address, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  constexpr cuuint64_t known_flags = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (symbol == nullptr || address == nullptr || (flags & ~known_flags) != 0) return CUDA_ERROR_INVALID_VALUE;
  *address = nullptr;
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  CUresult result = CUDA_ERROR_INVALID_VALUE;  // for a version newer than the driver's
  if (version <= driver_version) result = find_function(symbol, version, flags, *address, found);
  if (status != nullptr) *status = found;
  return result;
}

#undef cuGetProcAddress
extern "C" [[gnu::visibility("default")]] CUresult cuGetProcAddress(const char* symbol, void** address, int version,
                                                                    cuuint64_t flags) {
  const CUresult result = cuGetProcAddress_v2(symbol, address, version, flags, nullptr);
  return result == CUDA_SUCCESS && *address == nullptr ? CUDA_ERROR_NOT_FOUND : result;
}
