// Executions over a driver that counts and refuses: what they call, and what a refusal leaves behind.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "completion/port.hpp"
#include "whole_engine.hpp"

using namespace aiocuda::driver;
using namespace aiocuda::driver::tests;
namespace nb = nanobind;
using aiocuda::dataflow::State;

namespace {

std::vector<Function> functions(const FakeDriver& driver) {
  std::vector<Function> found;
  for (const FakeDriver::Work& each : driver.work()) found.push_back(each.function);
  return found;
}

// A program, as those who refuse its calls build it anew for each attempt.
struct NamedProgram {
  std::string name;
  std::function<nb::object(WholeEngine&)> build;
  std::function<void(WholeEngine&)> prepare = [](WholeEngine&) {};
};

nb::object chain(WholeEngine& engine) {
  const nb::object made = engine.create(256, 0, 4);
  const nb::object first = engine.launch({}, {made});
  return engine.launch({first}, {engine.create(128, 0)});
}
nb::object diamond(WholeEngine& engine) {
  const nb::object from = engine.fill(engine.create(64, 0));
  std::vector<nb::object> branches;
  for (int i = 0; i < 3; ++i) branches.push_back(engine.launch({from}, {engine.create(64, 0, 1)}));
  return engine.launch(branches, {engine.create(64, 0)});
}
nb::object to_peer(WholeEngine& engine) {
  return engine.copy(engine.create(64, 1), engine.launch({}, {engine.create(64, 0)}));
}
nb::object mapped(WholeEngine& engine) {
  const nb::object value =
      engine.map(engine.launch({}, {engine.create(64, 0)}), nb::cpp_function([](nb::object given) { return given; }));
  return engine.launch({value}, {engine.create(64, 0)});
}
nb::object then_built(WholeEngine& engine) {
  return engine.then(engine.fill(engine.create(64, 0)), nb::cpp_function([&engine](nb::object given) {
                       return engine.launch({given}, {engine.create(64, 0)});
                     }));
}
nb::object rows(WholeEngine& engine) {  // of 16 bytes, which are filled and copied in several calls
  aiocuda::dataflow::Array strided = of<Array>(engine.arrays.at(0));
  strided.shape = {4, 4, 16};
  strided.strides = {256, 64, 1};
  const nb::object view = make<Array>(strided);
  const nb::object from = engine.create(256, 0, 16);
  of<aiocuda::dataflow::CreateOp>(from).shape = strided.shape;
  return engine.fill(engine.copy(view, from));
}
nb::object by_host(WholeEngine& engine) {
  const nb::object down = engine.copy(engine.create_host(64), engine.launch({}, {engine.create(64, 0)}));
  return engine.copy(engine.create(64, 0), down);
}

std::vector<NamedProgram> programs() {
  return {
      {"a chain", chain},
      {"a diamond", diamond},
      {"a copy to another device", to_peer},
      {"a copy between devices that do not reach each other", to_peer,
       [](WholeEngine& engine) { engine.driver.is_peer_possible = false; }},
      {"a map in the middle", mapped},
      {"what a function of then returned", then_built},
      {"fills and copies of several calls", rows, [](WholeEngine& engine) { engine.arrays = {engine.array(1024)}; }},
      {"to the host and back", by_host}};
}

}  // namespace

TEST_CASE("a chain is called in its order, on one stream, with no waits") {
  WholeEngine engine(4, ThreadUse::never);  // else allocations are made before calls that were given
  CHECK_FALSE(engine.run(chain(engine)));
  CHECK(functions(engine.driver) == std::vector{Function::cuMemAllocFromPoolAsync, Function::cuMemsetD32Async,
                                                Function::cuLaunchKernel, Function::cuMemAllocFromPoolAsync,
                                                Function::cuLaunchKernel, Function::cuMemFreeAsync,
                                                Function::cuMemFreeAsync});
  for (const FakeDriver::Work& each : engine.driver.work()) CHECK(each.stream == engine.driver.work().front().stream);
  CHECK(engine.driver.count(Function::cuStreamWaitEvent) == 0);
  CHECK(engine.left_behind() == "");
}

TEST_CASE("branches overlap: none waits for another, and what joins them waits for all") {
  WholeEngine engine;
  const nb::object op = diamond(engine);
  CHECK_FALSE(engine.submit(op));
  std::vector<FakeDriver::Work> launches;
  for (const FakeDriver::Work& each : engine.driver.work())
    if (each.function == Function::cuLaunchKernel) launches.push_back(each);
  REQUIRE(launches.size() == 4);
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < i; ++j) CHECK_FALSE(launches[i].is_after(launches[j]));
    CHECK(launches[3].is_after(launches[i]));
  }
  CHECK(engine.left_behind() == "");
}

