// The table behind cuGetProcAddress. It does not include cuda.h, so that it can name every symbol
// whatever its parameters are.
#include "proc_table.hpp"

extern "C" {
#define FUNCTION(name, version, symbol) int symbol();
#define ALIAS(name, version, symbol)
#include "functions.inc"
#undef ALIAS
#undef FUNCTION
}

namespace aiocuda::emulator {

namespace {
const FunctionRow rows[] = {
#define FUNCTION(name, version, symbol) {#name, version, #symbol, reinterpret_cast<void*>(&symbol)},
#define ALIAS FUNCTION
#include "functions.inc"
#undef ALIAS
#undef FUNCTION
};
}  // namespace

const FunctionRow* const function_rows = rows;
const std::size_t function_row_count = sizeof rows / sizeof rows[0];

}  // namespace aiocuda::emulator
