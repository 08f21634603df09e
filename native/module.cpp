// The native module: what once-per-launch work there is, and the driver floor, as Python sees them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "bench.hpp"
#include "completion/loop_time.hpp"
#include "copy_bench.hpp"
#include "driver/drive.hpp"
#include "driver/refused.hpp"
#include "graph_bench.hpp"
#include "host_memory.hpp"
#include "kernel.hpp"
#include "operations.hpp"
#include "graph.hpp"
#include "ownership.hpp"
#include "placements.hpp"
#include "places.hpp"

namespace aiocuda {
namespace {
using namespace nb::literals;
using dataflow::Placement;
using driver::Engine;
using Streams = std::vector<driver::StreamIndex>;

// A port whose tokens are Python objects. It ends with the loop; what comes later is dropped when
// somebody next has the GIL and asks.
struct LoopPort {
  LoopPort(bool is_of_thread, std::optional<std::int64_t> turn_us) : blocks(is_of_thread) {
    interpreter::guard_thread();
    if (turn_us) time.emplace(std::chrono::microseconds(*turn_us));
  }
  std::shared_ptr<completion::Port> port = std::make_shared<completion::Port>(Engine::get().orphans);
  const bool blocks;                         // its thread does nothing but wait for what comes out
  std::optional<completion::LoopTime> time;  // where awaits share it
  ~LoopPort() {
    if (Engine::get().is_forked()) {  // the reactor may have been at it; it is the other process' as well
      static std::vector<std::shared_ptr<completion::Port>>& forked = *new std::vector<std::shared_ptr<completion::Port>>;
      forked.push_back(std::move(port));
      return;
    }
    if (time)
      for (const completion::Token token : time->close()) Engine::get().orphans.add(token);
    port->close();
    drop_orphans();
  }
  void look_for_turn() {
    if (time->asks_for_turn()) port->ring();
  }
  static void drop_orphans() {
    if (Engine::get().is_forked()) return;
    for (const completion::Token token : Engine::get().orphans.take()) Py_DECREF(static_cast<PyObject*>(token));
  }
};

// Charges what is done for an await, from here to the end of the scope, to its loop's turn.
class Charged {
 public:
  explicit Charged(LoopPort& port) : port_(port) {
    if (port.time) begin_ = Clock::now();
  }
  Charged(const Charged&) = delete;
  Charged& operator=(const Charged&) = delete;
  ~Charged() {
    if (!port_.time) return;
    port_.time->spend(Clock::now() - begin_);
    port_.look_for_turn();
  }

