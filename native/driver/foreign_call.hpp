// What a function of other work is called with.
#pragma once
#include <vector>

#include "../dataflow/operation.hpp"
#include "engine.hpp"

namespace aiocuda::driver {

// The program's function gets the stream first. A framework's asks for what it needs of it (`InCall`).
inline nb::object arguments_of(Engine& engine, const dataflow::ForeignOp& op, const std::vector<nb::handle>& values,
                               StreamIndex stream, std::int32_t device) {
  const bool takes_stream = !op.state.is_valid();
  nb::object arguments = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(values.size() + takes_stream)));
  Py_ssize_t next = 0;
  if (takes_stream)
    PyTuple_SET_ITEM(arguments.ptr(), next++, engine.hooks.stream(engine.id_of(stream), device).release().ptr());
  for (const nb::handle value : values) PyTuple_SET_ITEM(arguments.ptr(), next++, value.inc_ref().ptr());
  return arguments;
}

}  // namespace aiocuda::driver
