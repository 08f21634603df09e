// Whatever the driver refuses, work that touches the same memory stays ordered on the device.
#include <doctest/doctest.h>

#include <array>
#include <random>

#include "random_programs.hpp"
#include "whole_engine.hpp"

using namespace aiocuda::driver;
using namespace aiocuda::driver::tests;
namespace dataflow = aiocuda::dataflow;
namespace nb = nanobind;

TEST_CASE("what a stream has got of a fill that was refused is passed before the memory is freed") {
  for (const bool has_branches : {false, true}) {
    WholeEngine engine;
    engine.arrays = {engine.array(array_bytes)};
    CHECK_FALSE(engine.run(engine.gather({engine.fill(engine.arrays[0]), engine.create(array_bytes, 0, 4)})));
    engine.hold();
    engine.now_drained();
    engine.driver.forget_calls();
    engine.driver.refuse(Function::cuMemsetD2D32Async, CUDA_ERROR_OUT_OF_MEMORY, 2);
    nb::object op = engine.create(array_bytes, 0, 16);
    // So that it is on another stream than the device's default one.
    nb::object root = has_branches ? engine.gather({engine.fill(engine.arrays[0]), op}) : op;
    if (!has_branches) CHECK_FALSE(engine.submit(engine.fill(engine.arrays[0])));
    CHECK(engine.submit(root)->function == "cuMemsetD2D32Async");
    root.reset();
    op.reset();
    engine.engine.collect();
    engine.now_drained();
    REQUIRE(engine.driver.count(Function::cuMemFreeAsync) == 1);
    CHECK(first_race(engine.driver) == "");
    CHECK(engine.left_behind() == "");
  }
}

TEST_CASE("what a stream has got of a copy or a fill that was refused is waited for on every other stream") {
  // Rows that lie upon one another, or apart: a call for each.
  auto view_of = [](const nb::object& array, std::vector<std::int64_t> strides) {
    Array strided = of<Array>(array);
    strided.shape = {4, 4, 16};
    strided.strides = std::move(strides);
    return make<Array>(strided);
  };
  for (const bool is_copy : {true, false}) {
    for (const std::size_t touched : {0u, 1u}) {  // the source of the copy, or what both write
      if (!is_copy && touched == 0) continue;
      for (std::size_t later = 0; later < 4; ++later) {
        CAPTURE(is_copy);
        CAPTURE(touched);
        CAPTURE(later);
        WholeEngine engine;
        engine.arrays = {engine.array(1024), engine.array(1024)};
        CHECK_FALSE(engine.run(engine.fill(engine.arrays[0])));
        REQUIRE(engine.streams().size() == 4);
        engine.hold();
        engine.now_drained();
        engine.driver.forget_calls();
        for (const Function each : {Function::cuMemcpyAsync, Function::cuMemcpy2DAsync, Function::cuMemsetD8Async,
                                    Function::cuMemsetD2D8Async})
          engine.driver.refuse(each, CUDA_ERROR_OUT_OF_MEMORY, 2);
        const nb::object refused_op =
            is_copy ? engine.copy(view_of(engine.arrays[1], {}), view_of(engine.arrays[0], {256, 64, 0}))
                    : engine.fill(view_of(engine.arrays[1], {256, 48, 1}));
        REQUIRE(engine.submit(refused_op));
        REQUIRE(engine.driver.work().size() == 1);
        // Another stream than the policy would choose: the work is not in order by itself.
        const nb::object fill = engine.fill(engine.arrays[touched]);
        const nb::object put = make<Placement>();
        of<Placement>(put).device = 0;
        of<Placement>(put).stream = engine.engine.id_of(engine.streams()[later]);
        op_of(fill).put = put;
        CHECK_FALSE(engine.submit(fill));
        REQUIRE(engine.driver.work().size() == 2);
        CHECK(engine.driver.work()[1].stream == engine.handle(engine.streams()[later]));
        CHECK(engine.driver.work()[1].is_after(engine.driver.work()[0]));
        CHECK(engine.left_behind() == "");
      }
    }
  }
}

TEST_CASE("work at a stream's end that has passed says nothing of calls behind it that were held back at first") {
  for (const std::uint32_t stream_count : {1u, 2u}) {
    CAPTURE(stream_count);
    WholeEngine engine(stream_count);
    for (int i = 0; i < 3; ++i) engine.arrays.push_back(engine.array(array_bytes));
    CHECK_FALSE(engine.run(engine.fill(engine.arrays[0])));
    engine.hold();
    const nb::object at_end = engine.fill(engine.arrays[0]);
    CHECK_FALSE(engine.submit(at_end));
    const dataflow::Tick last = op_of(at_end).ready.front();
    std::vector<nb::object> fills;
    for (const nb::object& array : engine.arrays) fills.push_back(engine.fill(array));
    const nb::object behind = engine.gather(fills);
    CHECK_FALSE(engine.submit(behind));
    REQUIRE(engine.engine.timeline.submitted(last.stream) > last.count);
    // It is told by a stream beside its own, which this driver lets go on.
    CHECK(engine.execution(at_end)->wait(Patience(30)));
    CHECK(engine.engine.timeline.is_known_complete(last));
    for (const nb::object& fill : fills)
      for (const dataflow::Tick tick : op_of(fill).ready) CHECK_FALSE(engine.engine.timeline.is_known_complete(tick));
    engine.go_on();
    CHECK(engine.execution(behind)->wait(Patience(30)));
    CHECK(engine.left_behind() == "");
  }
}

TEST_CASE("random programs: waits and marks that are refused again and again are made before anything else") {
  std::size_t raised_count = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    WholeEngine engine(3);
    for (int i = 0; i < 3; ++i) engine.arrays.push_back(engine.array(array_bytes, 0, complex));
    CHECK_FALSE(engine.run(engine.fill(engine.arrays[0], 16)));
    engine.hold();
    engine.now_drained();
    engine.driver.forget_calls();
    const std::array functions{Function::cuEventRecord, Function::cuStreamWaitEvent, Function::cuEventCreate};
    engine.driver.refuse(functions[seed % 3], CUDA_ERROR_OUT_OF_MEMORY, 1 + random() % 8, 2 + random() % 8);
    for (int round = 0; round < 6; ++round)
      if (engine.submit(random_program(engine, random))) ++raised_count;
    engine.engine.collect();
    engine.now_drained();
    REQUIRE(first_race(engine.driver) == "");
    CHECK(engine.left_behind() == "");
  }
  CHECK(raised_count > 200);
}

TEST_CASE("random programs: whichever call is refused, no two pieces of work race, then or later") {
  std::size_t refused_count = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    WholeEngine engine(3);
    for (int i = 0; i < 3; ++i) engine.arrays.push_back(engine.array(array_bytes, 0, complex));
    CHECK_FALSE(engine.run(engine.fill(engine.arrays[0], 16)));  // the streams are there
    engine.hold();
    engine.now_drained();
    engine.driver.forget_calls();
    engine.driver.refuse_nth(1 + random() % 60);
    for (int round = 0; round < 4; ++round) {
      const auto raised = engine.submit(random_program(engine, random));
      if (!raised) continue;
      CHECK(raised->function == engine.driver.refused_function());
      ++refused_count;
    }
    engine.engine.collect();
    engine.now_drained();
    REQUIRE(first_race(engine.driver) == "");
    CHECK(engine.left_behind() == "");
  }
  CHECK(refused_count > 150);
}
