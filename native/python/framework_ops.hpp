// Operations of frameworks' functions, see `aiocuda._interop.operation`.
//
// Always true: a function of a framework's runs between `enter` and `leave` of that framework, whatever it does. What
// PyTorch does at each call is done here without Python, if PyTorch has DLPack's exchange in C. All else of a framework
// are methods in Python.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {

void bind_framework_ops(nanobind::module_& module);

}  // namespace aiocuda
