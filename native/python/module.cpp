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

#include "../bench/bench.hpp"
#include "../bench/copy_bench.hpp"
#include "../bench/graph_bench.hpp"
#include "../driver/refused.hpp"
#include "../spares.hpp"
#include "boards.hpp"
#include "direct.hpp"
#include "dlpack.hpp"
#include "exchange_api.hpp"
#include "execution.hpp"
#include "foreign_ops.hpp"
#include "foreign_work.hpp"
#include "framework_ops.hpp"
#include "graph.hpp"
#include "graph_calls.hpp"
#include "guests.hpp"
#include "host_memory.hpp"
#include "kernel.hpp"
#include "known_calls.hpp"
#include "loop_port.hpp"
#include "native_method.hpp"
#include "operations.hpp"
#include "ownership.hpp"
#include "placements.hpp"
#include "places.hpp"
#include "process.hpp"
#include "recording.hpp"
#include "statistics.hpp"
#include "stream_events.hpp"
#include "tensors.hpp"

namespace aiocuda {
namespace {
using namespace nb::literals;
using driver::Engine;

// A scope of Python's: calls of the thread that makes it disturb no capture of anybody's until it is left, on the same
// thread.
struct RelaxedByPython {
  std::optional<driver::RelaxedCaptures> scope;
};

// Likewise, for InCuda.
struct InCudaByPython {
  std::optional<InCuda> scope;
};

// Turns what the driver refuses, outside an operation, into Python's error.
template <class F>
auto refusals_raised(const char* doing, std::int32_t device, F&& f) {
  interpreter::guard_thread();
  return driver::doing(process_engine(), [&] { return doing + (" device " + std::to_string(device)); }, device, f);
}

void bind_settings(nb::module_& module) {
  module.def("bind_errors", [](nb::handle errors) {
    auto keep = [&](const char* name) { return nb::handle(nb::object(errors.attr(name)).release()); };  // for good
    refused_by_system = keep("AiocudaError");
    nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
      try {
        std::rethrow_exception(thrown);
      } catch (const std::system_error& error) {
        set_refused_by_system(error);
      }
    });
    dataflow::error_types = {keep("ArgumentTypeError"),   keep("ArgumentValueError"), keep("ArgumentRangeError"),
                             keep("DeviceMismatchError"), keep("LaunchError"),        keep("ClosedError"),
                             keep("OwnershipError"),      keep("CaptureError"),       keep("OperationInterruptedError"),
                             keep("ArgumentIndexError"),  keep("ExchangeError")};
  });
  module.def("set_package_directory", [](std::string directory, std::string contexts_file) {
    dataflow::package_directory() = std::move(directory);
    dataflow::contexts_file() = std::move(contexts_file);
  });
  module.def(
      "set_hooks",
      [](nb::object refused, nb::object lost, nb::object lift, nb::object open_device, nb::object known_stream,
         nb::object streams_for, nb::object named, nb::object over_limit, nb::object over, nb::object opening,
         nb::object opening_file, nb::object making, nb::object not_done, nb::object keeper_of_stream) {
        auto& hooks = process_engine().hooks;
        hooks.refused = std::move(refused);
        hooks.lost = std::move(lost);
        hooks.lift = std::move(lift);
        hooks.open = std::move(open_device);
        hooks.stream = std::move(known_stream);
        hooks.policy_streams = std::move(streams_for);
        hooks.named = std::move(named);
        hooks.over_limit = std::move(over_limit);
        hooks.over = std::move(over);
        hooks.opening = std::move(opening);
        hooks.opening_file = std::move(opening_file);
        hooks.making = std::move(making);
        hooks.not_done = std::move(not_done);
        hooks.keeper_of_stream = std::move(keeper_of_stream);
      },
      "refused"_a, "lost"_a, "lift"_a, "open_device"_a, "known_stream"_a, "streams_for"_a, "named"_a, "over_limit"_a,
      "over"_a, "opening"_a, "opening_file"_a, "making"_a, "not_done"_a, "keeper_of_stream"_a);
  // Has `hook(op, seconds)` called when a step of an execution has taken longer than `limit_s`; None: nobody is told.
  module.def(
      "set_held_up",
      [](nb::object hook, double limit_s) {
        auto& hooks = process_engine().hooks;
        hooks.held_up_s = limit_s;
        nb::object given = hook.is_none() ? nb::object() : std::move(hook);
        std::swap(hooks.held_up, given);
      },
      "hook"_a.none(), "limit_s"_a);
  module.def("set_ahead", [](nb::object hook) { process_engine().hooks.get_ahead = std::move(hook); });
  module.def("place_of_caller", [] { return dataflow::place_of_caller(); });
  module.def("set_array_classes", [](nb::object device_array, nb::object host_array) {
    auto& hooks = process_engine().hooks;
    hooks.device_array = std::move(device_array);
    hooks.host_array = std::move(host_array);
  });
  module.def("load_driver", load_driver, "submission_thread"_a = "never");
  // Waits, without the GIL, until the thread that makes the driver's calls has made all; for so long at most.
  module.def(
      "await_calls",
      [](double seconds) {
        const nb::gil_scoped_release release;
        return process_engine().submission.drain_within(std::chrono::milliseconds(static_cast<int>(seconds * 1000)));
      },
      "seconds"_a);
  // The calls that were given to the thread that makes them, and those that it has made.
  module.def("submission_calls", [] {
    const driver::SubmissionThread& submission = process_engine().submission;
    const std::uint64_t made = submission.made();
    return nb::make_tuple(submission.given(), made);
  });
  // Does a context do nothing more once the driver has answered that?
  module.def("breaks_context", driver::breaks_context);
  nb::class_<RelaxedByPython>(module, "RelaxedCaptures")
      .def(nb::init<>())
      .def("__enter__", [](RelaxedByPython& self) { self.scope.emplace(process_engine().table); })
      .def("__exit__", [](RelaxedByPython& self, const nb::args&) { self.scope.reset(); });
  nb::class_<InCudaByPython>(module, "InCuda")
      .def(nb::init<>())
      .def("__enter__", [](InCudaByPython& self) { self.scope.emplace(); })
      .def("__exit__", [](InCudaByPython& self, const nb::args&) { self.scope.reset(); });
  // The process that started the driver, where this one was forked from it; else 0.
  module.def("forked_from", forked_from);
  module.def("open_device", [](std::int32_t ordinal, std::uintptr_t context, std::uintptr_t pool,
                               std::uint64_t memory_bytes, int highest_priority) {
    refusals_raised("opening", ordinal, [&] {
      process_engine().open_device(ordinal, reinterpret_cast<CUcontext>(context), reinterpret_cast<CUmemoryPool>(pool),
                                   memory_bytes, highest_priority);
    });
  });
  // Of the device's streams, as CUDA counts. The device is open.
  module.def("highest_stream_priority",
             [](std::int32_t ordinal) { return process_engine().devices.at(ordinal).highest_priority; });
  module.def("is_open", [](std::int32_t ordinal) { return process_engine().devices.is_open(ordinal); });
  // Memory is allocated from another pool from now on.
  module.def("set_pool", [](std::int32_t ordinal, std::uintptr_t pool) {
    process_engine().devices.set_pool(ordinal, reinterpret_cast<CUmemoryPool>(pool));
  });
  // A pool that a device had before is about to be destroyed.
  module.def("forget_pool", [](std::int32_t ordinal, std::uintptr_t pool) {
    process_engine().devices.former_pools().forget(ordinal, reinterpret_cast<CUmemoryPool>(pool));
  });
}

