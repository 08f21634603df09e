// The arrays of a structure: of a tuple, list or dict of arrays and anything else, to any depth.
#pragma once
#include "operation.hpp"

namespace aiocuda::dataflow {

// Calls f(array, its handle) for each, from left to right.
template <class F>
void each_array_in(nb::handle structure, F&& f) {
  PyObject* const object = structure.ptr();
  if (const Array* array = as_array(structure)) {
    f(*array, structure);
  } else if (PyTuple_Check(object)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) each_array_in(PyTuple_GET_ITEM(object, i), f);
  } else if (PyList_Check(object)) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i) each_array_in(PyList_GET_ITEM(object, i), f);
  } else if (PyDict_Check(object)) {
    PyObject *key = nullptr, *item = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(object, &at, &key, &item);) each_array_in(item, f);
  }
}

}  // namespace aiocuda::dataflow
