// Lazy operations as native objects.
//
// Always true: an operation runs at most once; when it has run, or failed, it holds its result or its
// error and none of its arguments, so a chain never grows behind its consumer. Guarded by the GIL.
#pragma once
#include <nanobind/nanobind.h>

#include <memory>
#include <utility>
#include <vector>

#include "../few.hpp"
#include "../interpreter.hpp"
#include "array.hpp"
#include "at_end.hpp"
#include "doubt.hpp"
#include "fills.hpp"
#include "origin.hpp"
#include "placement.hpp"
#include "raise.hpp"
#include "several.hpp"
#include "type_test.hpp"

namespace aiocuda::dataflow {
namespace nb = nanobind;

enum class Kind : std::uint8_t { launch, create, fill, copy, call, gather, pick, foreign, replay };
enum class State : std::uint8_t { pending, submitted, failed };

// The facts of a result that are known before the operation runs.
enum class Yields : std::uint8_t { unknown, device_array, host_array, host_value };
struct Spec {
  Yields yields = Yields::unknown;
  DType dtype = any_dtype;
  std::int32_t device = unknown_ordinal;
  bool is_managed = false;
};

struct Launches;
struct Op;
// The launches with `threads=` that an operation waits for, as far as they were submitted; see launched_as.hpp.
std::shared_ptr<const Launches> launches_waited_for(Op& op);

// At the end of a stream while nothing has come behind it there, if somebody may wait for it.
struct Op : AtEnd {
  explicit Op(Kind k) : kind(k) { interpreter::guard_thread(); }
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;
  virtual ~Op() = default;

  const Kind kind;
  State state = State::pending;
  bool has_tensors = false;  // it, or what it needs, was given an array of another library's as it is
  bool is_asked = false;     // for its result: it was to be executed, recorded or explained, or was used by another
  std::uint32_t held = 0;    // how many references walks have to it
  std::uint64_t walker = 0;  // the number of the walk on whose path it lies; 0: of none
  const std::uint32_t built_after = functions();  // how many functions of loops had been called when it was built
  std::int32_t tied_device = unknown_ordinal;  // of the arrays that it was given, which cannot be worked on elsewhere
  Spec spec;
  Origin origin;
  nb::object outcome;                        // the result, or the error once failed
  nb::object traceback;                      // the error's, as it was then: raising it again would make it grow
  Few<Tick> ready;                           // the result is there when these have passed
  std::shared_ptr<TickSet> all_ready;        // where `ready` has only the last of several, and one may be lost: each
  std::shared_ptr<void> outstanding;         // what the driver floor keeps while the result is not there
  nb::object put;                            // a Placement: what `on` said of device, stream and policy
  std::shared_ptr<const Launches> launches;  // that it waited for; of a launch, itself, once somebody has asked

  bool is_done() const { return state == State::submitted; }

  // Functions of loops on the device that were called to be recorded.
  static std::uint32_t& functions() {
    static std::uint32_t count = 0;
    return count;
  }

  const Placement* where_put() const { return put.is_valid() ? nb::inst_ptr<Placement>(put) : nullptr; }
  std::int32_t device_put() const { return put.is_valid() ? where_put()->device : unknown_ordinal; }

  // The device it works on, where that is known when it is built, and nothing else would do.
  std::int32_t known_device() const {
    const bool is_free = kind == Kind::launch && spec.is_managed;
    return tied_device != unknown_ordinal || is_free ? tied_device : spec.device;
  }

  void note_tensors(nb::handle argument);

  // Drops the arguments; without recursion, however long the chain behind them.
  virtual void release_arguments() = 0;
  virtual int visit_arguments(visitproc visit, void* arg) = 0;

  void add_ready(Tick tick) {
    if (tick.count == 0) return;
    for (Tick& each : ready) {
      if (each.stream != tick.stream) continue;
      each.count = std::max(each.count, tick.count);
      return;
    }
    ready.push_back(tick);
  }

  void finish(nb::object result) {
    outcome = std::move(result);
    state = State::submitted;
    let_arguments_go();
  }

  // The error that the operation ends with after an exception. An interruption (KeyboardInterrupt, SystemExit, a task's
  // cancellation) is for whoever ran the function that it came out of; all others are told of it by an error of ours.
  nb::object failure_of(nb::handle error) {
    if (!is_interruption(error)) return nb::borrow(error);
    try {
      const nb::object title = nb::find(*this).attr("_title");
      nb::object failure =
          error_types.interrupted(title, origin.text(), nb::handle(Py_TYPE(error.ptr())).attr("__name__"));
      PyException_SetCause(failure.ptr(), nb::borrow(error).release().ptr());
      return failure;
    } catch (const nb::python_error&) {  // interrupted once more, just now
      return nb::borrow(error);
    }
  }