void bind_streams(nb::module_& module) {
  module.def("default_stream", [](std::int32_t device) {
    return process_engine().id_of(process_engine().devices.at(device).default_stream);
  });
  // A relay for an owner of memory who orders it behind his work himself: (stream, handle).
  module.def("unnamed_relay", [](std::int32_t device) {
    return refusals_raised("creating a stream on", device, [&] {
      Engine& engine = process_engine();
      const driver::StreamIndex relay = engine.relays.unnamed(device);
      return nb::make_tuple(engine.id_of(relay), reinterpret_cast<std::uintptr_t>(engine.stream(relay).handle));
    });
  });
  // Calls a function of another library's, with a device's context current.
  module.def("in_context", [](std::int32_t device, const nb::object& function) {
    Engine& engine = process_engine();
    engine.devices.at(device);
    driver::ContextScope scope(engine);
    scope.bind(device);
    const driver::ProgramsCaptures programs(engine.table);
    return function();
  });
  module.def("create_stream", [](std::int32_t device, int priority) {
    return refusals_raised("creating a stream on", device,
                           [&] { return process_engine().id_of(process_engine().streams.create(device, priority)); });
  });
  module.def(
      "adopt_stream",
      [](std::uintptr_t handle, std::int32_t device, nb::object keepalive) {
        return refusals_raised("adopting a stream of", device, [&] {
          std::shared_ptr<void> kept;
          if (!keepalive.is_none()) kept = std::make_shared<nb::object>(std::move(keepalive));
          return process_engine().id_of(
              process_engine().streams.adopt(reinterpret_cast<CUstream>(handle), device, std::move(kept)));
        });
      },
      "handle"_a, "device"_a, "keepalive"_a.none());
  module.def("leave_stream", [](dataflow::StreamId stream) {
    driver::Streams& streams = process_engine().streams;
    if (dataflow::slot_of(stream) < streams.size() && streams.id_of(dataflow::slot_of(stream)) == stream)
      streams.leave(dataflow::slot_of(stream));
  });
  module.def("close_stream", [](dataflow::StreamId stream) { process_engine().streams.close(index_of(stream)); });
  module.def("stream_handle", [](dataflow::StreamId stream) {
    const driver::StreamIndex index = index_of(stream);
    return refusals_raised("giving the handle of a stream on", process_engine().stream(index).device,
                           [&] { return reinterpret_cast<std::uintptr_t>(process_engine().streams.lend(index)); });
  });
  module.def("stream_device",
             [](dataflow::StreamId stream) { return process_engine().stream(index_of(stream)).device; });
  module.def("stream_submitted", [](dataflow::StreamId stream) {
    const driver::StreamIndex slot = index_of(stream);
    return process_engine().timeline.submitted(slot) - process_engine().stream(slot).before;
  });
  // The submissions that have not passed, as far as is known.
  module.def("stream_in_flight",
             [](dataflow::StreamId stream) { return process_engine().timeline.backlog(index_of(stream)); });
  module.def("streams_of", [](std::int32_t device) {
    std::vector<dataflow::StreamId> found;
    for (std::size_t i = 0; i < process_engine().stream_count(); ++i) {
      const auto slot = static_cast<driver::StreamIndex>(i);
      const auto& state = process_engine().stream(slot);
      if (state.device == device && state.mark) found.push_back(process_engine().id_of(slot));
    }
    return found;
  });
  // Its owner may have put work there, if it is somebody else's.
  module.def("look_again", [](dataflow::StreamId stream) { process_engine().streams.look_again(index_of(stream)); });
  // Orders all later work of `stream` after what `other` holds now, whoever submitted it.
  module.def("order_streams", [](dataflow::StreamId stream, dataflow::StreamId other) {
    Engine& engine = process_engine();
    const driver::StreamIndex later = index_of(stream), earlier = index_of(other);
    driver::ContextScope scope(engine);
    scope.bind(engine.stream(later).device);
    auto words = [&] {
      return "ordering " + engine.streams.title_of(later) + " after " + engine.streams.title_of(earlier);
    };
    driver::doing(engine, words, engine.stream(later).device, [&] {
      engine.streams.look_again(earlier);
      driver::check(engine.streams.wait(later, earlier), "cuStreamWaitEvent");
      engine.streams.rest();
      engine.now.drain();
      driver::check(engine.submission.losses.broken(engine.stream(earlier).context), "cuEventRecord");
      driver::check(engine.submission.losses.broken(engine.stream(later).context), "cuStreamWaitEvent");
    });
  });
}

