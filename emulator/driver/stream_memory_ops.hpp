// The stream memory operations as pieces of work: for batches, in streams and in graphs.
#pragma once
#include <memory>

#include "stream.hpp"

namespace aiocuda::emulator {

inline constexpr unsigned most_operations_of_batch = 256;

// Can it be done, in any stream?
CUresult check_operation(const CUstreamBatchMemOpParams& operation);
// The work of one that has been checked; null where there is nothing to do for it.
std::unique_ptr<Work> make_operation(Context& context, const CUstreamBatchMemOpParams& operation);

}  // namespace aiocuda::emulator