  void fail(nb::handle error) {
    if (state == State::failed) return;
    outcome = failure_of(error);
    traceback = nb::steal(PyException_GetTraceback(outcome.ptr()));
    state = State::failed;
    let_arguments_go();
  }

 private:
  void let_arguments_go() {
    if (kind != Kind::launch) launches = launches_waited_for(*this);
    release_arguments();
  }
};

// The placement in force in an operation's functions: its execution's, except for what `on` said.
inline nb::object placement_of(const Op& op, const Placement& of_execution) {
  return op.put.is_valid() ? nb::cast(of_execution.with_place_of(*op.where_put())) : nb::find(of_execution);
}

inline TypeTest is_op;
inline TypeTest is_array;

inline Op* as_op(nb::handle object) {
  return object.ptr() && is_op(object.ptr()) ? is_op.part_of<Op>(object.ptr()) : nullptr;
}
inline Array* as_array(nb::handle object) {
  return object.ptr() && is_array(object.ptr()) ? is_array.part_of<Array>(object.ptr()) : nullptr;
}

// An array of another library's, as a `DeviceArray`; none if it is no such thing. Or, in words, why it cannot be one.
inline nb::object (*take_tensor)(nb::handle value, std::string& problem) = nullptr;  // set once
template <class Where>
nb::object tensor_of(nb::handle value, Where&& where) {
  std::string problem;
  nb::object tensor = take_tensor ? take_tensor(value, problem) : nb::object();
  if (!problem.empty()) raise(error_types.argument_type, where() + ": " + problem);
  return tensor;
}

inline void Op::note_tensors(nb::handle argument) {
  if (const Array* array = as_array(argument))
    has_tensors = has_tensors || array->tensor();
  else if (const Op* op = as_op(argument))
    has_tensors = has_tensors || op->has_tensors;
}

// Drops a reference; where that would end an operation, the operations behind it end one after
// another and not one inside another. `is_used`: whoever lets go has used it, or was to.
inline void let_go(nb::object object, bool is_used = true) {
  if (!object.is_valid() || !is_op(object.ptr())) return;
  if (is_used) is_op.part_of<Op>(object.ptr())->is_asked = true;
  static std::vector<nb::object>& later = *new std::vector<nb::object>;
  static bool draining = false;
  later.push_back(std::move(object));
  if (draining) return;
  draining = true;
  while (!later.empty()) {
    nb::object next = std::move(later.back());
    later.pop_back();
  }
  draining = false;
}

// Allocates an array, with an optional fill: a pattern.
struct CreateOp final : Op {
  CreateOp() : Op(Kind::create) {}
  ~CreateOp() override { release(); }
  std::vector<std::int64_t> shape;
  nb::object like;         // an array, or an operation that yields one, whose shape and dtype it takes
  bool is_beside = false;  // and in whose memory it is: of the same device, or of the host
  Pattern pattern{};
  std::uint64_t size_bytes = 0;
  MemoryKind memory = MemoryKind::ordinary;
  nb::object fill;  // the pattern's value, for the picture

  void release_arguments() override { release(); }
  int visit_arguments(visitproc visit, void* arg) override {
    Py_VISIT(like.ptr());
    Py_VISIT(fill.ptr());
    return 0;
  }

 private:
  void release() {
    let_go(std::move(like));
    fill.reset();
  }
};

// Sets all items of an array that is there.
struct FillOp final : Op {
  FillOp() : Op(Kind::fill) {}
  ~FillOp() override { release(); }
  nb::object destination;  // an array, or an operation that yields one
  Pattern pattern{};
  nb::object fill;  // the pattern's value, for the picture

  void release_arguments() override { release(); }
  int visit_arguments(visitproc visit, void* arg) override {
    Py_VISIT(destination.ptr());
    Py_VISIT(fill.ptr());
    return 0;
  }

 private:
  void release() {
    let_go(std::move(destination));
    fill.reset();
  }
};

struct CopyOp final : Op {
  CopyOp() : Op(Kind::copy) {}
  ~CopyOp() override { release(); }
  nb::object destination, source;  // arrays, or operations that yield them; one of them may be Pageable
  bool moves = false;              // a source that is where its destination would be made is the result itself

