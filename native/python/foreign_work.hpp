// Work of other libraries as operations.
//
// Always true: such an operation has been submitted. Its point in their stream was recorded then, and is never recorded
// anew.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {

void bind_foreign_work(nanobind::module_& module);

}  // namespace aiocuda