void bind_memory(nb::module_& module) {
  module.def("settle_frees", [](std::int32_t device) {
    refusals_raised("settling what was freed on", device, [&] { process_engine().streams.settle(device); });
  });
  module.def("collect", [] {
    Engine& engine = process_engine();
    if (engine.depth == 0) engine.collect();
    drop_orphans();
  });
  // Of page-locked memory: held, and of that kept for later.
  module.def("page_locked_memory", [] {
    return nb::make_tuple(process_engine().memory.page_locked().held_bytes(),
                          process_engine().memory.page_locked().cached_bytes());
  });
  // Of a device's managed memory: held by arrays; held from the driver, and of that kept for later.
  module.def("managed_memory", [](std::int32_t device) {
    Engine& engine = process_engine();
    return nb::make_tuple(engine.memory.account(device).managed_bytes, engine.memory.managed(device).held_bytes(),
                          engine.memory.managed(device).cached_bytes());
  });
  // Of a device's memory that other processes may open: what is kept for later.
  module.def("kept_interprocess_bytes",
             [](std::int32_t device) { return process_engine().memory.interprocess(device).cached_bytes(); });
  module.def("trim_blocks", [](std::int32_t device) {
    refusals_raised("giving back memory of", device, [&] { process_engine().memory.trim_blocks(device); });
  });
  // Held by arrays on a device now, and at most; and from here on, that anew.
  module.def("memory", [](std::int32_t device) {
    return nb::make_tuple(process_engine().memory.account(device).used_bytes,
                          process_engine().memory.account(device).peak_bytes);
  });
  module.def("reset_peak_memory", [](std::int32_t device) {
    process_engine().memory.account(device).peak_bytes = process_engine().memory.account(device).used_bytes;
  });
  // The size of each array's memory, and where that was made; -1 for page-locked memory.
  module.def(
      "memory_holders",
      [](std::int32_t device, bool is_managed) {
        // The list of buffers is walked before anything of Python's is made: the garbage collector frees arrays then.
        std::vector<std::pair<std::uint64_t, dataflow::Origin::Place>> held;
        process_engine().memory.each_buffer(device, is_managed, [&](const dataflow::Buffer& buffer) {
          held.emplace_back(buffer.size_bytes, dataflow::Origin::place(buffer.maker));
        });
        nb::list found;
        for (const auto& [size_bytes, place] : held) found.append(nb::make_tuple(size_bytes, place.location()));
        return found;
      },
      "device"_a, "is_managed"_a = false);
  module.def("pending_count", [] { return process_engine().pending.size(); });
}

}  // namespace
}  // namespace aiocuda

