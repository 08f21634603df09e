// The whole engine over the driver for tests: see whole_engine.hpp.
#include "whole_engine.hpp"

#include <nanobind/stl/string.h>

#include <cstdlib>
#include <thread>

#include <doctest/doctest.h>
#include "dataflow/pageable.hpp"
#include "dataflow/policies.hpp"
#include "driver/graph.hpp"
#include "driver/refused.hpp"

namespace aiocuda::driver::tests {
namespace {

const CUcontext test_context = reinterpret_cast<CUcontext>(0x999);

// (kind, the driver's answer, its function, for whom, the device)
nb::object error_of(const char* kind, int code, const nb::object& function, const nb::object& asked, int device) {
  const auto id = asked.is_none() || nb::isinstance<nb::str>(asked) ? 0 : reinterpret_cast<std::uintptr_t>(asked.ptr());
  return nb::borrow(PyExc_RuntimeError)(kind, code, function, id, device);
}

}  // namespace

std::optional<Raised> raised_by(const std::function<void()>& f) {
  try {
    f();
  } catch (nb::python_error& error) {
    const nb::object args = error.value().attr("args");
    if (!nb::handle(error.type()).is(PyExc_RuntimeError) || nb::len(args) != 5) {
      Raised said;
      said.kind = error.what();
      return said;
    }
    return Raised{nb::cast<std::string>(args[0]), nb::cast<int>(args[1]), nb::cast<std::string>(args[2]),
                  nb::cast<std::uintptr_t>(args[3]), nb::cast<std::int32_t>(args[4])};
  }
  return std::nullopt;
}

WholeEngine::WholeEngine(std::uint32_t streams_each, std::optional<ThreadUse> use)
    : policy(make<dataflow::Dataflow>(streams_each, 0)), placement(make<Placement>()) {
  const Table table = driver.table();
  table.cuCtxSetCurrent(test_context);
  engine.load(table);
  engine.submission.set(
      use.value_or(std::getenv("AIOCUDA_TESTS_SUBMISSION_THREAD") ? ThreadUse::always : ThreadUse::never));
  Hooks& hooks = engine.hooks;
  hooks.refused = nb::cpp_function([](int code, nb::object function, nb::object asked, std::uint64_t, int device) {
    return error_of("refused", code, function, asked, device);
  });
  hooks.lost = nb::cpp_function(
      [](int code, nb::object asked, int device) { return error_of("lost", code, nb::str(""), asked, device); });
  hooks.named = nb::cpp_function([](nb::object error, nb::object) { return error; });
  hooks.lift = nb::cpp_function([](nb::object value) { return value; });
  hooks.open = nb::cpp_function([this](std::int32_t ordinal) {
    doing(engine, std::string("opening a device"), ordinal, [&] {
      engine.open_device(ordinal, reinterpret_cast<CUcontext>(0x100 + ordinal),
                         reinterpret_cast<CUmemoryPool>(0x200 + ordinal), std::uint64_t{1} << 40, -5);
    });
  });
  hooks.opening = nb::cpp_function([this](std::int32_t ordinal) {
    engine.open(ordinal);
    return nb::none();
  });
  hooks.policy_streams = nb::cpp_function([this, streams_each](nb::handle, std::int32_t ordinal, int, nb::handle) {
    nb::list ids;
    ids.append(engine.id_of(engine.devices.at(ordinal).default_stream));
    doing(engine, std::string("creating a stream"), ordinal, [&] {
      for (std::uint32_t i = 1; i < streams_each; ++i) ids.append(engine.id_of(engine.streams.create(ordinal, 0)));
    });
    return ids;
  });
  hooks.device_array = hooks.host_array = nb::borrow(nb::type<Array>());
  auto& where = of<Placement>(placement);
  where.policy_object = policy;
  where.policy = &of<dataflow::Policy>(policy);
  PyContextVar_Set(dataflow::placement_variable().ptr(), placement.ptr());
}

WholeEngine::~WholeEngine() {
  PyContextVar_Set(dataflow::placement_variable().ptr(), Py_None);
  engine.now.drain();
  go_on();
  engine.collect();
  engine.now.drain();
  forget_signatures();  // the engine has their images
}

nb::object WholeEngine::array(std::uint64_t size_bytes, std::int32_t device, dataflow::DType dtype) {
  BufferRef buffer =
      device == dataflow::host_ordinal
          ? engine.memory.allocate_host(size_bytes)
          : engine.memory.allocate_device(device, size_bytes, engine.devices.at(device).default_stream, [] {});
  return make<Array>(Array{std::move(buffer),
                           0,
                           device,
                           dtype,
                           {static_cast<std::int64_t>(size_bytes / dataflow::dtypes[dtype].size_bytes)}});
}

void WholeEngine::load(dataflow::Signature& signature) {
  for (std::int32_t device = 0; device < 2; ++device) {
    dataflow::Signature::Loaded loaded;
    loaded.function = reinterpret_cast<void*>(0x5000);
    loaded.max_threads = 1024;
    loaded.image = engine.images.own(reinterpret_cast<CUlibrary>(0x6000), device);
    signature.loaded.push_back(std::move(loaded));
  }
}

std::optional<Raised> WholeEngine::run(const nb::object& op) {
  bool is_complete = true;
  auto raised = raised_by([&] { is_complete = execution(op)->wait(Patience(30)); });
  CHECK(is_complete);
  return raised;
}
std::optional<Raised> WholeEngine::submit(const nb::object& op) {
  return raised_by([&] { execution(op)->submit(); });
}

std::vector<StreamIndex> WholeEngine::streams(std::int32_t device) const {
  const auto& placed = of<dataflow::Policy>(policy).placed;
  const auto slot = static_cast<std::size_t>(device);
  return placed.size() > slot ? placed[slot].streams : std::vector<StreamIndex>();
}

void WholeEngine::hold() {
  for (StreamIndex i = 0; i < engine.stream_count(); ++i)
    if (engine.stream(i).mark) driver.hold(handle(i));
}
void WholeEngine::go_on() {
  for (StreamIndex i = 0; i < engine.stream_count(); ++i)
    if (engine.stream(i).mark) driver.go_on(handle(i));
}

void WholeEngine::settle() {
  engine.now.drain();
  engine.settle_losses();
  go_on();
  for (int round = 0; round < 2; ++round) {
    for (StreamIndex i = 0; i < engine.stream_count(); ++i)
      if (engine.stream(i).mark) engine.is_complete({i, engine.timeline.submitted(i)});
    engine.collect();
    engine.now.drain();
  }
}

std::string WholeEngine::left_behind() {
  now_drained();
  std::string found;
  auto note = [&](bool is_left, const char* what) {
    if (is_left) found += std::string(found.empty() ? "" : "; ") + what;
  };
  bool is_free = false;
  std::thread([&] {
    is_free = engine.submitting.try_lock();
    if (is_free) engine.submitting.unlock();
  }).join();
  note(engine.depth != 0 || !is_free, "the right to submit");
  note(!engine.now.has_all(), "calls that are held back");
  note(!engine.lines.is_empty(), "a place in a line");
  note(!engine.claims.is_empty(), "a claim");
  note(captures::thread().depth != 0, "the thread's capture mode");
  note(driver.context() != test_context, "another context on the thread");
  for (const std::string& misuse : driver.misuses()) note(true, misuse.c_str());
  return found;
}

std::map<Function, std::size_t> WholeEngine::handles() const {
  std::map<Function, std::size_t> found;
  for (const Function maker : {Function::cuMemAllocFromPoolAsync, Function::cuMemAlloc, Function::cuMemAllocManaged,
                               Function::cuGraphCreate, Function::cuGraphInstantiateWithFlags})
    found[maker] = driver.alive(maker);
  return found;
}

void refuse_each(const std::function<void(WholeEngine&)>& prepare, const std::function<void(WholeEngine&)>& attempt) {
  for (std::size_t nth = 1;; ++nth) {
    WholeEngine engine;
    prepare(engine);
    engine.driver.refuse_nth(nth);
    INFO("call ", nth, " is refused");
    attempt(engine);
    if (!engine.driver.has_refused_nth()) break;
    REQUIRE(nth < 500);
  }
}

}  // namespace aiocuda::driver::tests
