// The engine of this process, as the bindings find it, and the driver that it uses.
//
// Always true: the bindings find the engine here and nowhere else. They hand it, or the part that is needed, to the
// functions that they call. So everything below them also runs over an engine of a C++ test. A function of a module
// gets nothing but its arguments from Python, and a process has one driver and one interpreter, so one engine of the
// process is the plainest way.
#pragma once
#include <cstdint>
#include <string>

#include "../driver/engine.hpp"

namespace aiocuda {

// Never destroyed: the driver's threads may call until the very end.
driver::Engine& process_engine();

// Takes the functions of the driver that is loaded. From the first time on, a process that is forked from this one has
// an engine that refuses every call, and the engine's threads end with the interpreter.
// `use`: when the submission thread makes the driver's calls: "never", "auto" or "always".
void load_driver(const std::string& use);

// While one lives, its thread is in a library that uses CUDA, for as long as that likes. If the interpreter ends
// meanwhile, the process ends without exit handlers, once stdio's streams are flushed: CUDA's would take the driver
// down under that thread, which then faults. A thread that stops because the interpreter has ended counts as well.
class InCuda {
 public:
  InCuda();
  InCuda(const InCuda&) = delete;
  InCuda& operator=(const InCuda&) = delete;
  ~InCuda();
};

// The process that started the driver, where this one was forked from it; else 0.
std::int64_t forked_from();

}  // namespace aiocuda
