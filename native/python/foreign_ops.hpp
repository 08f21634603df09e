// Operations of functions that put work on a stream, built without a line of Python's.
//
// Always true: what is no plain function, list, tuple, array or operation is left to Python, which takes it or says why
// it cannot.
#pragma once
#include <nanobind/nanobind.h>

#include "../dataflow/operation.hpp"

namespace aiocuda {

// A new operation, to be filled, of the class that Python code sees.
nanobind::object new_foreign_op(dataflow::ForeignOp*& op);

// Notes what `reads=` and `writes=` name, what is written first.
void take_accesses(dataflow::ForeignOp& op, nanobind::handle reads, nanobind::handle writes);

// Is it a function in Python's own code, whose call gives its result, and no coroutine?
bool is_plain_function(nanobind::handle function);
// Is it a function or a method in C?
bool is_in_c(nanobind::handle function);

void bind_foreign_ops(nanobind::module_& module);

}  // namespace aiocuda