  void release_arguments() override { release(); }
  int visit_arguments(visitproc visit, void* arg) override {
    Py_VISIT(destination.ptr());
    Py_VISIT(source.ptr());
    return 0;
  }

 private:
  void release() {
    let_go(std::move(destination));
    let_go(std::move(source));
  }
};

enum class CallMode : std::uint8_t {
  then,     // at submission, with the handle; the result may be an operation
  inspect,  // likewise, and what it returns is dropped
  map       // on the host, once the value is there
};

// If a function of the library's own brings the result into its form, or looks at it, the operation that the function
// gets does the work.
Op& at_work_in(Op& op);

struct CallOp final : Op {
  CallOp() : Op(Kind::call) {}
  ~CallOp() override { release(); }
  CallMode mode = CallMode::then;
  std::string title;   // what it is called in messages, where it is more than a callback
  bool moves = false;  // what it yields may be on another device than its input
  nb::object function, input;
  nb::object inner;          // what `then` returned, where that is an operation
  unsigned long runner = 0;  // the thread that runs a `map`'s function now; 0: none does

  // From here on an operation that the function returned stands for this one: it goes where this one was put, unless it
  // was put somewhere itself, or works on another device.
  void go_on_with(nb::object returned) {
    Op& next = at_work_in(*as_op(returned));
    if (next.state == State::pending && !next.put.is_valid() && put.is_valid()) {
      const Placement& named = *where_put();
      const std::int32_t known = next.known_device();
      const bool is_elsewhere = named.device != unknown_ordinal && known != unknown_ordinal && known != named.device;
      if (!is_elsewhere || named.stream != no_stream)
        next.put = put;
      else if (named.policy)
        next.put = nb::cast(Placement{.policy_object = named.policy_object, .policy = named.policy});
    }
    launches = launches_waited_for(*this);
    inner = std::move(returned);
    let_go(std::move(input));
  }

  void release_arguments() override { release(); }
  int visit_arguments(visitproc visit, void* arg) override {
    Py_VISIT(function.ptr());
    Py_VISIT(input.ptr());
    Py_VISIT(inner.ptr());
    return 0;
  }

 private:
  void release() {
    function.reset();
    let_go(std::move(input));
    let_go(std::move(inner));
  }
};

inline Op& at_work_in(Op& op) {
  Op* found = &op;
  while (found->kind == Kind::call) {
    const auto& call = static_cast<const CallOp&>(*found);
    Op* const input = call.mode != CallMode::then && !call.title.empty() ? as_op(call.input) : nullptr;
    if (!input) break;
    found = input;
  }
  return *found;
}

// Several values as one: the tuple of the results, or what `rebuild` makes of it.
struct GatherOp final : Op {
  GatherOp() : Op(Kind::gather) {}
  ~GatherOp() override { release(); }
  std::vector<nb::object> items;
  nb::object rebuild;

  void release_arguments() override { release(); }
  int visit_arguments(visitproc visit, void* arg) override {
    for (const nb::object& item : items) Py_VISIT(item.ptr());
    Py_VISIT(rebuild.ptr());
    return 0;
  }

 private:
  void release() {
    for (nb::object& item : items) let_go(std::move(item));
    items.clear();
    rebuild.reset();
  }
};

struct PickOp final : Op {
  PickOp() : Op(Kind::pick) {}
  ~PickOp() override { release(); }
  nb::object source;
  std::int64_t index = 0;  // from the end where negative

  void release_arguments() override { release(); }
  int visit_arguments(visitproc visit, void* arg) override {
    Py_VISIT(source.ptr());
    return 0;
  }

 private:
  // Of several items one may be used. If none is used, the whole is not used.
  void release() { let_go(std::move(source), is_asked || state != State::pending); }
};

// Is it a value that was there when it was built, as value() makes one?
inline bool is_value(const Op& op) {
  if (op.kind == Kind::pick) {
    const Op* const whole = as_op(static_cast<const PickOp&>(op).source);
    return whole && whole->kind == Kind::gather && is_value(*whole);
  }
  if (op.kind != Kind::gather) return false;
  const auto& gather = static_cast<const GatherOp&>(op);
  return gather.items.size() == 1 && !gather.rebuild.is_valid() && !as_op(gather.items.front());
}

// Work that somebody else puts on a stream: a function of the stream and the arguments, and what it reads and writes.
// With `state`, an array that stands for what the function keeps, it is a function of a framework's: it reads the
// arrays among its arguments, to any depth, that are not said to be written.
struct ForeignOp final : Op {
  struct Access {
    nb::object array;  // or an operation that yields one
    bool writes;
  };
  ForeignOp() : Op(Kind::foreign) {}
  ~ForeignOp() override { release(); }
  nb::object function;
  std::vector<nb::object> arguments;
  std::vector<Access> accesses;
  // Memory that the function gets behind its arguments. Nobody needs what is in it, before or afterwards.
  struct Workspace {
    std::uint64_t size_bytes = 0;
    DType dtype = any_dtype;  // of bytes
  };
  Workspace workspace;
  nb::object state;
  bool keeps_state = false;  // what is kept is written, so two such operations do not overlap
  DoubtRef doubt;            // of a collective: it may have arrays of several devices, and fail after it was submitted

