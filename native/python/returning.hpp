// How an iterator of ours gives back a result to whoever drives it: as a generator does, by a StopIteration.
//
// Always true: a StopIteration that anybody holds, or has changed, is never used again. Any other holds no result
// longer than the iterator lives that gave it, or the next one. Guarded by the GIL.
#pragma once
#include <Python.h>

namespace aiocuda {

// The answer of a step, as `send` and `throw` of a generator give it. `value`: taken.
PyObject* answer_of_method(PySendResult answer, PyObject* value);
// The same for `tp_iternext`, which ends without an error where the result is None.
PyObject* answer_of_next(PySendResult answer, PyObject* value);

namespace detail {
inline bool holds_result = false;
void let_go_of_result();
}  // namespace detail

// An iterator has been freed, so its result has been taken, if it had one.
inline void let_go_of_result() {
  if (detail::holds_result) detail::let_go_of_result();
}

}  // namespace aiocuda
