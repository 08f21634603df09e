// Functions of the module that Python calls at each launch or wait. Python calls them directly: nanobind would look at
// the types of the arguments for longer than some of these functions take.
//
// Always true: Python gets what was thrown, as nanobind would say it.
#pragma once
#include <nanobind/nanobind.h>

#include <new>
#include <string>
#include <system_error>

#include "../dataflow/operation.hpp"

namespace aiocuda {
namespace nb = nanobind;

// Threads that cannot be started, files that cannot be opened: an error of the class `refused_by_system`.
inline nb::handle refused_by_system;
inline void set_refused_by_system(const std::system_error& error) {
  const std::string said =
      std::string("the operating system refuses aiocuda a thread or an eventfd (") + error.what() +
      "); see the limits on threads, memory and open files: ulimit -u, -v, -n, and those of the container";
  PyErr_SetString(refused_by_system.ptr(), said.c_str());
}

// `f()`, as Python takes it; null: it raised, or gave nothing.
template <class F>
PyObject* raising(F&& f) noexcept {
  try {
    return f().release().ptr();
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const nb::builtin_exception& error) {
    const bool is_index = error.type() == nb::exception_type::index_error;
    PyErr_SetString(is_index ? PyExc_IndexError : PyExc_TypeError, error.what());
  } catch (const std::system_error& error) {
    set_refused_by_system(error);
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

// `f(arguments)`: an array of so many.
template <nb::object (*f)(PyObject* const*), Py_ssize_t count>
PyObject* call_direct(PyObject*, PyObject* const* arguments, Py_ssize_t given) noexcept {
  if (given != count) return PyErr_Format(PyExc_TypeError, "%zd arguments are expected, not %zd", count, given);
  return raising([&] { return f(arguments); });
}

template <nb::object (*f)(PyObject* const*), Py_ssize_t count>
constexpr PyMethodDef direct(const char* name) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&call_direct<f, count>)), METH_FASTCALL, nullptr};
}

// The native part of an argument. Raises TypeError where it is none.
inline dataflow::Op& op_of(PyObject* argument) {
  if (dataflow::Op* const op = dataflow::as_op(argument)) return *op;
  PyErr_Format(PyExc_TypeError, "an operation is expected, not a %s", Py_TYPE(argument)->tp_name);
  throw nb::python_error();
}
inline dataflow::TypeTest is_placement;
inline nb::object as_placement(PyObject* argument) {
  if (is_placement(argument)) return nb::borrow(argument);
  PyErr_Format(PyExc_TypeError, "a placement is expected, not a %s", Py_TYPE(argument)->tp_name);
  throw nb::python_error();
}

}  // namespace aiocuda
