// Counts of the engine's work: see statistics.hpp.
#include "statistics.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include "../driver/loop_stall.hpp"
#include "../live/page.hpp"
#include "loop_port.hpp"
#include "process.hpp"
#include "unraisable.hpp"

namespace aiocuda {
namespace {
using namespace nb::literals;
using driver::Engine;
using Clock = completion::Pending::Clock;

PyObject* loop_runs = nullptr;  // () -> whether an event loop runs in this thread

bool is_in_loop() noexcept {
  const nb::error_scope kept;
  PyObject* const answer = loop_runs ? PyObject_CallNoArgs(loop_runs) : nullptr;
  if (loop_runs && !answer) tell_unraisable(loop_runs);
  const bool is_running = answer == Py_True;
  Py_XDECREF(answer);
  return is_running;
}

nb::dict counts() {
  Engine& engine = process_engine();
  engine.require_not_forked();
  nb::dict counts;
  std::uint64_t submitted = 0, in_flight = 0;
  for (std::size_t i = 0; i < engine.timeline.size(); ++i) {
    submitted += engine.timeline.submitted(static_cast<driver::StreamIndex>(i));
    in_flight += engine.timeline.backlog(static_cast<driver::StreamIndex>(i));
  }
  counts["submitted"] = submitted;
  counts["in_flight"] = in_flight;
  counts["pending"] = engine.pending.size();
  counts["waits_for_room"] = engine.lines.waits();
  counts["wakes"] = loop_wakes.load();
  counts["spins"] = engine.waits.spins.load();
  counts["spins_that_paid"] = engine.waits.spins_that_paid.load();
  counts["without_flag"] = engine.waits.without_flag.load();
  counts["staged_bytes"] = engine.staging.staged_bytes();
  counts["staging_bytes"] = engine.staging.ring_bytes();
  counts["staging_threads"] = engine.staging.thread_count();
  counts["stalls"] = driver::loop_stalls.long_ones;
  counts["longest_stall_ns"] = driver::loop_stalls.longest.count();
  nb::list histogram;
  for (const std::uint64_t count : engine.pending.histogram()) histogram.append(count);
  counts["latency_histogram"] = histogram;
  const completion::ReactorCounts* reactor = engine.waits.reactor_counts();
  counts["completed"] = reactor ? reactor->completed.load() : 0;
  counts["batches"] = reactor ? reactor->batches.load() : 0;
  counts["sleeps"] = reactor ? reactor->sleeps.load() : 0;
  counts["parks"] = reactor ? reactor->parks.load() : 0;
  return counts;
}

// The counts that need no GIL, in the order of `aiocuda._live.page.Counts`.
live::Counts counts_at_once() {
  Engine& engine = process_engine();
  const completion::ReactorCounts* reactor = engine.waits.reactor_counts();
  return {engine.pending.size(),     reactor ? reactor->completed.load() : 0, engine.lines.waits(), loop_wakes.load(),
          engine.waits.spins.load(), engine.waits.spins_that_paid.load()};
}

// Returns the error that broke an open device, or 0; and the seconds that the longest wait for it has lasted, or 0.
// Waits for nothing.
std::pair<std::int32_t, double> state_of_device(std::int32_t device) {
  Engine& engine = process_engine();
  engine.require_not_forked();
  const driver::StreamState& stream = engine.stream(engine.devices.at(device).default_stream);
  CUresult answer = CUDA_SUCCESS;
  if (!engine.streams.is_captured(stream.handle)) {
    driver::ContextScope scope(engine);
    scope.bind(device);
    answer = engine.submission.query(stream.handle, stream.context);
  }
  const auto since =
      engine.pending.longest_since([&](std::uint32_t each) { return engine.stream(each).device == device; });
  const std::chrono::duration<double> lasts = since ? Clock::now() - *since : Clock::duration{};
  return {driver::breaks_context(answer) ? answer : 0, lasts.count()};
}

// Memory of Python's, as long as this lives: the page of another process.
class Mapped {
 public:
  explicit Mapped(nb::handle memory) {
    if (PyObject_GetBuffer(memory.ptr(), &view_, PyBUF_WRITABLE) != 0) throw nb::python_error();
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() { PyBuffer_Release(&view_); }
  live::PageReader page() const {
    return live::PageReader({static_cast<std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)});
  }

 private:
  Py_buffer view_{};
};

nb::bytes as_bytes(const std::string& text) { return nb::bytes(text.data(), text.size()); }

nb::object owner_of_page(nb::handle memory) {
  const auto owner = Mapped(memory).page().owner();
  if (!owner) return nb::none();
  return nb::make_tuple(owner->layout, owner->process, as_bytes(owner->version));
}

nb::object told_by_page(nb::handle memory) {
  const auto told = Mapped(memory).page().told();
  if (!told) return nb::none();
  const auto counts = std::apply([](auto... each) { return nb::make_tuple(each...); }, told->counts);
  return nb::make_tuple(told->heard, told->answered, told->heard_ns, counts, as_bytes(told->text));
}

void bind_live_page(nb::module_& module) {
  nb::class_<live::Page>(module, "LivePage")
      .def("__init__",
           [](live::Page* self, const std::string& version) {
             interpreter::guard_thread();
             new (self) live::Page(version);
           })
      // Blocks, without the GIL, until another process has rung.
      .def("listen",
           [](live::Page& self) {
             interpreter::guard_thread();
             const nb::gil_scoped_release release;
             self.await_ring();
             self.note_heard(counts_at_once());
           })
      .def("answer", [](live::Page& self, const nb::bytes& text) { return self.answer({text.c_str(), text.size()}); })
      .def_prop_ro_static("layout", [](nb::handle) { return live::Layout::number; })
      .def_prop_ro_static("size_bytes", [](nb::handle) { return live::Page::size_bytes; })
      .def_prop_ro_static("file_name", [](nb::handle) { return live::Page::file_name; });
  // The page of another process, in memory that is mapped.
  module.def("owner_of_page", owner_of_page, "memory"_a);
  module.def("ring", [](nb::handle memory) { return Mapped(memory).page().ring(); }, "memory"_a);
  module.def("told_by_page", told_by_page, "memory"_a);
}

}  // namespace

void bind_statistics(nb::module_& module) {
  bind_live_page(module);
  module.def("statistics", counts);
  module.def("state_of_device", state_of_device, "device"_a);
  // Of what may hold up an event loop: `is_running()` says whether one runs in this thread.
  module.def("set_loop_runs", [](nb::object is_running) {
    Py_XDECREF(std::exchange(loop_runs, is_running.release().ptr()));
    driver::is_in_loop = is_in_loop;
  });
  // This thread was held for so long.
  module.def("note_stall", [](double seconds) {
    driver::note_stall(std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9)));
  });
}

}  // namespace aiocuda
