// DLPack's exchange in C: `__dlpack_c_exchange_api__`, a table of functions that convert arrays without Python's
// protocols (https://dmlc.github.io/dlpack/latest/, version 1.3).
//
// Always true: the functions do not name the borrower's stream, so there is one stream that both know of, the *work
// stream*. In a function of `call` it is that operation's; else CUDA's legacy default stream. Who borrows an array
// works there, or puts his own stream behind it, and it behind his at the end. All else is as for `__dlpack__` with
// that stream: it waits by events, and the host waits for nothing.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {

void bind_exchange_api(nanobind::module_& module);

}  // namespace aiocuda