 private:
  using Clock = std::chrono::steady_clock;
  LoopPort& port_;
  Clock::time_point begin_{};
};

// A scope of Python's: calls of the thread that makes it disturb no capture of anybody's until it is left, on the same thread.
struct RelaxedByPython {
  std::optional<driver::RelaxedCaptures> scope;
};

// Without those that were destroyed: all of theirs has passed.
Streams still_there(const std::vector<dataflow::StreamId>& streams) {
  const Engine& engine = Engine::get();
  Streams found;
  for (const dataflow::StreamId stream : streams) {
    const driver::StreamIndex slot = dataflow::slot_of(stream);
    if (slot < engine.stream_count() && engine.id_of(slot) == stream) found.push_back(slot);
  }
  return found;
}

// Turns what the driver refuses, outside an operation, into Python's error.
template <class F>
auto refusals_raised(const char* doing, std::int32_t device, F&& f) {
  interpreter::guard_thread();
  try {
    return f();
  } catch (const driver::Refusal& refusal) {
    driver::raise_refused(Engine::get(), refusal.result, refusal.function, doing + (" device " + std::to_string(device)), refusal.asked_host_bytes,
                          refusal.asked_host_bytes ? dataflow::host_ordinal : device);
  }
}

void bind_settings(nb::module_& module) {
  module.def("bind_errors", [](nb::handle errors) {
    // Threads that cannot be started, files that cannot be opened. The class stays for good.
    nb::register_exception_translator([](const std::exception_ptr& thrown, void* type) {
      try {
        std::rethrow_exception(thrown);
      } catch (const std::system_error& error) {
        const std::string said = std::string("the operating system refuses aiocuda a thread or an eventfd (") + error.what() +
                                 "); see the limits on threads, memory and open files: ulimit -u, -v, -n, and those of the container";
        PyErr_SetString(static_cast<PyObject*>(type), said.c_str());
      }
    }, nb::object(errors.attr("AiocudaError")).release().ptr());
    auto keep = [&](const char* name) { return nb::handle(nb::object(errors.attr(name)).release()); };
    dataflow::error_types = {keep("ArgumentTypeError"), keep("ArgumentValueError"), keep("ArgumentRangeError"), keep("DeviceMismatchError"),
                             keep("LaunchError"), keep("ClosedError"), keep("OwnershipError"), keep("CaptureError"),
                             keep("OperationInterruptedError"), keep("ArgumentIndexError")};
  });
  module.def("set_package_directory", [](std::string directory) { dataflow::package_directory() = std::move(directory); });
  module.def("set_hooks", [](nb::object refused, nb::object lost, nb::object lift, nb::object open, nb::object stream, nb::object lanes,
                                nb::object named, nb::object over_limit, nb::object over) {
    auto& hooks = Engine::get().hooks;
    hooks.refused = std::move(refused);
    hooks.lost = std::move(lost);
    hooks.lift = std::move(lift);
    hooks.open = std::move(open);
    hooks.stream = std::move(stream);
    hooks.lanes = std::move(lanes);
    hooks.named = std::move(named);
    hooks.over_limit = std::move(over_limit);
    hooks.over = std::move(over);
  });
  module.def("set_array_classes", [](nb::object device_array, nb::object host_array) {
    auto& hooks = Engine::get().hooks;
    hooks.device_array = std::move(device_array);
    hooks.host_array = std::move(host_array);
  });
  module.def("load_driver", [] { Engine::get().load(driver::load_table()); });
  nb::class_<RelaxedByPython>(module, "RelaxedCaptures")
      .def(nb::init<>())
      .def("__enter__", [](RelaxedByPython& self) { self.scope.emplace(Engine::get().table); })
      .def("__exit__", [](RelaxedByPython& self, const nb::args&) { self.scope.reset(); });
  // The process that started the driver, where this one was forked from it; else 0.
  module.def("forked_from", [] { return Engine::get().is_forked() ? Engine::get().starter() : 0; });
  module.def("open_device", [](std::int32_t ordinal, std::uintptr_t context, std::uintptr_t pool) {
    refusals_raised("opening", ordinal, [&] {
      Engine::get().open_device(ordinal, reinterpret_cast<CUcontext>(context), reinterpret_cast<CUmemoryPool>(pool));
    });
  });
  // Memory is allocated from another pool from now on.
  module.def("set_pool", [](std::int32_t ordinal, std::uintptr_t pool) { Engine::get().device(ordinal).pool = reinterpret_cast<CUmemoryPool>(pool); });
}

void bind_streams(nb::module_& module) {
  module.def("default_stream", [](std::int32_t device) { return Engine::get().id_of(Engine::get().device(device).default_stream); });
  module.def("aside_stream", [](std::int32_t device) {
    return refusals_raised("creating a stream on", device, [&] { return Engine::get().id_of(Engine::get().aside(device)); });
  });
  module.def("create_stream", [](std::int32_t device, int priority) {
    return refusals_raised("creating a stream on", device, [&] { return Engine::get().id_of(Engine::get().create_stream(device, priority)); });
  });
  module.def("adopt_stream", [](std::uintptr_t handle, std::int32_t device, nb::object keepalive) {
    return refusals_raised("adopting a stream of", device, [&] {
      return Engine::get().id_of(Engine::get().adopt_stream(reinterpret_cast<CUstream>(handle), device, std::move(keepalive)));
    });
  });
  module.def("close_stream", [](dataflow::StreamId stream) { Engine::get().close_stream(index_of(stream)); });
  module.def("stream_handle", [](dataflow::StreamId stream) { return reinterpret_cast<std::uintptr_t>(Engine::get().stream(index_of(stream)).handle); });
  module.def("stream_device", [](dataflow::StreamId stream) { return Engine::get().stream(index_of(stream)).device; });
  module.def("stream_submitted", [](dataflow::StreamId stream) {
    const driver::StreamIndex slot = index_of(stream);
    return Engine::get().timeline.submitted(slot) - Engine::get().stream(slot).before;
  });
  // That as far as is known have not passed.
  module.def("stream_in_flight", [](dataflow::StreamId stream) { return Engine::get().timeline.backlog(index_of(stream)); });
  module.def("streams_of", [](std::int32_t device) {
    std::vector<dataflow::StreamId> found;
    for (std::size_t i = 0; i < Engine::get().stream_count(); ++i) {
      const auto slot = static_cast<driver::StreamIndex>(i);
      const auto& state = Engine::get().stream(slot);
      if (state.device == device && state.mark) found.push_back(Engine::get().id_of(slot));
    }
    return found;
  });
  // Orders all later work of `stream` after what `other` holds now, whoever submitted it.
  module.def("order_streams", [](dataflow::StreamId stream, dataflow::StreamId other) {
    Engine& engine = Engine::get();
    const driver::StreamIndex later = index_of(stream), earlier = index_of(other);
    driver::ContextScope scope(engine);
    scope.bind(engine.stream(later).device);
    if (const CUresult result = engine.wait(later, earlier))
      driver::raise_refused(engine, result, "cuStreamWaitEvent", "ordering " + title_of(engine, later) + " after " + title_of(engine, earlier), 0,
                            engine.stream(later).device);
  });
}

void raise_stream_error(const completion::Completion& completion, const Streams& streams, const std::string& asked) {
  Engine& engine = Engine::get();
  if (const std::int32_t error = completion.error())
    driver::raise_refused(engine, static_cast<CUresult>(error), "cuStreamQuery", asked, 0, engine.stream(streams.front()).device);
}

void bind_execution(nb::module_& module) {
  nb::class_<LoopPort>(module, "Port", nb::is_weak_referenceable())
      // `turn_us`: how long awaits may hold the loop in one turn of it; None: it is no loop's.
      .def(nb::init<bool, std::optional<std::int64_t>>(), "blocks"_a = false, "turn_us"_a = nb::none())
      .def("fileno", [](const LoopPort& self) { return self.port->fd(); })
      // Makes a token due now, and not when something has passed; with 0, or PAUSE.
      .def("put", [](LoopPort& self, nb::object token, std::int32_t result) {
        Engine::get().require_not_forked();
        self.port->put(token.release().ptr(), result);
      }, "token"_a, "result"_a = 0)
      // The tokens that are due, each with 0 or the driver's error. `begins_turn`: the loop asks, once in each turn.
      .def("take", [](LoopPort& self, bool begins_turn) {
        interpreter::guard_thread();
        Engine::get().require_not_forked();
        nb::list due;
        auto append = [&due](completion::Token token, std::int32_t result) {
          due.append(nb::make_tuple(nb::steal(static_cast<PyObject*>(token)), result));
        };
        for (const auto& each : self.port->take()) append(each.token, each.result);
        if (self.time && begins_turn) {
          for (const completion::Token token : self.time->begin_turn()) append(token, completion::own_turn);
          self.look_for_turn();
        } else if (self.time && self.time->has_asked()) {
          self.port->ring();  // what was rung for has been taken back
        }
        LoopPort::drop_orphans();
        return due;
      }, "begins_turn"_a = false)
      // An await of an operation, or of something else, begins. False: it lines up, and enters when it is its turn.
      .def("admits", [](LoopPort& self, nb::handle) { return self.time->admits(); }, nb::arg("op").none())
      .def("line_up", [](LoopPort& self) { return self.time->line_up(); })
      .def("enter", [](LoopPort& self, completion::LoopTime::Place place, nb::object token) {
        if (self.time->enter(place, token.ptr())) return true;
        token.release();
        self.look_for_turn();
        return false;
      })
      .def("leave_line", [](LoopPort& self, completion::LoopTime::Place place) {
        nb::steal(static_cast<PyObject*>(self.time->leave(place)));
      })
      .def_prop_ro("turn_calls", [](const LoopPort& self) { return self.time->calls(); });

  module.attr("PAUSE") = completion::pause;
  module.attr("TURN") = completion::own_turn;

  // True: complete. False: `token` will come out of the port when it is worth driving again.
  static constexpr auto drive = [](nb::handle_t<dataflow::Op> op, const Placement& placement, LoopPort& port, nb::object token, bool spins) {
    const Charged charged(port);
    PyObject* owned = token.inc_ref().ptr();
    bool complete = true;
    try {
      complete = driver::drive(op, to_execute(*nb::inst_ptr<dataflow::Op>(op), placement), port.port, owned, port.blocks, spins);
    } catch (...) {
      Py_DECREF(owned);
      throw;
    }
    if (complete) Py_DECREF(owned);
    return complete;
  };
  module.def("drive", [](nb::handle_t<dataflow::Op> op, const Placement& placement, LoopPort& port, nb::object token) {
    return drive(op, placement, port, std::move(token), true);
  });
  // The same without spinning: the operation is one of many.
  module.def("drive_at_ease", [](nb::handle_t<dataflow::Op> op, const Placement& placement, LoopPort& port, nb::object token) {
    return drive(op, placement, port, std::move(token), false);
  });
  module.def("submit", [](nb::handle_t<dataflow::Op> op, const Placement& placement) {
    driver::submit(op, to_execute(*nb::inst_ptr<dataflow::Op>(op), placement));
  });
  // True: a function was called, and it is worth calling again.
  module.def("submit_more", [](nb::handle_t<dataflow::Op> op, const Placement& placement) {
    return driver::submit_more(op, to_execute(*nb::inst_ptr<dataflow::Op>(op), placement));
  });
  // Nobody waits for the token any more, whose wait was for room, or for anything else.
  module.def("leave", [](nb::handle_t<dataflow::Op> op, nb::handle token) {
    if (driver::leave(op, token.ptr())) Py_DECREF(token.ptr());
  });
  module.def("drive_and_wait", [](nb::handle_t<dataflow::Op> op, const Placement& placement, double timeout_s) {
    return driver::drive_and_wait(op, to_execute(*nb::inst_ptr<dataflow::Op>(op), placement), timeout_s);
  });
  module.def("has_passed", [](nb::handle_t<dataflow::Op> op) { return driver::has_passed(op); });
  module.def("record", [](nb::handle_t<dataflow::Op> op, const Placement& placement) {
    return driver::record(op, to_record(placement));
  });

  // False: nothing to wait for. Covers everything the streams hold, also what others submitted.
  module.def("tell_when_streams_pass", [](const std::vector<dataflow::StreamId>& streams, const std::string& asked, LoopPort& port, nb::object token) {
    const Charged charged(port);
    const Streams lanes = still_there(streams);
    if (lanes.empty()) return false;
    const auto completion = driver::arm_streams(lanes, asked);
    PyObject* owned = token.inc_ref().ptr();
    if (completion->tell(port.port, owned)) return true;
    Py_DECREF(owned);
    raise_stream_error(*completion, lanes, asked);
    return false;
  });
  // False: `timeout_s` (negative: none) passed first.
  module.def("wait_for_streams", [](const std::vector<dataflow::StreamId>& streams, const std::string& asked, double timeout_s) {
    const Streams lanes = still_there(streams);
    if (lanes.empty()) return true;
    const auto completion = driver::arm_streams(lanes, asked);
    if (!driver::wait_with_signals(*completion, timeout_s)) return false;
    raise_stream_error(*completion, lanes, asked);
    return true;
  });
  // Those of some streams that still hold work, whoever submitted it, or that are broken.
  module.def("streams_at_work", [](const std::vector<dataflow::StreamId>& streams) {
    Engine& engine = Engine::get();
    driver::ContextScope scope(engine);
    nb::list at_work;
    for (const driver::StreamIndex stream : still_there(streams)) {
      const driver::StreamState& state = engine.stream(stream);
      scope.bind(state.device);
      if (engine.table.cuStreamQuery(state.handle) != CUDA_SUCCESS) at_work.append(engine.id_of(stream));
    }
    return at_work;
  });

  module.def("settle_frees", [](std::int32_t device) {
    refusals_raised("settling what was freed on", device, [&] { Engine::get().settle_frees(device); });
  });
  module.def("collect", [] {
    Engine& engine = Engine::get();
    if (engine.depth == 0) engine.collect();
    LoopPort::drop_orphans();
  });
  // Of page-locked memory: held, and of that kept for later.
  module.def("page_locked_memory", [] { return nb::make_tuple(Engine::get().page_locked().held_bytes(), Engine::get().page_locked().cached_bytes()); });
  // Of a device's managed memory: held by arrays; held from the driver, and of that kept for later.
  module.def("managed_memory", [](std::int32_t device) {
    Engine& engine = Engine::get();
    return nb::make_tuple(engine.account(device).managed_bytes, engine.managed(device).held_bytes(), engine.managed(device).cached_bytes());
  });
  // Of a device's memory that other processes may open: what is kept for later.
  module.def("kept_interprocess_bytes", [](std::int32_t device) { return Engine::get().interprocess(device).cached_bytes(); });
  module.def("trim_blocks", [](std::int32_t device) {
    refusals_raised("giving back memory of", device, [&] { Engine::get().trim_blocks(device); });
  });
  // Held by arrays on a device now, and at most; and from here on, that anew.
  module.def("memory", [](std::int32_t device) { return nb::make_tuple(Engine::get().account(device).used_bytes, Engine::get().account(device).peak_bytes); });
  module.def("reset_peak_memory", [](std::int32_t device) { Engine::get().account(device).peak_bytes = Engine::get().account(device).used_bytes; });
  // The size of each array's memory, and where that was made; -1 for page-locked memory.
  module.def("memory_holders", [](std::int32_t device, bool is_managed) {
    nb::list found;
    Engine::get().each_buffer(device, is_managed, [&](const dataflow::Buffer& buffer) { found.append(nb::make_tuple(buffer.size_bytes, dataflow::Origin::location(buffer.maker))); });
    return found;
  }, "device"_a, "is_managed"_a = false);
  module.def("pending_count", [] { return Engine::get().pending.size(); });
  module.def("statistics", [] {
    Engine& engine = Engine::get();
    engine.require_not_forked();
    nb::dict counts;
    std::uint64_t in_flight = 0;
    for (std::size_t i = 0; i < engine.timeline.size(); ++i) in_flight += engine.timeline.backlog(static_cast<driver::StreamIndex>(i));
    counts["in_flight"] = in_flight;
    counts["pending"] = engine.pending.size();
    counts["waits_for_room"] = engine.lines.waits();
    counts["spins"] = engine.spins.load();
    counts["spins_that_paid"] = engine.spins_that_paid.load();
    counts["without_flag"] = engine.without_flag.load();
    counts["staging_bytes"] = engine.staging.ring_bytes();
    counts["staging_threads"] = engine.staging.thread_count();
    nb::list histogram;
    for (const std::uint64_t count : engine.pending.histogram()) histogram.append(count);
    counts["latency_histogram"] = histogram;
    const completion::ReactorCounts* reactor = engine.reactor_counts();
    counts["completed"] = reactor ? reactor->completed.load() : 0;
    counts["batches"] = reactor ? reactor->batches.load() : 0;
    counts["sleeps"] = reactor ? reactor->sleeps.load() : 0;
    counts["parks"] = reactor ? reactor->parks.load() : 0;
    return counts;
  });
}

}  // namespace
}  // namespace aiocuda

NB_MODULE(_native, module) {
  // Memory and operations live as long as somebody's program holds them: at exit that is no leak.
  aiocuda::nb::set_leak_warnings(false);
  aiocuda::bind_settings(module);
  aiocuda::bind_operations(module);
  aiocuda::bind_placements(module);
  aiocuda::bind_host_memory(module);
  aiocuda::bind_ownership(module);
  aiocuda::bind_graphs(module);
  aiocuda::bind_kernel(module);
  aiocuda::bind_streams(module);
  aiocuda::bind_execution(module);
  aiocuda::bind_bench(module);
  aiocuda::bind_graph_bench(module);
  aiocuda::bind_copy_bench(module);
}
