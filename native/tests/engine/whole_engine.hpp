// The whole engine over the driver for tests, in a Python interpreter, where operations can be executed on it.
//
// Always true: the functions of Python's that the engine calls are the test's. A refusal of the driver is raised as a
// RuntimeError, whose arguments say what was called, and for which operation.
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
#include "builder.hpp"
#include "driver/engine.hpp"
#include "driver/execution.hpp"

namespace aiocuda::driver::tests {

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

class WholeEngine : public Builder {
 public:
  // `use`: which calls go by the submission thread; without it, what the environment says.
  explicit WholeEngine(std::uint32_t streams = 4, std::optional<ThreadUse> use = std::nullopt);
  WholeEngine(const WholeEngine&) = delete;
  WholeEngine& operator=(const WholeEngine&) = delete;
  ~WholeEngine() override;

  FakeDriver driver;
  Engine engine;
  nb::object policy;               // of so many streams on each device
  nb::object placement;            // which executions have unless they say otherwise
  std::vector<nb::object> arrays;  // that a test made before

  // An array that is there, of bytes or of items of 16 bytes.
  nb::object array(std::uint64_t size_bytes, std::int32_t device = 0, dataflow::DType dtype = byte);

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
  // All calls have been made that were given.
  void now_drained() { engine.now.drain(); }
  // Holds up all streams that there are, or lets them go on.
  void hold();
  void go_on();

 private:
  void load(dataflow::Signature& signature) override;
};

// Runs `attempt(engine, nth)` once for each call of the driver that it makes, on a new engine, which refuses that call.
// It says when there was none left to refuse.
void refuse_each(const std::function<void(WholeEngine&)>& prepare, const std::function<void(WholeEngine&)>& attempt);

}  // namespace aiocuda::driver::tests
