// How an iterator of ours gives back a result to whoever drives it: as a generator does, by a StopIteration.
//
// Always true: a StopIteration that anybody holds, or has changed, is never used again. Any other is the iterator's
// that has given it, and goes with it. Guarded by the GIL.
#pragma once
#include <Python.h>

#include <utility>

namespace aiocuda {

// The answer of a step, as `send` and `throw` of a generator give it. `value`: taken.
PyObject* answer_of_method(PySendResult answer, PyObject* value);

// The StopIteration by which `tp_iternext` has given the result, if it has.
class Returned {
 public:
  Returned() = default;
  Returned(const Returned&) = delete;
  Returned& operator=(const Returned&) = delete;
  ~Returned() { clear(); }

  // The same for `tp_iternext`, which ends without an error where the result is None. `value`: taken.
  PyObject* answer(PySendResult answer, PyObject* value);
  // For the garbage collector: whoever catches an exception has it refer to frames, and a frame may have the iterator.
  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(stop_);
    return 0;
  }
  void clear() {
    if (stop_) put_back(std::exchange(stop_, nullptr));
  }

 private:
  static void put_back(PyObject* stop);

  PyObject* stop_ = nullptr;
};

}  // namespace aiocuda
