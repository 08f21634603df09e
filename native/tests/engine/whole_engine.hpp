// The whole engine over the driver for tests, and operations to execute on it, in a Python interpreter.
//
// Always true: an operation, an array and a placement are the classes that programs use. The functions of Python's that
// the engine calls are the test's. A refusal of the driver is raised as a RuntimeError, whose arguments say what was
// called, and for which operation.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../fake_driver.hpp"
#include "dataflow/launch.hpp"
#include "driver/engine.hpp"
#include "driver/execution.hpp"

namespace aiocuda::driver::tests {

using dataflow::Array;
using dataflow::BufferRef;
using dataflow::Placement;

// The classes that the tests make objects of, as Python knows them.
void bind_nouns(nb::module_& module);

// An object of Python's around a native one.
template <class T, class... Arguments>
nb::object make(Arguments&&... arguments) {
  nb::object object = nb::inst_alloc(nb::type<T>());
  new (nb::inst_ptr<T>(object)) T(std::forward<Arguments>(arguments)...);
  nb::inst_mark_ready(object);
  return object;
}
template <class T>
T& of(nb::handle object) {
  return *nb::inst_ptr<T>(object);
}
inline Op& op_of(nb::handle object) { return *dataflow::as_op(object); }

// The error that an execution raised.
struct Raised {
  std::string kind;          // "refused" or "lost"; else what Python says
  int code = 0;              // the driver's
  std::string function;      // of the driver's, that was refused
  std::uintptr_t asked = 0;  // the operation that it was for
  std::int32_t device = dataflow::unknown_ordinal;

  bool is_for(nb::handle object) const { return asked == reinterpret_cast<std::uintptr_t>(object.ptr()); }
};
std::optional<Raised> raised_by(const std::function<void()>& f);

// The data types that there are.
inline constexpr dataflow::DType byte = 1, complex = 2;

class WholeEngine {
 public:
  explicit WholeEngine(std::uint32_t streams = 4);
  WholeEngine(const WholeEngine&) = delete;
  WholeEngine& operator=(const WholeEngine&) = delete;
  ~WholeEngine();

  FakeDriver driver;
  Engine engine;
  nb::object policy;               // of so many streams on each device
  nb::object placement;            // which executions have unless they say otherwise
  std::vector<nb::object> arrays;  // that a test made before

  // --- what programs make

  // An array that is there, of bytes or of items of 16 bytes.
  nb::object array(std::uint64_t size_bytes, std::int32_t device = 0, dataflow::DType dtype = byte);
  nb::object create(std::uint64_t size_bytes, std::int32_t device = dataflow::unknown_ordinal,
                    std::uint32_t pattern_bytes = 0, dataflow::DType dtype = byte);
  nb::object create_host(std::uint64_t size_bytes);
  nb::object fill(const nb::object& destination, std::uint32_t pattern_bytes = 1);
  nb::object copy(const nb::object& destination, const nb::object& source);
  nb::object gather(const std::vector<nb::object>& items);
  nb::object map(const nb::object& input, nb::object function);
  nb::object then(const nb::object& input, nb::object function);
  // Of a kernel that is loaded on devices 0 and 1, which reads some arrays and writes others.
  nb::object launch(const std::vector<nb::object>& reads, const std::vector<nb::object>& writes);
  // The same, with a kernel of the test's.
  nb::object launch_of(nb::object kernel, dataflow::Signature& signature, const std::vector<nb::object>& arguments);
  std::shared_ptr<dataflow::Signature> signature(std::size_t reads, std::size_t writes, bool is_loaded = true);

  std::unique_ptr<Execution> execution(const nb::object& op) { return execution(op, placement); }
  std::unique_ptr<Execution> execution(const nb::object& op, const nb::object& where) {
    return std::make_unique<Execution>(engine, op, where);
  }
  // Executes, and waits until it is complete.
  std::optional<Raised> run(const nb::object& op);
  // Only submits.
  std::optional<Raised> submit(const nb::object& op);

  // --- what is left behind

  // Frees what is due, when all streams have passed what they hold.
  void settle();
  // Everything that a call that failed may have left half done: empty, where nothing is.
  std::string left_behind();
  // Everything that the driver gave, except what the engine keeps for later by design.
  std::map<Function, std::size_t> handles() const;

  CUstream handle(StreamIndex stream) { return engine.stream(stream).handle; }
  // The streams of the device that the policy has there.
  std::vector<StreamIndex> streams(std::int32_t device = 0) const;
  // Holds up all streams that there are, or lets them go on.
  void hold();
  void go_on();

 private:
  std::vector<std::shared_ptr<dataflow::Signature>> signatures_;
  const nb::object kernel_;
};

// Runs `attempt(engine, nth)` once for each call of the driver that it makes, on a new engine, which refuses that call.
// It says when there was none left to refuse.
void refuse_each(const std::function<void(WholeEngine&)>& prepare, const std::function<void(WholeEngine&)>& attempt);

}  // namespace aiocuda::driver::tests