TEST_CASE(
    "whichever call is refused, the error names the call, nothing is left behind, and the next submission works") {
  for (const NamedProgram& program : programs()) {
    INFO(program.name);

    std::size_t raised_count = 0;
    auto attempt = [&](WholeEngine& engine) {
      const auto before = engine.handles();
      nb::object op = program.build(engine);
      const auto raised = engine.run(op);
      if (raised) {
        ++raised_count;
        CHECK(raised->kind == "refused");
        CHECK(raised->code == CUDA_ERROR_OUT_OF_MEMORY);
        CHECK(raised->function == engine.driver.refused_function());
      } else {
        CHECK(op_of(op).state == State::submitted);
      }
      op.reset();  // its arrays are freed, or their frees are refused
      engine.driver.refuse_no_more();
      engine.settle();
      CHECK(engine.handles() == before);
      CHECK(engine.engine.pending.size() == 0);
      CHECK_FALSE(engine.run(program.build(engine)));
      engine.settle();
      CHECK(engine.handles() == before);
      CHECK(engine.left_behind() == "");
    };
    refuse_each(program.prepare, attempt);
    CHECK(raised_count > 3);
  }
}

TEST_CASE("page-locked memory is asked for without the GIL, and calls of branches are made before") {
  WholeEngine engine;
  CHECK_FALSE(engine.run(engine.fill(engine.create(64, 0))));  // the engine has the page-locked memory of its own
  int asked = 0, asked_with_gil = 0, asked_too_soon = 0;
  engine.driver.set_before_call([&](Function called) {
    if (called != Function::cuMemHostAlloc) return;
    ++asked;
    asked_with_gil += PyGILState_Check();
    asked_too_soon += !engine.engine.now.has_all();
  });
  nb::object from = engine.fill(engine.create(64, 0));
  std::vector<nb::object> branches;
  for (int i = 0; i < 3; ++i) branches.push_back(engine.launch({from}, {engine.create(64, 0, 1)}));
  branches.push_back(engine.create_host(64));
  CHECK_FALSE(engine.run(engine.gather(branches)));
  CHECK(asked == 1);
  CHECK(asked_with_gil == 0);
  CHECK(asked_too_soon == 0);
  engine.driver.set_before_call([](Function) {});
}

TEST_CASE("nobody submits while memory goes back to the driver, and others have Python meanwhile") {
  WholeEngine engine;
  engine.run(engine.fill(engine.create(64, 0)));
  const std::uint64_t kept = engine.engine.memory.page_locked().kind().most_kept_bytes;
  std::atomic<bool> is_in_driver = false, may_free = false;
  std::atomic<int> calls_meanwhile = 0;
  const std::thread::id here = std::this_thread::get_id();
  engine.driver.set_before_call([&](Function called) {
    if (called == Function::cuMemFreeHost) {
      is_in_driver = true;
      is_in_driver.notify_all();
      may_free.wait(false);
    } else if (std::this_thread::get_id() == here && called == Function::cuMemsetD8Async && !may_free) {
      ++calls_meanwhile;
    }
  });
  {
    ContextScope scope(engine.engine.devices);
    scope.bind(0);
    engine.engine.memory.allocate_host(kept + 1).reset();
  }
  REQUIRE(engine.engine.memory.is_freeing());
  is_in_driver.wait(false);
  std::thread other([&] {
    const nb::gil_scoped_acquire python;  // can be had when the submission waits
    may_free = true;
    may_free.notify_all();
  });
  CHECK_FALSE(engine.run(engine.fill(engine.create(64, 0))));
  {
    const nb::gil_scoped_release release;
    other.join();
  }
  CHECK(calls_meanwhile == 0);
  CHECK_FALSE(engine.engine.memory.is_freeing());
  CHECK(engine.driver.count(Function::cuMemsetD8Async) == 2);
  engine.driver.set_before_call([](Function) {});
}

TEST_CASE("what a submission asks the driver does not grow with the streams that something waits for") {
  constexpr std::uint32_t streams = 16;
  WholeEngine engine(streams);
  engine.arrays = {engine.array(1024)};
  CHECK_FALSE(engine.run(engine.fill(engine.arrays[0])));
  REQUIRE(engine.streams().size() == streams);
  engine.hold();
  for (const StreamIndex stream : engine.streams())
    engine.engine.retain(engine.engine.timeline.advance(stream), nb::none());
  engine.now_drained();
  for (int submission = 0; submission < 3; ++submission) {
    engine.driver.forget_calls();
    CHECK_FALSE(engine.submit(engine.fill(engine.arrays[0])));
    engine.now_drained();
    CHECK(engine.driver.count(Function::cuStreamQuery) <= 4);
  }
  engine.go_on();
}
