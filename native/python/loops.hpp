// The event loop that runs in this thread, as awaits use it: its port, and the functions of its runtime.
//
// Always true: no runtime is imported here; asyncio's and trio's files say of themselves what they have. Guarded by the
// GIL.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>

namespace aiocuda {
namespace nb = nanobind;

// Python's names, made once.
struct Names {
  PyObject *create_future, *set_result, *call_soon, *call_later, *cancel, *sleep, *wait, *time, *throw_, *close,
      *native, *wake;
};
const Names& names();

inline nb::object checked(PyObject* made) {
  if (!made) throw nb::python_error();
  return nb::steal(made);
}
template <class... Arguments>
nb::object call_method(PyObject* name, nb::handle self, Arguments... arguments) {
  PyObject* all[] = {self.ptr(), arguments...};
  return checked(PyObject_VectorcallMethod(name, all, 1 + sizeof...(arguments), nullptr));
}

// The loop in which an await runs, and its port.
struct Place {
  nb::object port{};  // the native one
  nb::object loop{};  // asyncio's; else it is trio's
  nb::object face{};  // trio's port in Python

  bool is_trio() const { return face.is_valid(); }
  // On the clock of the loop's time-outs.
  double now_s() const;
};
// Raises AiocudaError where no loop runs that is known.
Place current_place();

// Has the task go on that waits for a future of asyncio's. False: it was done before, as where the task was cancelled.
bool wake_future(const nb::object& future);

// Of the task of trio's that runs: whether it is not cancelled.
bool trio_goes_on();
// A checkpoint of trio, for a task to await.
nb::object trio_checkpoint();
// Has a task of trio's that sleeps go on.
void trio_reschedule(const nb::object& task, std::int32_t result);

void bind_loops(nb::module_& module);

}  // namespace aiocuda
