// The table behind cuGetProcAddress: every function of the driver API, sorted by name, then version.
#pragma once
#include <cstddef>
#include <string_view>

namespace aiocuda::emulator {

struct FunctionRow {
  std::string_view name;    // what is asked for
  int version;              // of CUDA, that brought this ABI
  std::string_view symbol;  // what it is called in the library
  void* address;
};

extern const FunctionRow* const function_rows;
extern const std::size_t function_row_count;

}  // namespace aiocuda::emulator
