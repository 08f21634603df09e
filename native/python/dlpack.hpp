// Arrays as other libraries take them, by DLPack (https://dmlc.github.io/dlpack/latest/, version 1.3).
//
// Always true: who consumes a capsule borrows the array until it calls the deleter. A capsule that nobody consumes ends
// the borrow with itself.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {

void bind_dlpack(nanobind::module_& module);

}  // namespace aiocuda