  void release_arguments() override { release(); }
  int visit_arguments(visitproc visit, void* arg) override {
    Py_VISIT(function.ptr());
    Py_VISIT(state.ptr());
    for (const nb::object& argument : arguments) Py_VISIT(argument.ptr());
    for (const Access& access : accesses) Py_VISIT(access.array.ptr());
    return 0;
  }

 private:
  void release() {
    function.reset();
    state.reset();
    for (nb::object& argument : std::exchange(arguments, {})) let_go(std::move(argument));
    for (Access& access : std::exchange(accesses, {})) let_go(std::move(access.array));
  }
};

struct GraphPlan;

// A launch of a graph, with what it replaces.
//
// Always true: what the device is to be told outlives the arguments: addresses and numbers stay when they are let go.
struct ReplayOp final : Op {
  // What replaces an input, or the memory of an output.
  struct Binding {
    PyObject* value;        // owned: an array or a number, or an operation that yields one
    std::uint64_t address;  // of an array, known when it is submitted
    std::uint32_t index;    // of the input, or of the output's memory
    std::uint32_t slot : 29;
    std::uint32_t is_output : 1;     // else of an input
    std::uint32_t is_memory : 1;     // of the slot, whose address the array's replaces; else a number
    std::uint32_t is_operation : 1;  // else it was found to fit when the launch was built

    void take_slot(std::uint32_t memory) {
      slot = memory & 0x1fffffff;
      is_memory = true;
    }
  };
  // A number that replaces another.
  struct Word {
    std::uint32_t slot;
    std::uint64_t word;
  };
  ReplayOp() : Op(Kind::replay) {}
  ~ReplayOp() override { release(); }
  nb::object graph;
  GraphPlan* plan = nullptr;     // the graph's
  std::uint64_t generation = 0;  // of the plan that it was built for
  nb::object result;             // if it is neither the graph's nor the outputs that were given
  // With so many a launch fits into the blocks of 512 bytes that Python's allocator keeps.
  Several<Binding, 8> bindings;
  Several<Word, 2> numbers;
  bool consumes = false;  // some value is an operation
  bool is_loop = false;   // the graph is the whole work of one loop or branch on the device

  // Takes the place of an input, or of an output's memory.
  void bind(bool is_output, std::uint32_t index, nb::handle value) {
    Binding binding{};
    const bool may_be_tensor = !as_array(value) && !PyLong_Check(value.ptr()) && !PyFloat_Check(value.ptr());
    const nb::object tensor =
        may_be_tensor && !as_op(value) ? tensor_of(value, [] { return std::string("launch"); }) : nb::object();
    if (tensor.is_valid()) value = tensor;
    binding.value = value.inc_ref().ptr();
    binding.index = index;
    binding.is_output = is_output;
    binding.is_operation = is_op(value.ptr());
    note_tensors(value);
    consumes = consumes || binding.is_operation;
    bindings.push_back(binding);
  }
  void set_number(std::uint32_t slot, std::uint64_t word) {
    for (Word& each : numbers)
      if (each.slot == slot) {
        each.word = word;
        return;
      }
    numbers.push_back({slot, word});
  }

  void release_arguments() override { release(); }
  int visit_arguments(visitproc visit, void* arg) override {
    Py_VISIT(graph.ptr());
    Py_VISIT(result.ptr());
    for (const Binding& binding : bindings) Py_VISIT(binding.value);
    return 0;
  }

 private:
  void release() {
    for (Binding& binding : bindings) {
      PyObject* const value = std::exchange(binding.value, nullptr);
      if (binding.is_operation)
        let_go(nb::steal(value));
      else
        Py_XDECREF(value);
    }
    result.reset();
    graph.reset();
    plan = nullptr;
  }
};

}  // namespace aiocuda::dataflow
