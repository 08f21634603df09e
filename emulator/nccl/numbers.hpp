// Arithmetic on NCCL's data types. Always: each operation is rounded into the type before the next one, as NCCL's
// kernels do; what NCCL leaves open, the order of the operands, is the order of ranks here.
#pragma once
#include <cstddef>
#include <cstdint>

#include "nccl_api.hpp"

namespace aiocuda::emulator::nccl {

// What stands behind an operator of the API: first each rank's values are multiplied, then all are joined, then the
// result is divided.
struct Operator {
  ncclRedOp_t join = ncclSum;  // sum, product, maximum or minimum
  bool multiplies = false;     // by `scalar`, of the data's type
  std::uint64_t scalar = 0;    // its bytes
  std::uint64_t divisor = 1;   // of integers; rounds towards zero
};

std::size_t bytes_of(ncclDataType_t type) noexcept;
const char* name_of(ncclDataType_t type) noexcept;
const char* name_of(ncclRedOp_t op) noexcept;

// The operator of the API for so many ranks. It is one of the five.
Operator built_in_operator(ncclRedOp_t op, ncclDataType_t type, int ranks) noexcept;

void multiply(void* values, std::size_t count, ncclDataType_t type, std::uint64_t scalar) noexcept;
// into = into (op) values
void join(void* into, const void* values, std::size_t count, ncclDataType_t type, ncclRedOp_t op) noexcept;
void divide(void* values, std::size_t count, ncclDataType_t type, std::uint64_t divisor) noexcept;

}  // namespace aiocuda::emulator::nccl