NB_MODULE(_native, module) {
  module.attr("keeps_spares") = aiocuda::keeps_spares;
  // Memory and operations live as long as somebody's program holds them: at exit that is no leak.
  aiocuda::nb::set_leak_warnings(false);
  aiocuda::bind_settings(module);
  aiocuda::bind_operations(module);
  aiocuda::bind_placements(module);
  aiocuda::bind_host_memory(module);
  aiocuda::bind_foreign_work(module);
  aiocuda::bind_foreign_ops(module);
  aiocuda::bind_tensors(module);
  aiocuda::bind_dlpack(module);
  aiocuda::bind_exchange_api(module);
  aiocuda::bind_ownership(module);
  aiocuda::bind_framework_ops(module);
  aiocuda::bind_graphs(module);
  aiocuda::bind_known_calls(module);
  aiocuda::bind_native_methods();
  aiocuda::bind_graph_calls(module);
  aiocuda::bind_kernel(module);
  aiocuda::bind_streams(module);
  aiocuda::bind_execution(module);
  aiocuda::bind_recording(module);
  aiocuda::bind_memory(module);
  aiocuda::bind_statistics(module);
  aiocuda::bind_boards(module);
  aiocuda::bind_stream_events(module);
  aiocuda::bind_guests(module);
  aiocuda::bind_bench(module);
  aiocuda::bind_graph_bench(module);
  aiocuda::bind_copy_bench(module);
}
